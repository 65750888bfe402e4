"""How far the diagrams of one model move from each checkpoint to the next."""

import _job
from toposcale.features import diagram_distances
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    gaps = {row["step"] for path in snakemake.input for row in tables.read_warnings(path)}
    rows_of = {}
    for path in snakemake.input:
        rows_of |= tables.by_step(tables.read(schemas.TABLES["diagrams"], path))
    nothing = schemas.TABLES["diagrams"].schema.empty_table()
    diagrams = [None if step in gaps else rows_of.get(step, nothing) for step in snakemake.params.steps]
    where = {"model": snakemake.wildcards.model, "source": snakemake.wildcards.source}
    moved = diagram_distances.consecutive_distances(diagrams)
    parts = [
        tables.feature_rows(features, step=step, **where)
        for step, features in zip(snakemake.params.steps[1:], moved, strict=True)
    ]
    _job.write(snakemake, {"features": parts})
