"""Compute features and persistence diagrams of the weight matrices of checkpoints of one model."""

import _job
from _checkpoints import measure_checkpoints
from _notes import note
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.features.adapters import adapter_sentences, read_config
from toposcale.io import tables


def measure(checkpoint, settings, model, digests, warning_rows):
    """Return the features and diagrams of a checkpoint by layer, and note the tensors that are left out."""
    path = checkpoints.locate(checkpoint)
    opened = checkpoints.Checkpoint(path)
    frozen = opened.frozen(digests)
    matrices = _job.progress(opened.matrices(frozen), opened.sizes.n_matrices, "matrices")
    adapter_config = read_config(opened.files)
    features, diagrams = weights.compute_features(matrices, settings, adapter_config=adapter_config)
    left_out = (
        opened.left_out(frozen)
        + adapter_sentences(adapter_config, {*features, *opened.tensors})
        + weights.undefined_sentences(features)
    )
    warning_rows += [note(model, "weights", sentence, "") for sentence in left_out]
    return features, diagrams


@_job.script
def main(snakemake):
    model = snakemake.wildcards.model
    settings = weights.WeightSettings.from_mapping(snakemake.params.settings)
    rows, warning_rows = {"features": [], "diagrams": []}, []
    arguments = settings, model, snakemake.params.frozen, warning_rows
    for step, (features, diagrams) in measure_checkpoints(snakemake, "weights", warning_rows, measure, *arguments):
        identifiers = {"model": model, "step": step, "source": "weights"}
        rows["features"].append(tables.feature_rows(features, **identifiers))
        rows["diagrams"].append(tables.diagram_rows(diagrams, **identifiers))
    _job.write(snakemake, rows, warning_rows)
