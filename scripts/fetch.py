"""Fetch one published checkpoint into the cache, check every file of it, and note where it is and how large."""

import json

import _job
from toposcale.checkpoints import Sizes, manifests
from toposcale.io import files


def main(snakemake):
    source = manifests.source_of(snakemake.params.source, snakemake.config["hub"])
    step = int(snakemake.wildcards.span.removeprefix("step-"))
    left_out = files.read_json(snakemake.input.duplicates)["duplicates"] if snakemake.params.leave_out else {}
    with files.atomic_write(snakemake.output.manifest) as path:
        size = manifests.write_manifest(path, source, step, duplicate_of=left_out.get(str(step)))
    with files.atomic_write(snakemake.output.size) as path:
        known = size._asdict() if size else dict.fromkeys(Sizes._fields)
        path.write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    _job.run(main, snakemake)
