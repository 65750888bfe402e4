"""Numbers and Betti curves that summarize a persistence diagram, a (k, 2) array of (birth, death).

Bars that never die are left out everywhere. A diagram of a descending filtration (birth above death, as
neural persistence has) is summarized by birth - death; Betti curves are for ascending filtrations.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from toposcale.homology.validation import Floats, as_diagram

_NEGLIGIBLE = 1e-9  # persistence, relative to the largest coordinate, up to which a bar is rounding noise


def summarize_diagram(diagram: ArrayLike) -> dict[str, float]:
    """count, total, total_l2, max, mean and entropy of the finite bars of a diagram (k, 2).

    Over the bars whose persistence exceeds 1e-9 of the largest death (of the largest coordinate, where the filtration
    descends): their number; sum, square root of the sum of squares, maximum and mean of the persistences, in the unit
    of the diagram; -sum p ln p in nats with p = persistence / total. All are 0 where there is no bar. ValueError:
    `diagram` not of shape (k, 2), or with NaN.
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


def betti_curve(diagram: ArrayLike, radii: ArrayLike) -> Floats:
    """Number of classes alive (birth <= r < death) at each of the ascending `radii` (m,): a vector (m,)."""
    bars, radii = _finite(as_diagram(diagram, "diagram")), np.asarray(radii, dtype=np.float64)
    if radii.ndim != 1 or not np.isfinite(radii).all() or (np.diff(radii) < 0).any():
        raise ValueError("radii must be a 1-D ascending array of finite numbers")
    if (bars[:, 1] < bars[:, 0]).any():
        raise ValueError("diagram must have death >= birth in every row")
    born = np.searchsorted(np.sort(bars[:, 0]), radii, side="right")
    dead = np.searchsorted(np.sort(bars[:, 1]), radii, side="right")
    return (born - dead).astype(np.float64)


def crocker(diagrams: Sequence[ArrayLike], radii: ArrayLike) -> Floats:
    """CROCKER matrix (n_steps, m): the Betti curve of each step's diagram on one grid of `radii` (m,).

    Source: Topaz, Ziegelmeier and Halverson, PLOS ONE 10(5), 2015.
    """
    curves = [betti_curve(diagram, radii) for diagram in diagrams]
    return np.array(curves).reshape(len(curves), np.size(radii))


def _finite(diagram: Floats) -> Floats:
    return diagram[np.isfinite(diagram).all(axis=1)]
