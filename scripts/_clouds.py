"""Embedded texts on disk: what `embeddings.py` writes of each checkpoint, and the divergences read."""

import numpy as np

from toposcale.features.divergences import Cloud
from toposcale.io import tensor_files

SEED = 42
"""Of the random halves of the texts from which the spread of a divergence is computed."""


def write(path, cloud, metadata):
    arrays = {"points": np.asarray(cloud.points, np.float32), "texts": np.asarray(cloud.texts, np.int64)}
    tensor_files.write(path, arrays, metadata)


def read(path):
    arrays, _ = tensor_files.read(path)
    return Cloud(arrays["points"], arrays["texts"])
