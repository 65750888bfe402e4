"""The weight matrices of checkpoints of one model into feature rows and persistence diagrams."""

import _job
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import tables


def main(snakemake):
    model, output = snakemake.wildcards.model, snakemake.output
    settings = weights.Settings.from_mapping(snakemake.params.settings)
    metadata = _job.provenance(snakemake)
    jobs = zip(
        snakemake.params.steps,
        _job.of_steps(snakemake.input.checkpoints, snakemake.params.steps),
        _job.each(output.features),
        _job.each(output.diagrams),
        strict=True,
    )
    for step, checkpoint, features_path, diagrams_path in jobs:
        matrices = checkpoints.iterate_matrices(checkpoints.locate(checkpoint))
        features, diagrams = weights.compute_features(matrices, settings, model=model)
        where = {"model": model, "step": step, "source": "weights"}
        tables.write(tables.feature_rows(features, **where), features_path, metadata)
        tables.write(tables.diagram_rows(diagrams, **where), diagrams_path, metadata)


if __name__ == "__main__":
    _job.run(main, snakemake)
