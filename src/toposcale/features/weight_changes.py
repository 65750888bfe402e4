"""Change of the weights from one checkpoint to another, matrix by matrix."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import eigh

from toposcale.features.feature import COSINE, RELATIVE_CHANGE, SUBSPACE_OVERLAP
from toposcale.features.registry import Features
from toposcale.io.reparametrised import second_factor
from toposcale.io.schemas import ALL_LAYERS

Matrices = Iterable[tuple[str, np.ndarray]]

UNRELATED_COSINE = 0.1
"""Median |cosine| over the matrices below which two checkpoints are unrelated. Of two seeds of 3K to 97K parameters it was
.02 to .07, between the first and the last step of one training .3 and more."""

N_LEADING = 10
"""Singular vectors that span a leading subspace."""


@dataclass(frozen=True)
class WeightChange:
    """Sums of squares of weights before, after and of their difference, and of products; overlap of leading subspaces."""

    before: float = 0.0
    after: float = 0.0
    difference: float = 0.0
    products: float = 0.0
    overlap: float = math.nan

    def __add__(self, other: Self) -> Self:
        """Return the change of the weights of both, which has no overlap."""
        names = ("before", "after", "difference", "products")
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def relative(self) -> float:
        """Norm of the difference over the norm before; infinite from 0."""
        if self.difference == 0.0:
            return 0.0
        return math.sqrt(self.difference / self.before) if self.before else math.inf

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the weights before and after; NaN where one of them is 0."""
        if self.difference == 0.0 and self.before:
            return 1.0  # which the rounded norms need not give
        norms = math.sqrt(self.before) * math.sqrt(self.after)
        return self.products / norms if norms else math.nan

    def features(self) -> Features:
        """Return the relative change, the cosine and the overlap, as far as they are defined."""
        values = {RELATIVE_CHANGE: self.relative, COSINE: self.cosine, SUBSPACE_OVERLAP: self.overlap}
        return {name: value for name, value in values.items() if not math.isnan(value)}


def weight_changes(
    before: Matrices, after: Matrices, layers: Collection[str] | None = None, *, with_subspaces: bool = False
) -> dict[str, WeightChange]:
    """Return the change of every matrix that both checkpoints have in one shape, and of all of them under "all".

    layers: names to compare, by default all. A pair is in memory at a time if both have the same order. Of an adapter,
    whose model is made up of products of factors, "all" is left out.
    """
    changes = {
        layer: _change(*pair, with_subspaces=with_subspaces)
        for layer, *pair in _pairs(before, after)
        if layers is None or layer in layers
    }
    if changes and not any(second_factor(layer) in changes for layer in changes):
        changes[ALL_LAYERS] = sum(changes.values(), WeightChange())
    return changes


def relative_changes(before: Matrices, after: Matrices, layers: Collection[str] | None = None) -> dict[str, Features]:
    """Return the relative change of each of these layers as a feature, but for matrices that were 0."""
    changes = weight_changes(before, after, layers)
    return {
        layer: {RELATIVE_CHANGE: change.relative}
        for layer, change in changes.items()
        if not math.isinf(change.relative)
    }


def unrelated_sentences(changes: Mapping[str, WeightChange]) -> list[str]:
    """Return that two checkpoints are unrelated, if their weights point into directions that have nothing in common."""
    cosines = [abs(change.cosine) for layer, change in changes.items() if layer != ALL_LAYERS]
    if not cosines or not np.median(cosines) < UNRELATED_COSINE:
        return []
    relative = f", and the change is {changes[ALL_LAYERS].relative:.0%} of the norm" if ALL_LAYERS in changes else ""
    return [
        f"the two are unrelated, as two seeds are: the median |cosine| of their matrices is {np.median(cosines):.2f}"
        f"{relative}; changes of features are differences between two models, not steps of one training"
    ]


def _pairs(before: Matrices, after: Matrices) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name and both values of every matrix that both have in one shape."""
    earlier, waiting = iter(before), dict[str, np.ndarray]()
    for layer, later in after:
        while layer not in waiting and (item := next(earlier, None)):
            waiting[item[0]] = item[1]
        if layer in waiting and (first := waiting.pop(layer)).shape == later.shape:
            yield layer, first, later


def _change(before: np.ndarray, after: np.ndarray, *, with_subspaces: bool) -> WeightChange:
    """Return the change of a matrix, summed in float64 over blocks of rows so that no large copy is made."""
    total, n_blocks = WeightChange(), max(1, before.size >> 20)
    for rows in zip(np.array_split(before, n_blocks), np.array_split(after, n_blocks), strict=True):
        first, second = (block.astype(np.float64) for block in rows)
        factors = (first, first), (second, second), (second - first, second - first), (first, second)
        total += WeightChange(*(float((one * other).sum()) for one, other in factors))
    is_defined = min(before.shape) >= 2 * N_LEADING and np.isfinite(total.difference) and total.before * total.after > 0
    return replace(total, overlap=_overlap(before, after)) if with_subspaces and is_defined else total


def _overlap(before: np.ndarray, after: np.ndarray) -> float:
    """Return the overlap of the spans of the leading singular vectors on the shorter side (Gur-Ari et al. 2018).

    Tr(P P') / k with the projectors P and P' on the two spans: 1 of equal ones, k / n by chance.
    """
    first, second = (_leading_vectors(matrix.astype(np.float64)) for matrix in (before, after))
    return float(np.square(first.T @ second).sum() / N_LEADING)


def _leading_vectors(matrix: np.ndarray) -> np.ndarray:
    """Return the leading singular vectors (n, N_LEADING) on the shorter side n."""
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    n = len(matrix)
    return np.asarray(eigh(matrix @ matrix.T, subset_by_index=(n - N_LEADING, n - 1))[1])
