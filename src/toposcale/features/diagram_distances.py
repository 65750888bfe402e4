"""Distances between the persistence diagrams of consecutive checkpoints."""

import warnings
from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa

from toposcale import homology
from toposcale.features.descriptions import WITHOUT_MATRICES
from toposcale.homology.distances import KINDS
from toposcale.io.schemas import ALL_LAYERS

Diagrams = dict[tuple[str, int], np.ndarray]
"""Diagrams (k, 2) of a checkpoint by layer and dimension."""

_NO_BARS = np.empty((0, 2))


def by_layer_and_dimension(diagrams: pa.Table) -> Diagrams:
    """Return the diagrams (k, 2) in the table of one checkpoint by (layer, dimension), without bars that never die."""
    keys = list(zip(diagrams["layer"].to_pylist(), diagrams["dimension"].to_pylist(), strict=True))
    bars = np.column_stack([diagrams["birth"].to_numpy(), diagrams["death"].to_numpy()])
    # Rows are sorted by layer and dimension, so a diagram is one range of rows.
    by_key = {key: bars[list(rows)] for key, rows in groupby(range(len(keys)), keys.__getitem__)}
    return {key: diagram[diagram[:, 1] != np.inf] for key, diagram in by_key.items()}


def distances(earlier: pa.Table, later: pa.Table) -> dict[str, dict[str, float]]:
    """Return the distances between two checkpoints' diagrams as features by layer, and under "all"; NaN for a NaN bar."""
    return _distances(by_layer_and_dimension(earlier), by_layer_and_dimension(later))


def _distances(before: Diagrams, after: Diagrams) -> dict[str, dict[str, float]]:
    """Return the distances between the diagrams of two checkpoints as features by layer."""
    features: dict[str, dict[str, float]] = {}
    for layer, dimension in sorted({*before, *after}):
        pair = before.get((layer, dimension), _NO_BARS), after.get((layer, dimension), _NO_BARS)
        finite = all(np.isfinite(diagram).all() for diagram in pair)
        by_kind = homology.diagram_distances(*pair) if finite else dict.fromkeys(KINDS, np.nan)
        features.setdefault(layer, {}).update({f"h{dimension}_{kind}": by_kind[kind] for kind in KINDS})
    if features:
        features[ALL_LAYERS] = WITHOUT_MATRICES.aggregate(features)
    return features


def consecutive_distances(diagrams: Sequence[pa.Table | None]) -> list[dict[str, dict[str, float]]]:
    """Return `distances` of every checkpoint but the first from the previous one; {} to and from a missing one (None)."""
    if len(diagrams) < 2:
        warnings.warn("a single checkpoint has no consecutive distances", stacklevel=2)
    keyed = [None if table is None else by_layer_and_dimension(table) for table in diagrams]
    return [{} if a is None or b is None else _distances(a, b) for a, b in pairwise(keyed)]
