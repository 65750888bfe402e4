"""Numbers and fixed-length vectors that summarize a persistence diagram, a (k, 2) array of (birth, death).

Bars that never die are left out everywhere. A diagram of a descending filtration (birth above death, as
neural persistence has) is summarized by birth - death; the vectors below are for ascending filtrations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import as_diagram

_NEGLIGIBLE = 1e-9  # persistence, relative to the largest coordinate, up to which a bar is rounding noise


def summarize_diagram(diagram: ArrayLike) -> dict[str, float]:
    """count, total, total_l2, max, mean and entropy of the finite bars of a diagram (k, 2).

    Over the bars whose persistence exceeds 1e-9 of the largest death (of the largest coordinate, where the
    filtration descends): their number; sum, square root of the sum of squares, maximum and mean of the
    persistences, in the unit of the diagram; -sum p ln p in nats with p = persistence / total. All are 0
    where there is no bar.
    ValueError: `diagram` not of shape (k, 2), or with NaN.
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


def betti_curve(diagram: ArrayLike, radii: ArrayLike, *, essential: int = 0) -> NDArray[np.float64]:
    """Number of classes alive (birth <= r < death) at each of the ascending `radii` (m,): a vector (m,).

    `essential` classes that never die are added: 1 for H0 of a point cloud, whose essential class is not in
    the diagram.
    """
    bars, radii = _ascending(diagram), _grid(radii, "radii")
    born = np.searchsorted(np.sort(bars[:, 0]), radii, side="right")
    dead = np.searchsorted(np.sort(bars[:, 1]), radii, side="right")
    return (born - dead + essential).astype(np.float64)


def crocker(diagrams: Sequence[ArrayLike], radii: ArrayLike, *, essential: int = 0) -> NDArray[np.float64]:
    """CROCKER matrix (n_steps, m): the Betti curve of each step's diagram on one grid of `radii` (m,).

    Source: Topaz, Ziegelmeier and Halverson, PLOS ONE 10(5), 2015. `essential` as in `betti_curve`.
    """
    grid = _grid(radii, "radii")
    curves = [betti_curve(diagram, grid, essential=essential) for diagram in diagrams]
    return np.array(curves).reshape(len(curves), len(grid))


def persistence_landscape(diagram: ArrayLike, grid: ArrayLike, *, n_layers: int = 5) -> NDArray[np.float64]:
    """First `n_layers` landscape functions on `grid` (m,): (n_layers, m), in the unit of the diagram.

    The k-th is the k-th largest of max(0, min(t - birth, death - t)) over the bars, 0 where there are fewer
    than k.
    Source: Bubenik, JMLR 16, 2015.
    """
    if n_layers < 1:
        raise ValueError(f"n_layers must be 1 or more, got {n_layers}")
    bars, times = _ascending(diagram), _grid(grid, "grid")
    tents = np.minimum(times - bars[:, :1], bars[:, 1:] - times)
    tents = np.sort(np.maximum(tents, 0.0), axis=0)[::-1][:n_layers]
    landscape = np.zeros((n_layers, len(times)))
    landscape[: len(tents)] = tents
    return landscape


def persistence_image(
    diagram: ArrayLike, birth_edges: ArrayLike, persistence_edges: ArrayLike, *, bandwidth: float
) -> NDArray[np.float64]:
    """Persistence image on the pixels between the edges (m + 1,) and (n + 1,): (m, n), in the diagram's unit.

    Each bar is a Gaussian of standard deviation `bandwidth` at (birth, persistence), weighted by its
    persistence and integrated exactly over each pixel. Source: Adams et al., JMLR 18, 2017, with the weight
    linear in persistence.
    """
    if not 0.0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth must be positive and finite, got {bandwidth!r}")
    bars = _ascending(diagram)
    persistences = bars[:, 1] - bars[:, 0]
    along_birth = _gaussian_mass(bars[:, 0], _grid(birth_edges, "birth_edges"), bandwidth)
    along_persistence = _gaussian_mass(persistences, _grid(persistence_edges, "persistence_edges"), bandwidth)
    return (along_birth * persistences[:, None]).T @ along_persistence


def _gaussian_mass(
    centres: NDArray[np.float64], edges: NDArray[np.float64], bandwidth: float
) -> NDArray[np.float64]:
    """Probability of each interval between `edges` under a normal distribution at each centre: (k, m - 1)."""
    standard = (edges - centres[:, None]) / (bandwidth * math.sqrt(2.0))
    # math.erf over a few thousand numbers takes under a millisecond; importing scipy.special takes a hundred.
    cumulative = np.array([math.erf(value) for value in standard.flat]).reshape(standard.shape)
    return np.diff(cumulative, axis=1) / 2.0


def _finite(diagram: NDArray[np.float64]) -> NDArray[np.float64]:
    return diagram[np.isfinite(diagram).all(axis=1)]


def _ascending(diagram: ArrayLike) -> NDArray[np.float64]:
    bars = _finite(as_diagram(diagram, "diagram"))
    if (bars[:, 1] < bars[:, 0]).any():
        raise ValueError("diagram must have death >= birth in every row")
    return bars


def _grid(values: ArrayLike, name: str) -> NDArray[np.float64]:
    grid = np.asarray(values, dtype=np.float64)
    if grid.ndim != 1 or not np.isfinite(grid).all() or (np.diff(grid) < 0).any():
        raise ValueError(f"{name} must be a 1-D ascending array of finite numbers")
    return grid
