"""Fetch one published checkpoint into the cache, check every file of it, and note where it is and how large."""

import json

import _job
from toposcale.checkpoints import Sizes, hub
from toposcale.io import files


def main(snakemake):
    source = hub.source_of(snakemake.params.source, snakemake.config["hub"])
    step = int(snakemake.wildcards.span.removeprefix("step-"))
    left_out = files.read_json(snakemake.input.duplicates)["duplicates"] if snakemake.params.leave_out else {}
    original = (left_out or {}).get(str(step))
    with files.atomic_write(snakemake.output.manifest) as path:
        size = hub.write_manifest(path, source, step, duplicate_of=original)
    with files.atomic_write(snakemake.output.size) as path:
        known = size._asdict() if size else dict.fromkeys(Sizes._fields)
        path.write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    _job.run(main, snakemake)
