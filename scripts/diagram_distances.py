"""Compare consecutive checkpoints of one model: moves of weights, distances of diagrams, divergence of embedded texts."""

from itertools import pairwise

import _job
from toposcale import checkpoints
from toposcale.features import diagram_distances
from toposcale.features.divergences import divergence, load_clouds
from toposcale.features.weight_changes import relative_changes
from toposcale.io import schemas, tables


def moves(diagrams, files):
    """Yield the relative changes of the matrices with diagrams, of each checkpoint but the first; {} to a missing one."""
    for (earlier, later), pair in zip(pairwise(diagrams), pairwise(files), strict=True):
        matrices = (checkpoints.Checkpoint(checkpoints.locate(file)).matrices() for file in pair)
        is_missing = earlier is None or later is None
        yield {} if is_missing else relative_changes(*matrices, set(later["layer"].to_pylist()))


def rows_of_distances(model, source, steps, paths, files):
    """Yield the feature rows of a source, of each checkpoint but the first; files: the weights, where they are compared."""
    empty, missing, rows_of = schemas.TABLES["diagrams"].schema.empty_table(), set(), {}
    for path in paths:
        missing |= {row["step"] for row in tables.read_warnings(path)}
        rows_of |= tables.by_step(tables.read(schemas.TABLES["diagrams"], path))
    diagrams = [None if step in missing else rows_of.get(step, empty) for step in steps]
    distances = diagram_distances.consecutive_distances(diagrams)
    changes = moves(diagrams, files) if files else [{}] * len(distances)
    for step, features, moved in zip(steps[1:], distances, changes, strict=True):
        features = {layer: named | moved.get(layer, {}) for layer, named in features.items()}
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
        for rows in rows_of_distances(model, source, steps, inputs[source], inputs.moved if source == "weights" else [])
    ]
    parts += rows_of_divergences(model, inputs.clouds, snakemake.params.repeats)
    _job.write(snakemake, {"features": parts})
