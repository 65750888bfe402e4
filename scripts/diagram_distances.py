"""Compute distances between the diagrams of consecutive checkpoints of one model."""

import _job
from toposcale.features import diagram_distances
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    missing = {row["step"] for path in snakemake.input for row in tables.read_warnings(path)}
    rows_of = {}
    for path in snakemake.input:
        rows_of |= tables.by_step(tables.read(schemas.TABLES["diagrams"], path))
    empty = schemas.TABLES["diagrams"].schema.empty_table()
    diagrams = [None if step in missing else rows_of.get(step, empty) for step in snakemake.params.steps]
    where = {"model": snakemake.wildcards.model, "source": snakemake.wildcards.source}
    distances = diagram_distances.consecutive_distances(diagrams)
    parts = [
        tables.feature_rows(features, step=step, **where)
        for step, features in zip(snakemake.params.steps[1:], distances, strict=True)
    ]
    _job.write(snakemake, {"features": parts})
