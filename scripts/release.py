"""Remove the weights of one published checkpoint from the cache after the last measurement."""

import _job
from toposcale.checkpoints import manifests


@_job.script
def main(snakemake):
    manifests.release_manifest(snakemake.input.manifest)
