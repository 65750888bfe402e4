"""Many files of one table into one, rows sorted; checkpoints that only repeat another one are left out."""

import _job
from toposcale.io import schemas, tables


def main(snakemake):
    table = schemas.TABLES[snakemake.params.table]
    rows = tables.gather(table, _job.siblings(snakemake.input.parts, snakemake.params.steps))
    rows = tables.drop_checkpoints(rows, _job.duplicates(snakemake.input.get("left_out", [])))
    noted = [row for part in snakemake.input.parts for row in tables.read_warnings(part)]
    tables.write(rows, snakemake.output[0], tables.with_warnings(_job.provenance(snakemake), noted))


if __name__ == "__main__":
    _job.run(main, snakemake)
