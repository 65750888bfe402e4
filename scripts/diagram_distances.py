"""How far the diagrams of one model move from each checkpoint to the next."""

import _job
from toposcale.features import diagram_distances
from toposcale.io import schemas, tables


def main(snakemake):
    diagrams = [
        None if tables.read_warnings(path) else tables.read(schemas.TABLES["diagrams"], path)
        for path in _job.of_steps(snakemake.input, snakemake.params.steps)
    ]
    where = {"model": snakemake.wildcards.model, "source": snakemake.wildcards.source}
    moved = diagram_distances.consecutive_distances(diagrams)
    parts = [
        tables.feature_rows(features, step=step, **where)
        for step, features in zip(snakemake.params.steps[1:], moved, strict=True)
    ]
    tables.write(
        tables.joined(schemas.TABLES["features"], parts), snakemake.output[0], _job.provenance(snakemake)
    )


if __name__ == "__main__":
    _job.run(main, snakemake)
