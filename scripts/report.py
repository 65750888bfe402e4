"""Snakemake's own report of the run: every figure and table with its caption in one page that needs no network."""

import logging
import os
import subprocess
import sys

import job
from toposcale import files
from toposcale.errors import UserError


def main(snakemake):
    with files.written(snakemake.output[0]) as path:
        command = [sys.executable, "-m", "snakemake", "--snakefile", snakemake.params.snakefile]
        command += ["--configfile", snakemake.input.configuration, "--cores", "1", "--nolock"]
        command += ["--report", str(path), "--", "tables", "figures"]
        # A worker that Snakemake started must not pass its own settings on to this reader of the finished run.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SNAKEMAKE_")}
        made = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        logging.info("%s\n%s", made.stdout, made.stderr)
        if made.returncode:
            raise UserError(f"the report could not be made; {snakemake.log} says why")


if __name__ == "__main__":
    job.run(main, snakemake)
