"""Which revisions of a published model serve the weights of another one, told by their checksums before any download."""

import json
import logging

import _job
from toposcale.checkpoints import manifests
from toposcale.io import files


def main(snakemake):
    settings = snakemake.params.source
    duplicates = manifests.source_of(settings, snakemake.config["hub"]).duplicates(settings["steps"])
    for step, revision in duplicates.items():
        logging.warning("step %s serves the weights of %s", step, revision)
    with files.atomic_write(snakemake.output[0]) as path:
        path.write_text(json.dumps({"model": snakemake.wildcards.model, "duplicates": duplicates}) + "\n")


if __name__ == "__main__":
    _job.run(main, snakemake)
