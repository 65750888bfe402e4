"""Fetch one published checkpoint into the cache, verify its files, and write its location and sizes."""

import os
from dataclasses import replace
from pathlib import Path

import _job
from toposcale.checkpoints import manifests
from toposcale.io.errors import UserError
from toposcale.io.files import read_noted


def fetch(snakemake, manifest, own_cache=None):
    """Write the manifest of a checkpoint; if given, `own_cache` takes what the cache of the user does not have."""
    params, config, name = snakemake.params, snakemake.config, snakemake.wildcards.model
    source = manifests.source_of(params.source, config["hub"])
    step = int(snakemake.wildcards.span.removeprefix("step-"))
    began = float(os.environ["TOPOSCALE_STARTED"])
    repeats = manifests.duplicates(params.duplicates, source, config["models"][name]["steps"], began).get(step)
    if own_cache and not holds(source, step):
        source = replace(source, cache=str(own_cache))
    manifests.write_manifest(
        manifest,
        source,
        step,
        repeats=repeats,
        leave_out=params.leave_out,
        before=read_noted(manifest),
        attempt=params.attempt,
    )


def holds(source, step):
    try:
        return source.holds(source.revision(step))
    except UserError:  # told when it is fetched
        return False


@_job.script
def main(snakemake):
    fetch(snakemake, Path(snakemake.output.manifest))
