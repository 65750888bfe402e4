"""Remove the weights of one published checkpoint from the cache, once everything was computed of them."""

import _job
from toposcale.checkpoints import manifests


def main(snakemake):
    manifests.release_manifest(snakemake.input.manifest)


if __name__ == "__main__":
    _job.run(main, snakemake)
