"""Remove the weights of one published checkpoint from the cache, once everything was computed of them."""

import _job
from toposcale.checkpoints import manifests


@_job.script
def main(snakemake):
    manifests.release_manifest(snakemake.input.manifest)
