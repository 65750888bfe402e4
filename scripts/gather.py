"""Many files of one table into one, rows sorted; checkpoints that only repeat another one are left out."""

import job
from toposcale import tables


def main(snakemake):
    table = tables.BY_NAME[snakemake.params.table]
    rows = tables.gather(table, snakemake.input.parts)
    rows = tables.without(rows, job.duplicates(snakemake.input.get("left_out", [])))
    tables.write(rows, snakemake.output[0], job.provenance(snakemake))


if __name__ == "__main__":
    job.run(main, snakemake)
