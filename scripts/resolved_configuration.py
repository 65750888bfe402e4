"""The configuration with every default filled in: with it and the revision, a run can be made again."""

import yaml

import job
from toposcale import files


def main(snakemake):
    with files.written(snakemake.output[0]) as path:
        path.write_text(yaml.safe_dump(snakemake.params.config, sort_keys=False))


if __name__ == "__main__":
    job.run(main, snakemake)
