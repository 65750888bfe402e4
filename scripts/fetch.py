"""Fetch one published checkpoint into the cache, verify its files, and write its location and size.

The size file persists between attempts: it also holds the commit, and the number of damaged downloads.
"""

from contextlib import suppress
from pathlib import Path

import _job
from toposcale.checkpoints import Sizes, manifests
from toposcale.io import files


def commit_in(size):
    """Return the commit that the previous attempt fetched; empty if there was none."""
    with suppress(OSError, ValueError):
        return files.parse_json(Path(size).read_text(encoding="utf-8")).get("commit", "")
    return ""


@_job.script
def main(snakemake):
    source = manifests.source_of(snakemake.params.source, snakemake.config["hub"])
    step = int(snakemake.wildcards.span.removeprefix("step-"))
    left_out = files.read_json(snakemake.params.duplicates)["duplicates"] if snakemake.params.leave_out else {}
    with files.atomic_write(snakemake.output.manifest) as path:
        fetched = manifests.write_manifest(
            path, source, step, duplicate_of=left_out.get(str(step)), commit_before=commit_in(snakemake.output.size)
        )
    facts = fetched.sizes._asdict() if fetched.sizes else dict.fromkeys(Sizes._fields)
    facts |= {"commit": fetched.commit, "damaged": snakemake.params.damaged + fetched.damaged}
    _job.write_json(snakemake.output.size, facts)
