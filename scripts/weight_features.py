"""Compute features and persistence diagrams of the weight matrices of checkpoints of one model."""

import _job
from _checkpoints import noted_if_missing
from _job import note
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.features.adapters import adapter_sentences, read_config
from toposcale.io import tables


@_job.script
def main(snakemake):
    model, inputs, params = snakemake.wildcards.model, snakemake.input, snakemake.params
    settings = weights.WeightSettings.from_mapping(params.settings)
    rows, warning_rows = {"features": [], "diagrams": []}, []
    for step, file in zip(params.steps, inputs.checkpoints, strict=True):
        with noted_if_missing(snakemake, "weights", step, file, warning_rows):
            checkpoint = checkpoints.Checkpoint(checkpoints.locate(file))
            frozen = checkpoint.frozen(params.frozen)
            left_out, adapter_config = checkpoint.left_out(frozen), read_config(checkpoint.files)
            matrices = _job.progress(checkpoint.matrices(frozen), checkpoint.sizes.n_matrices, "matrices")
            features, diagrams = weights.compute_features(matrices, settings, adapter_config=adapter_config)
            left_out += adapter_sentences(adapter_config, {*features, *checkpoint.tensors})
            left_out += weights.undefined_sentences(features)
            warning_rows += [note(model, "weights", sentence, "") for sentence in left_out]
            identifiers = {"model": model, "step": step, "source": "weights"}
            rows["features"].append(tables.feature_rows(features, **identifiers))
            rows["diagrams"].append(tables.diagram_rows(diagrams, **identifiers))
    _job.write(snakemake, rows, warning_rows)
