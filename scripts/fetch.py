"""Fetch one published checkpoint into the cache, check every file of it, and note where it is and how large."""

import json
from contextlib import suppress

import _job
from toposcale.checkpoints import manifests
from toposcale.io import files
from toposcale.io.errors import UserError


def main(snakemake):
    source = manifests.source_of(snakemake.params.source, snakemake.config["hub"])
    step = snakemake.wildcards.step.lstrip("0") or "0"
    left_out = files.read_json(snakemake.input.duplicates)["duplicates"] if snakemake.params.leave_out else {}
    record = {}
    with suppress(UserError, OSError):
        record = files.read_json(snakemake.output.size)
    with files.atomic_write(snakemake.output.manifest) as path:
        kept = manifests.write_manifest(
            path, source, int(step), record=record, duplicate_of=left_out.get(step)
        )
    with files.atomic_write(snakemake.output.size) as path:
        path.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    _job.run(main, snakemake)
