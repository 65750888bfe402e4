"""Fetch one published checkpoint, measure it, and remove it."""

import importlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import _job
import fetch


class Named(dict):
    """A dictionary with attribute access, as Snakemake's."""

    __getattr__ = dict.__getitem__


def job(snakemake, measured, rule):
    """Return the job as the rule for cached checkpoints (hub.keep: true) would have it."""
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
            # Imported late, since some load PyTorch; a script has the name of its rule.
            importlib.import_module(rule).main(job(snakemake, measured, rule))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
