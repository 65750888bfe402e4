"""Topology of the way of training of one model, at each of its checkpoints, from the sketches of its weights."""

import numpy as np
import pyarrow as pa

import job
from toposcale import tables, tensor_files, trajectories


def main(snakemake):
    params, model = snakemake.params, snakemake.wildcards.model
    parts = [tensor_files.read(path)[0] for path in snakemake.input]
    steps = np.concatenate([part["step"] for part in parts])
    sketches = np.concatenate([part["sketch"] for part in parts])
    settings = trajectories.Settings(**params.settings)
    found = trajectories.describe(steps, sketches, params.steps, settings, model=model)
    rows = [tables.FEATURES.schema.empty_table()]
    rows += [
        tables.feature_rows(features, model=model, step=step, source="trajectory")
        for step, features in found.items()
    ]
    rows = tables.sort(tables.FEATURES, pa.concat_tables(rows))
    tables.write(rows, snakemake.output[0], job.provenance(snakemake))


if __name__ == "__main__":
    job.run(main, snakemake)
