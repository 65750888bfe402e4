"""Compare consecutive checkpoints of one model: distances of diagrams, and divergence of embedded texts."""

from itertools import pairwise

import _job
from toposcale.features import diagram_distances
from toposcale.features.divergences import divergence, load_clouds
from toposcale.io import schemas, tables


def rows_of_distances(model, source, steps, paths):
    """Yield the feature rows of a source, of each checkpoint but the first."""
    empty, missing, rows_of = schemas.TABLES["diagrams"].schema.empty_table(), set(), {}
    for path in paths:
        missing |= {row["step"] for row in tables.read_warnings(path)}
        rows_of |= tables.by_step(tables.read(schemas.TABLES["diagrams"], path))
    diagrams = [None if step in missing else rows_of.get(step, empty) for step in steps]
    distances = diagram_distances.consecutive_distances(diagrams)
    for step, features in zip(steps[1:], distances, strict=True):
        yield tables.feature_rows(features, model=model, step=step, source=source)


def rows_of_divergences(model, paths, repeats):
    """Yield the feature rows of the embedded texts, of each checkpoint but the first."""
    clouds = (item for path in paths for item in load_clouds(path).items())
    for (_, earlier), (step, later) in pairwise(clouds):
        if not len(earlier.texts) or not len(later.texts):
            continue  # a missing checkpoint
        features = divergence(earlier, later, repeats=repeats, seed=(42, "divergence subsets"))
        yield tables.feature_rows({schemas.ALL_LAYERS: features}, model=model, step=step, source="embeddings")


@_job.script
def main(snakemake):
    inputs, model = snakemake.input, snakemake.wildcards.model
    parts = [
        rows
        for source, steps in snakemake.params.steps.items()
        for rows in rows_of_distances(model, source, steps, inputs[source])
    ]
    parts += rows_of_divergences(model, inputs.clouds, snakemake.params.repeats)
    _job.write(snakemake, {"features": parts})
