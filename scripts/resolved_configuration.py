"""Write the configuration with all defaults: with it and the revision, a run can be reproduced."""

from pathlib import Path

import yaml

import _job
from toposcale.io.files import write_text


@_job.script
def main(snakemake):
    write_text(snakemake.output[0], yaml.safe_dump(snakemake.params.config, sort_keys=False))
    # Lost together with Snakemake's records: see workflow/recorded.py.
    mark = Path(snakemake.params.mark)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
