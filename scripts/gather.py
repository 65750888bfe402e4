"""Concatenate the files of one table, sorted, without the checkpoints that repeat another one."""

import _job
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    table, paths = schemas.TABLES[snakemake.params.table], snakemake.input.parts
    rows = tables.drop_checkpoints(tables.gather(table, paths), _job.duplicates(snakemake.input.get("left_out", [])))
    noted = [row for path in paths for row in tables.read_warnings(path)]
    tables.write(rows, snakemake.output[0], tables.with_warnings(_job.provenance(snakemake), noted))
