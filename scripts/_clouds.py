"""Embedded texts on disk: what `embeddings.py` writes of the checkpoints of a job, and the divergences read."""

import numpy as np

from toposcale.features.divergences import Cloud
from toposcale.io import tensor_files


def write(path, clouds, metadata):
    """clouds: by step."""
    arrays = {}
    for step, cloud in clouds.items():
        arrays[f"{step}/points"] = np.asarray(cloud.points, np.float32)
        arrays[f"{step}/texts"] = np.asarray(cloud.texts, np.int64)
    tensor_files.write(path, arrays, metadata)


def read(path):
    """Clouds by step, ascending."""
    arrays, _ = tensor_files.read(path)
    steps = sorted({int(name.partition("/")[0]) for name in arrays})
    return {step: Cloud(arrays[f"{step}/points"], arrays[f"{step}/texts"]) for step in steps}
