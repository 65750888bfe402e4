"""Compute features and persistence diagrams of the weight matrices of checkpoints of one model."""

import _job
from _checkpoints import measured
from _notes import note
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import tables


def measure(checkpoint, settings, model, warning_rows):
    """Return the features and diagrams of a checkpoint by layer, and note what has none."""
    path = checkpoints.locate(checkpoint)
    warning_rows += [note(model, "weights", empty, "nothing to do") for empty in checkpoints.empty_matrices(path)]
    matrices = checkpoints.iterate_matrices(path)
    matrices = _job.progress(matrices, checkpoints.stored_sizes(path).n_matrices, "matrices")
    features, diagrams = weights.compute_features(matrices, settings)
    small = weights.undefined_sentences(features)
    warning_rows += [
        note(model, "weights", sentence, "nothing to do: it is left out of the model's") for sentence in small
    ]
    return features, diagrams


@_job.script
def main(snakemake):
    model = snakemake.wildcards.model
    settings = weights.WeightSettings.from_mapping(snakemake.params.settings)
    rows, warning_rows = {"features": [], "diagrams": []}, []
    for step, measurements in measured(snakemake, "weights", warning_rows, measure, settings, model, warning_rows):
        features, diagrams = measurements or ({}, {})
        where = {"model": model, "step": step, "source": "weights"}
        rows["features"].append(tables.feature_rows(features, **where))
        rows["diagrams"].append(tables.diagram_rows(diagrams, **where))
    _job.write(snakemake, rows, warning_rows)
