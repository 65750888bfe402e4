"""The rows that a live monitor wrote of one snapshot, into the run."""

import job
from toposcale import tables


def main(snakemake):
    metadata = job.provenance(snakemake)
    for table in (tables.FEATURES, tables.DIAGRAMS):
        rows = tables.read(table, snakemake.input[table.name])
        tables.write(rows, snakemake.output[table.name], metadata)


if __name__ == "__main__":
    job.run(main, snakemake)
