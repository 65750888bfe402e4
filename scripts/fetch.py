"""Fetch one published checkpoint, and note where it lies and its sizes, or why it cannot be used."""

import json
import logging
import os
import time
from pathlib import Path

from huggingface_hub import is_offline_mode
from huggingface_hub.utils import disable_progress_bars

import _job
from toposcale import checkpoints
from toposcale.checkpoints.checkpoint import readable
from toposcale.checkpoints.hub import HubSource
from toposcale.io.errors import is_shared, reason_of
from toposcale.io.files import locked, read_noted, write_text


def listing(path, source, steps, since):
    """Return the listing of each step in the repository, stored in `path` once per run; since: start of the run."""
    with locked(f"{path}.lock"):
        request = {"repo": source.repo, "revisions": source.pattern, "steps": sorted(steps)}
        record = read_noted(path)
        is_known = {key: record.get(key) for key in request} == request
        if not is_known or (record["listed"] < since and not is_offline_mode()):
            listed_checkpoints = {str(step): facts for step, facts in source.listing(steps).items()}
            record = request | {"listed": time.time(), "checkpoints": listed_checkpoints}
            write_text(path, json.dumps(record, indent=1) + "\n")
    return record["checkpoints"]


def fetch(source, facts, *, cache="", keep=False):
    """Fetch a listed checkpoint; return its facts with its sizes, or with the reason why it is unusable."""
    folder = Path(facts["folder"])
    try:
        source.fetch(facts, folder, cache=cache, keep=keep)
        sizes = checkpoints.Checkpoint(folder).sizes
    except BaseException as error:
        if is_shared(error):
            raise
        reason = readable(reason_of(error), facts)
        logging.warning("%s", reason)
        return facts | {"unusable": reason}
    return facts | sizes._asdict()


@_job.script
def main(snakemake):
    disable_progress_bars()
    params, hub, folder = snakemake.params, snakemake.config["hub"], snakemake.output.folder
    source = HubSource(params.source["repo"], params.source["revisions"])
    step = int(snakemake.wildcards.checkpoints.removeprefix("step-"))
    steps = snakemake.config["models"][snakemake.wildcards.model]["steps"]
    listed_checkpoints = listing(params.revisions, source, steps, float(os.environ["TOPOSCALE_STARTED"]))
    Path(folder).mkdir(parents=True, exist_ok=True)
    facts = {"repo": source.repo, "step": step} | listed_checkpoints[str(step)]
    if "unusable" not in facts and not facts["repeats"]:
        facts = fetch(source, facts | {"folder": folder}, cache=hub["cache"], keep=hub["keep"])
    _job.write_json(snakemake.output.manifest, facts)
