"""Fetch one published checkpoint into the cache, check every file of it, and note where it is."""

import _job
from toposcale.checkpoints import hub
from toposcale.io import files


def main(snakemake):
    source = hub.source_of(snakemake.params.source, snakemake.config["hub"])
    with files.atomic_write(snakemake.output[0]) as path:
        hub.write_manifest(path, source, int(snakemake.wildcards.step))


if __name__ == "__main__":
    _job.run(main, snakemake)
