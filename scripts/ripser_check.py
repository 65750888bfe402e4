"""Compare some diagrams of the weights of one checkpoint with those of ripser for the same rows."""

from importlib import metadata

import _job
from toposcale import checkpoints
from toposcale.features import diagram_distances, ripser_check, weights
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    model, [step] = snakemake.wildcards.model, snakemake.params.steps
    rows = dict(tables.by_step(tables.read(schemas.TABLES["diagrams"], snakemake.input.diagrams)))
    record = {"model": model, "step": step, "ripser": metadata.version("ripser"), "clouds": []}
    if step in rows:  # otherwise the checkpoint is missing
        matrices = checkpoints.iterate_matrices(checkpoints.locate(snakemake.input.checkpoint))
        diagrams = diagram_distances.by_layer_and_dimension(rows[step])
        settings = weights.WeightSettings(**snakemake.params.settings)
        record["clouds"] = ripser_check.check(matrices, diagrams, settings)
    _job.write_json(snakemake.output.check, record)
