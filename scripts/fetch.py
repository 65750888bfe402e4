"""Fetch one published checkpoint into the cache, check every file of it, and note where it is."""

import job
from toposcale import files, hub


def main(snakemake):
    source = hub.source_of(snakemake.params.source, snakemake.config["hub"])
    with files.written(snakemake.output[0]) as path:
        hub.write_manifest(path, source, int(snakemake.wildcards.step))


if __name__ == "__main__":
    job.run(main, snakemake)
