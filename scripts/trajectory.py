"""Compute the topology of the training trajectory of one model at its checkpoints, from sketches of its weights."""

import numpy as np

import _job
from toposcale.features import trajectory
from toposcale.io import tables, tensor_files


@_job.script
def main(snakemake):
    params, model = snakemake.params, snakemake.wildcards.model
    parts = [tensor_files.read(path)[0] for path in snakemake.input]
    steps = np.concatenate([part["step"] for part in parts])
    sketches = np.concatenate([part["sketch"] for part in parts])
    by_step = trajectory.compute_features(steps, sketches, params.steps, window=params.window)
    rows = [
        tables.feature_rows(features, model=model, step=step, source="trajectory") for step, features in by_step.items()
    ]
    _job.write(snakemake, {"features": rows})
