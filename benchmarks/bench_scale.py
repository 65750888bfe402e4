"""Weight features of matrices as large models have them: each against the plain way of computing the same, or a floor.

One thread. `python -m benchmarks scale`; the largest matrix and the nearest rows take a minute each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch  # noqa: F401  # large spectra come from it; its import is not timed

from benchmarks.checkpoint_costs import plain_eigenvalues
from benchmarks.timing import Row, best_in_turn
from toposcale import homology
from toposcale.features import registry, spectra, weights

# (name, rows, columns): the feed-forward expansion of Pythia 410M, 1B and 6.9B, and the token embedding of 70M.
_EXPANSIONS = (("410M", 4096, 1024), ("1B", 8192, 2048), ("6.9B", 16384, 4096))
_EMBEDDING = (50304, 512)


def rows() -> Iterator[Row]:
    """Spectra by size, then the features of a token embedding, then two layers together."""
    for model, n_rows, n_columns in _EXPANSIONS:
        matrix = _random(n_rows, n_columns)
        yield _row(
            f"spectrum of {n_rows} x {n_columns} ({model}) / NumPy's Gram and eigenvalues",
            lambda matrix=matrix: spectra.weight_eigenvalues(matrix),
            lambda matrix=matrix: plain_eigenvalues(matrix),
            limit=1.1,
            rounds=1 if n_columns > 2048 else 2,
        )
    embedding = _random(*_EMBEDDING)
    topology = weights.WeightSettings(features=("topology",))
    for what, ours, limit in (
        ("topology", lambda: weights.compute_features([("w", embedding)], topology), 3.0),
        (
            "norms and baselines",
            lambda: (registry.norms(embedding), registry.baselines_of_neural_persistence(embedding)),
            6.0,
        ),
        ("stable rank, ESD exponent and nuclear norm", lambda: registry.weight_spectra(embedding), 6.0),
    ):
        yield _row(
            f"{what}, embedding / product with its transpose",
            ours,
            lambda: embedding.T @ embedding,
            limit=limit,
            rounds=2,
        )
    for what, matrix, limit in (("embedding", embedding, 1.5), ("2048 x 2048", _random(2048, 2048), 0.4)):
        yield _row(
            f"stable rank, ESD exponent and nuclear norm, {what} / NumPy's singular values",
            lambda matrix=matrix: registry.weight_spectra(matrix),
            lambda matrix=matrix: np.linalg.svd(matrix.astype(np.float64), compute_uv=False),
            limit=limit,
            rounds=1,
        )
    yield _row(
        "nearest rows, embedding / the products of all rows",
        lambda: registry.spread_of_the_rows(embedding),
        lambda: _plain_nearest(embedding),
        limit=0.2,
        rounds=1,
    )
    first, second = _random(4096, 1024), _random(1024, 4096)
    yield _row(
        "deep graph persistence of 410M's pair / the spectra of both",
        lambda: homology.deep_graph_persistence(first, second),
        lambda: (spectra.weight_eigenvalues(first), spectra.weight_eigenvalues(second)),
        limit=1.0,
        rounds=2,
    )


def _row(name: str, ours: Callable[[], object], reference: Callable[[], object], *, limit: float, rounds: int) -> Row:
    mine, theirs = best_in_turn(ours, reference, rounds=rounds)
    return Row(name=name, ours=mine, reference=theirs, limit=limit)


def _plain_nearest(rows: np.ndarray) -> float:
    """Mean distance to the nearest row from the products of all rows, block by block, in float32."""
    squares, total = np.einsum("ij,ij->i", rows, rows), 0.0
    for start in range(0, len(rows), 1024):
        block = rows[start : start + 1024]
        distances = squares[start : start + 1024, None] + squares - 2 * (block @ rows.T)
        distances[np.arange(len(block)), np.arange(start, start + len(block))] = np.inf
        total += float(np.sqrt(np.maximum(distances.min(axis=1), 0)).sum(dtype=np.float64))
    return total / len(rows)


def _random(n_rows: int, n_columns: int) -> np.ndarray:
    return (0.02 * np.random.default_rng(0).standard_normal((n_rows, n_columns))).astype(np.float32)
