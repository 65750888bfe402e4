"""Write the configuration with all defaults, which reproduces a run, and which files show the progress of each model."""

import yaml

import _job
from toposcale.io.files import write_text


@_job.script
def main(snakemake):
    write_text(snakemake.output.record, yaml.safe_dump(snakemake.params.config, sort_keys=False))
    _job.write_json(snakemake.output.progress, snakemake.params.progress)
