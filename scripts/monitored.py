"""The rows that a live monitor wrote of one snapshot, into the run."""

import _job
from toposcale.io import schemas, tables


def main(snakemake):
    metadata = _job.provenance(snakemake)
    for table in (schemas.TABLES["features"], schemas.TABLES["diagrams"]):
        rows = tables.read(table, snakemake.input[table.name])
        tables.write(rows, snakemake.output[table.name], metadata)


if __name__ == "__main__":
    _job.run(main, snakemake)
