"""Compute features and persistence diagrams of the weight matrices of checkpoints of one model."""

from functools import partial

import _job
from _checkpoints import noted_if_missing
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import tables


@_job.script
def main(snakemake):
    model, inputs, params = snakemake.wildcards.model, snakemake.input, snakemake.params
    settings, progress = weights.WeightSettings.from_mapping(params.settings), partial(_job.progress, unit="matrices")
    rows, warning_rows = {"features": [], "diagrams": []}, []
    for step, file in zip(params.steps, inputs.checkpoints, strict=True):
        with noted_if_missing(snakemake, "weights", step, file, warning_rows):
            checkpoint = checkpoints.Checkpoint(checkpoints.locate(file))
            frozen = checkpoint.frozen(params.frozen)
            measurement = weights.measure(checkpoint, settings, frozen, progress=progress)
            sentences = checkpoint.left_out(frozen) + measurement.notes
            warning_rows += [_job.note(model, "weights", sentence, "") for sentence in sentences]
            identifiers = {"model": model, "step": step, "source": "weights"}
            rows["features"].append(tables.feature_rows(measurement.features, **identifiers))
            rows["diagrams"].append(tables.diagram_rows(measurement.diagrams, **identifiers))
    _job.write(snakemake, rows, warning_rows)
