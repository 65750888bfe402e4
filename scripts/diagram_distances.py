"""How far the diagrams of one model move from each checkpoint to the next."""

import pyarrow as pa

import _job
from toposcale.features import diagram_distances
from toposcale.io import schemas, tables


def main(snakemake):
    diagrams = [
        None if tables.read_warnings(path) else tables.read(schemas.DIAGRAMS, path)
        for path in snakemake.input
    ]
    where = {"model": snakemake.wildcards.model, "source": snakemake.wildcards.source}
    moved = diagram_distances.consecutive_distances(diagrams)
    parts = [schemas.FEATURES.schema.empty_table()]
    parts += [
        tables.feature_rows(features, step=step, **where)
        for step, features in zip(snakemake.params.steps[1:], moved, strict=True)
    ]
    rows = tables.sort(schemas.FEATURES, pa.concat_tables(parts))
    tables.write(rows, snakemake.output[0], _job.provenance(snakemake))


if __name__ == "__main__":
    _job.run(main, snakemake)
