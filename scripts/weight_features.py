"""The weight matrices of one checkpoint into feature rows and persistence diagrams."""

import job
from toposcale import checkpoints, tables, weights


def main(snakemake):
    model, step = snakemake.wildcards.model, int(snakemake.wildcards.step)
    settings = weights.Settings.from_mapping(snakemake.params.settings)
    matrices = checkpoints.iterate_matrices(checkpoints.locate(snakemake.input[0]))
    features, diagrams = weights.describe(matrices, settings, model=model)
    where = {"model": model, "step": step, "source": "weights"}
    metadata = job.provenance(snakemake)
    tables.write(tables.feature_rows(features, **where), snakemake.output.features, metadata)
    tables.write(tables.diagram_rows(diagrams, **where), snakemake.output.diagrams, metadata)


if __name__ == "__main__":
    job.run(main, snakemake)
