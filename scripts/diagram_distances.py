"""Compute distances between the diagrams of consecutive checkpoints of one model, of all its sources."""

import _job
from toposcale.features import diagram_distances
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    empty, parts = schemas.TABLES["diagrams"].schema.empty_table(), []
    for source, steps in snakemake.params.steps.items():
        missing, rows_of = set(), {}
        for path in snakemake.input[source]:
            missing |= {row["step"] for row in tables.read_warnings(path)}
            rows_of |= tables.by_step(tables.read(schemas.TABLES["diagrams"], path))
        diagrams = [None if step in missing else rows_of.get(step, empty) for step in steps]
        distances = diagram_distances.consecutive_distances(diagrams)
        where = {"model": snakemake.wildcards.model, "source": source}
        parts += [
            tables.feature_rows(features, step=step, **where)
            for step, features in zip(steps[1:], distances, strict=True)
        ]
    _job.write(snakemake, {"features": parts})
