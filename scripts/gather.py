"""Concatenate the files of one table, sorted, without the checkpoints that repeat another one."""

import pyarrow.compute as pc

import _job
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    table, only = schemas.TABLES[snakemake.params.table], snakemake.params.get("only")
    paths = snakemake.input.parts
    parts = (tables.read(table, path) for path in paths)
    if only:
        parts = (part.filter(pc.equal(part["step"], step)) for part, step in zip(parts, only, strict=True))
    rows = tables.joined(table, parts)
    rows = tables.drop_checkpoints(rows, _job.duplicates(snakemake.input.get("left_out", [])))
    noted = [row for path in paths for row in tables.read_warnings(path)]
    tables.write(rows, snakemake.output[0], tables.with_warnings(_job.provenance(snakemake), noted))
