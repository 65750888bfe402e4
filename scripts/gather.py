"""Concatenate the parts of one table, sorted."""

import _job
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    table, paths = schemas.TABLES[snakemake.params.table], snakemake.input.parts
    rows = tables.gather(table, paths)
    warning_rows = [row for path in paths for row in tables.read_warnings(path)]
    tables.write(rows, snakemake.output[0], tables.with_warnings(_job.provenance(snakemake), warning_rows))
