"""Measure a model in several ways in one job, since each would import PyTorch; leave alone what is there as it is to be."""

import logging
from types import SimpleNamespace

import _job
import embeddings
import loss_landscape
import training_path
import trajectory
from toposcale.io import tensor_files
from toposcale.io.errors import UserError

WAYS = {"embeddings": embeddings, "landscape": loss_landscape, "path": training_path, "trajectory": trajectory}


def part_of(snakemake, way, params):
    """Return what of a job belongs to a way to measure, as a job of its own."""
    prefix = f"{way}_"
    inputs, outputs = (
        type(files)(
            fromdict={name.removeprefix(prefix): file for name, file in files.items() if name.startswith(prefix)}
        )
        for files in (snakemake.input, snakemake.output)
    )
    shared = {name: getattr(snakemake, name) for name in ("rule", "wildcards", "threads")}
    return SimpleNamespace(**shared, input=inputs, output=outputs, params=type(snakemake.params)(fromdict=params))


def is_done(part):
    """Return True if the outputs are there, and were made with what they are to be made with now."""
    made_with = _job.provenance(part)
    wanted = {name: made_with[name] for name in ("digest", "settings", "versions")}
    try:
        return all(_job.recorded(path).items() >= wanted.items() for path in part.output)
    except (FileNotFoundError, UserError):
        return False


@_job.script
def main(snakemake):
    # Not told by times: what Snakemake restores after a failure looks new.
    inputs = _job.digest([tensor_files.checksum(path) for path in snakemake.input])
    for way, params in snakemake.params.items():
        part = part_of(snakemake, way, params | {"checksum": inputs})
        _job.check_inputs(part.params.inputs)
        if is_done(part):
            logging.info("%s: up to date", way)
        else:
            WAYS[way].main(part)
