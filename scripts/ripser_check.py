"""Compare some diagrams of the weights of one checkpoint with those of ripser for the same rows."""

from importlib import metadata

import _job
from toposcale import checkpoints
from toposcale.features import diagram_distances, ripser_check, weights
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    model, steps = snakemake.wildcards.model, snakemake.params.steps
    rows = dict(tables.by_step(tables.read(schemas.TABLES["diagrams"], snakemake.input.diagrams)))
    record = {"model": model, "steps": steps, "ripser": metadata.version("ripser"), "clouds": []}
    # Otherwise the checkpoint is missing, or one of those that are not compared.
    for step in rows.keys() & set(steps):
        matrices = checkpoints.iterate_matrices(checkpoints.locate(snakemake.input.checkpoint))
        diagrams = diagram_distances.by_layer_and_dimension(rows[step])
        settings = weights.WeightSettings(**snakemake.params.settings)
        record["clouds"] = ripser_check.check(matrices, diagrams, settings, model)
    _job.write_json(snakemake.output.check, record)
