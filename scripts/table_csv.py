"""Write a table as CSV too."""

import _job
from toposcale.io import tables


@_job.script
def main(snakemake):
    tables.write_csv(tables.read_checked(snakemake.input[0]), snakemake.output[0])
