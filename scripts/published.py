"""Fetch one published checkpoint, make all measurements of it, and remove it."""

import importlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import _job
import fetch


class Named(dict):
    """Names and values that are attributes too, as those of Snakemake."""

    __getattr__ = dict.__getitem__


def job(snakemake, measured, rule):
    """Return the job of the rule that measures this checkpoint if it stays."""
    params, prefix = Named(snakemake.params[measured]), f"{measured}_"
    outputs = {name.removeprefix(prefix): path for name, path in snakemake.output.items() if name.startswith(prefix)}
    manifest, inputs = snakemake.output.manifest, dict(snakemake.input.items())
    inputs |= {"checkpoint": manifest, "checkpoints": [manifest] * len(params.steps)}
    inputs["diagrams"] = snakemake.output.weights_diagrams
    return SimpleNamespace(
        rule=rule,
        wildcards=snakemake.wildcards,
        params=params,
        input=Named(inputs),
        output=Named(outputs),
        threads=snakemake.threads,
    )


@_job.script
def main(snakemake):
    cache = Path(snakemake.output.manifest).with_suffix(".cache")
    try:
        fetch.fetch(snakemake, cache)
        for measured, rule in snakemake.params.measured.items():
            # Imported when it is due, since some load PyTorch; a script is named after its rule.
            importlib.import_module(rule).main(job(snakemake, measured, rule))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
