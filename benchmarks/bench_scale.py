"""Weight features of matrices as large models have them: each against the plain way of computing the same, or a floor.

One thread. `python -m benchmarks scale`; the largest matrix takes a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch  # noqa: F401  # large spectra come from it; its import is not timed

from benchmarks.checkpoint_costs import plain_eigenvalues
from benchmarks.timing import Row, best_in_turn
from toposcale import homology
from toposcale.features import spectra, weights

# (name, rows, columns): the feed-forward expansion of Pythia 410M, 1B and 6.9B, and the token embedding of 70M.
_EXPANSIONS = (("410M", 4096, 1024), ("1B", 8192, 2048), ("6.9B", 16384, 4096))
_EMBEDDING = (50304, 512)


def rows() -> Iterator[Row]:
    """Spectra by size, then the groups of features of a token embedding, then two layers together."""
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
    for group in weights.CHOOSABLE_GROUPS:
        settings = weights.WeightSettings(features=(group,))
        yield _row(
            f"{group} of a token embedding / one product with its transpose",
            lambda settings=settings: weights.compute_features([("w", embedding)], settings, model="m"),
            lambda: embedding.T @ embedding,
            limit={"topology": 3.0, "norms": 6.0, "spectra": 6.0}[group],
            rounds=2,
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


def _random(n_rows: int, n_columns: int) -> np.ndarray:
    return (0.02 * np.random.default_rng(0).standard_normal((n_rows, n_columns))).astype(np.float32)
