"""Which revisions of a published model serve the weights of another one, told by their checksums before any download."""

import json
import logging

import _job
from toposcale.checkpoints import hub
from toposcale.checkpoints.hub_client import HubUnreachableError
from toposcale.io import files


def main(snakemake):
    source = hub.source_of(snakemake.params.source, snakemake.config["hub"])
    try:
        found = source.duplicates()
    except HubUnreachableError as error:
        # Offline, with everything in the cache, a run goes on; it only cannot tell.
        logging.warning("revisions not compared: %s", error)
        found = None
    for step, revision in (found or {}).items():
        logging.warning("step %s serves the weights of %s", step, revision)
    with files.atomic_write(snakemake.output[0]) as path:
        path.write_text(json.dumps({"model": snakemake.wildcards.model, "duplicates": found}) + "\n")


if __name__ == "__main__":
    _job.run(main, snakemake)
