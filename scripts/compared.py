"""Compare what the tables of a run carry with what it asks for; `_job` does that for every job."""

import _job


@_job.script
def main(snakemake):
    pass
