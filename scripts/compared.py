"""Compare the digests that the tables of a run carry with the expected ones; `_job` does that for every job."""

import _job


@_job.script
def main(snakemake):
    pass
