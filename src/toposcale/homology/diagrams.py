"""Summaries of point clouds and of persistence diagrams, arrays (k, 2) of (birth, death), and Betti curves.

Bars that never die are left out. A diagram of a descending filtration (birth above death, as in neural persistence) is
summarized by birth - death; Betti curves need an ascending filtration.
"""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from toposcale.homology.rips import mean_pairwise_distance, pairwise_distances, rips_diagrams_of_distances
from toposcale.homology.validation import Floats, as_diagram

Description = tuple[dict[str, float], list[Floats]]
"""Named numbers and the diagrams H0, H1, ... that they summarise."""

_NEGLIGIBLE = 1e-9  # persistence, relative to the largest coordinate, up to which a bar is rounding noise
_STAND_IN = 17
_WITHOUT_UNIT = ("count", "entropy")


def summarize_diagram(diagram: ArrayLike) -> dict[str, float]:
    """Summarize the finite bars of a persistence diagram in six numbers.

    A bar counts if its persistence exceeds 1e-9 of the largest coordinate of the diagram.

    Parameters
    ----------
    diagram : array_like of shape (k, 2)
        Births and deaths; bars with an infinite coordinate are ignored.

    Returns
    -------
    dict of str to float
        `count`; `total`, `total_l2`, `max` and `mean`: sum, root of the sum of squares, maximum and mean of the
        persistences, in the unit of the diagram; `entropy`: -sum p ln p in nats with p = persistence / total. All are 0
        if no bar counts.

    Raises
    ------
    ValueError
        If `diagram` is not of shape (k, 2) or holds NaN.

    Examples
    --------
    >>> summary = summarize_diagram([[0.0, 3.0], [0.0, 4.0], [0.0, float("inf")]])
    >>> summary["count"], summary["total"], summary["total_l2"]
    (2, 7.0, 5.0)
    """
    bars = _finite(as_diagram(diagram, "diagram"))
    persistences = np.abs(bars[:, 1] - bars[:, 0])
    persistences = persistences[persistences > _NEGLIGIBLE * np.abs(bars).max(initial=0.0)]
    count = len(persistences)
    if count == 0:
        return {"count": 0, "total": 0.0, "total_l2": 0.0, "max": 0.0, "mean": 0.0, "entropy": 0.0}
    total = float(persistences.sum())
    shares = persistences / total
    return {
        "count": count,
        "total": total,
        "total_l2": math.sqrt(float(persistences @ persistences)),
        "max": float(persistences.max()),
        "mean": total / count,
        "entropy": abs(float(shares @ np.log(shares))),  # the sum is never positive; one bar would give -0.0
    }


def cloud_features(points: ArrayLike, *, maxdim: int = 1) -> Description:
    """Return `h{k}_{name}` for every name of `summarize_diagram` of points (n, d), and their diagrams H0 to H`maxdim`.

    Those with a unit stand again as `h{k}_{name}_scaled`, divided by the mean pairwise distance: NaN, with a
    RuntimeWarning, if it is 0 or undefined.
    """
    distances = pairwise_distances(points)
    diagrams = rips_diagrams_of_distances(distances, maxdim=maxdim)
    unit = mean_pairwise_distance(distances)
    if not unit:
        message = "all points are the same, so there is no unit: the scaled values are NaN"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    features = {}
    for dimension, diagram in enumerate(diagrams):
        for name, value in summarize_diagram(diagram).items():
            features[f"h{dimension}_{name}"] = value
            if name not in _WITHOUT_UNIT:
                features[f"h{dimension}_{name}_scaled"] = value / unit if unit else math.nan
    return features, diagrams


def nan_features(compute: Callable[[Floats], Description], shape: Sequence[int]) -> Description:
    """Return the names that `compute` gives a matrix of `shape`, all NaN, and one NaN bar per homology dimension.

    They describe a matrix that holds NaN or infinity.
    """
    # The names depend on no larger size: exponents need 16 eigenvalues, also of centred points.
    stand_in = np.random.default_rng(0).standard_normal([min(size, _STAND_IN) for size in shape])
    features, diagrams = compute(stand_in)
    return dict.fromkeys(features, math.nan), [np.full((1, 2), math.nan) for _ in diagrams]


def betti_curve(diagram: ArrayLike, radii: ArrayLike) -> Floats:
    """Count the classes that are alive, birth <= r < death, at each radius r.

    Parameters
    ----------
    diagram : array_like of shape (k, 2)
        Births and deaths, death >= birth; bars with an infinite coordinate are ignored.
    radii : array_like of shape (m,)
        Ascending radii, in the unit of the diagram.

    Returns
    -------
    ndarray of shape (m,)
        Betti numbers, float64.

    Raises
    ------
    ValueError
        If `diagram` is not of shape (k, 2), holds NaN or descends, or `radii` is not 1-D, finite and ascending.

    Examples
    --------
    >>> betti_curve([[0.0, 1.0], [0.0, 2.0]], [0.0, 1.0, 2.0]).tolist()
    [2.0, 1.0, 0.0]
    """
    bars, radii = _finite(as_diagram(diagram, "diagram")), np.asarray(radii, dtype=np.float64)
    if radii.ndim != 1 or not np.isfinite(radii).all() or (np.diff(radii) < 0).any():
        raise ValueError("radii must be a 1-D ascending array of finite numbers")
    if (bars[:, 1] < bars[:, 0]).any():
        raise ValueError("diagram must have death >= birth in every row")
    born = np.searchsorted(np.sort(bars[:, 0]), radii, side="right")
    dead = np.searchsorted(np.sort(bars[:, 1]), radii, side="right")
    return (born - dead).astype(np.float64)


def crocker(diagrams: Sequence[ArrayLike], radii: ArrayLike) -> Floats:
    """Return a CROCKER matrix (n_steps, m): the Betti curve of each diagram on one grid of radii (Topaz et al. 2015)."""
    curves = [betti_curve(diagram, radii) for diagram in diagrams]
    return np.array(curves).reshape(len(curves), np.size(radii))


def _finite(diagram: Floats) -> Floats:
    return diagram[np.isfinite(diagram).all(axis=1)]
