"""Fetch one published checkpoint into the cache, verify its files, and write its location and sizes."""

import os

import _job
from toposcale.checkpoints import manifests
from toposcale.io.files import read_noted


def fetch(snakemake, own_cache=""):
    """Write the manifest of a checkpoint; if given, `own_cache` takes what the cache of the user does not have."""
    params, hub, manifest = snakemake.params, snakemake.config["hub"], snakemake.output.manifest
    steps = snakemake.config["models"][snakemake.wildcards.model]["steps"]
    source, step = manifests.source_of(params.source, hub), int(snakemake.wildcards.span.removeprefix("step-"))
    repeats = manifests.duplicates(params.duplicates, source, steps, float(os.environ["TOPOSCALE_STARTED"]))
    options = {"leave_out": hub["duplicates"] == "leave_out", "own_cache": own_cache, "attempt": params.attempt}
    manifests.write_manifest(manifest, source, step, repeats=repeats.get(step), before=read_noted(manifest), **options)


@_job.script
def main(snakemake):
    fetch(snakemake)
