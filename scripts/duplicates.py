"""Find revisions of a published model that serve the weights of another one, by checksums before any download."""

import logging

import _job
from toposcale.checkpoints import manifests


@_job.script
def main(snakemake):
    settings = snakemake.params.source
    duplicates = manifests.source_of(settings, snakemake.config["hub"]).duplicates(settings["steps"])
    for step, revision in duplicates.items():
        logging.warning("step %s serves the weights of %s", step, revision)
    _job.write_json(snakemake.output[0], {"model": snakemake.wildcards.model, "duplicates": duplicates})
