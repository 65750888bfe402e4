"""Exact Wasserstein and bottleneck distances between persistence diagrams, with the L-infinity ground metric."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from toposcale.homology.validation import Floats, as_diagram

DistanceKind = Literal["wasserstein_1", "wasserstein_2", "bottleneck"]
KINDS: tuple[DistanceKind, ...] = ("wasserstein_1", "wasserstein_2", "bottleneck")
_ORDERS = {"wasserstein_1": 1, "wasserstein_2": 2, "bottleneck": 1}


def diagram_distances(
    a: ArrayLike, b: ArrayLike, *, kinds: Sequence[DistanceKind] = KINDS
) -> dict[DistanceKind, float]:
    """Compute distances between two persistence diagrams by exact optimal matchings.

    A point is matched to a point at cost max(|birth - birth'|, |death - death'|), or to the diagonal at cost |death -
    birth| / 2.

    Parameters
    ----------
    a, b : array_like of shape (k, 2) and (l, 2)
        Diagrams of finite bars, in one unit.
    kinds : sequence of {"wasserstein_1", "wasserstein_2", "bottleneck"}
        `wasserstein_q` is the minimum of (sum cost^q)^(1/q) over all matchings, `bottleneck` that of the largest cost.

    Returns
    -------
    dict of str to float
        Distance by kind, in the unit of the diagrams.

    Raises
    ------
    ValueError
        If a diagram is not of shape (k, 2) or holds NaN or infinity, or a kind is unknown.

    Examples
    --------
    >>> diagram_distances([[0.0, 8.0], [0.0, 2.0]], [[0.0, 7.0]], kinds=["wasserstein_1", "bottleneck"])
    {'wasserstein_1': 2.0, 'bottleneck': 1.0}
    """
    if isinstance(kinds, str) or not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds must be a sequence of {', '.join(KINDS)}; got {kinds!r}")
    first, second = _finite_diagram(a, "a"), _finite_diagram(b, "b")
    # In units of the longest bar, so that squares neither overflow nor vanish.
    diagonal = [np.abs(diagram[:, 1] - diagram[:, 0]) / 2.0 for diagram in (first, second)]
    unit = float(max(costs.max(initial=0.0) for costs in diagonal))
    if unit == 0.0:
        return dict.fromkeys(kinds, 0.0)
    births, deaths = np.concatenate([first, second]).T
    if np.all(births == births[0]) and (np.all(deaths >= births) or np.all(deaths <= births)):
        a_lengths, b_lengths = (np.sort(np.abs(side[:, 1] - births[0])) / unit for side in (first, second))
        costs_by_kind = {"bottleneck": _paired_by_length(a_lengths, b_lengths)}
        if set(kinds) != {"bottleneck"}:
            in_order = _paired_in_order(a_lengths, b_lengths) if len(first) == len(second) else None
            costs_by_kind |= dict(zip(KINDS, in_order or _aligned(a_lengths, b_lengths), strict=False))
        return {kind: unit * costs_by_kind[kind] ** (1 / _ORDERS[kind]) for kind in kinds}
    by_birth, by_death = (np.abs(np.subtract.outer(first[:, end], second[:, end])) for end in (0, 1))
    direct = np.maximum(by_birth, by_death)

    def wasserstein(order: int) -> float:
        return unit * _matched_cost(*((cost / unit) ** order for cost in (direct, *diagonal))) ** (1 / order)

    return {
        kind: _bottleneck(direct, *diagonal) if kind == "bottleneck" else wasserstein(_ORDERS[kind]) for kind in kinds
    }


def _paired_by_length(first: Floats, second: Floats) -> float:
    """Return the bottleneck cost of matching bars of equal birth by their lengths (k,) and (l,), ascending."""
    # If a bar goes to the diagonal, all shorter ones may; those that may not are the longest of either side, which are
    # best paired in order.
    paired = min(len(first), len(second))
    a, b = first[::-1], second[::-1]
    together = np.minimum(np.abs(a[:paired] - b[:paired]), np.maximum(a[:paired], b[:paired]) / 2)
    return float(np.max(np.concatenate([together, a[paired:] / 2, b[paired:] / 2]), initial=0.0))


def _paired_in_order(first: Floats, second: Floats) -> list[float] | None:
    """Return the result of `_aligned` if pairing bars of lengths (k,) and (k,) in order is provably optimal, else None."""
    differences = np.abs(first - second)
    squares = differences * differences
    # A matching that leaves out a bar i of one side leaves out a bar j of the other. Where that costs at least as much as
    # all pairs from i to j, whichever i and j, the sum of squares is least.
    cumulative = np.cumsum(squares)
    for left_out, counterpart in ((first, second), (second, first)):
        least_excess = np.minimum.accumulate((counterpart * counterpart / 4 - cumulative)[::-1])[::-1]
        if (left_out * left_out / 4 + cumulative - squares + least_excess < 0).any():
            return None
    # The sum of differences is least if there is a potential with slopes of at most 1 and values of at most half a length
    # that differs by |x - y| between the bars of each pair (Kantorovich duality): its slope is 1 where more of the second
    # bars than of the first are shorter, -1 where fewer are. low and high are the values that it can have.
    lengths = np.concatenate([first, second])
    order = np.argsort(lengths)
    slopes = np.sign(np.cumsum(np.repeat([-1, 1], len(first))[order]))
    low = high = previous = 0.0
    for length, slope in zip(lengths[order].tolist(), [0, *slopes[:-1].tolist()], strict=True):
        step, previous = length - previous, length
        low, high = max(low + (slope or -1) * step, -length / 2), min(high + (slope or 1) * step, length / 2)
        if low > high:
            return None
    return [float(differences.sum()), float(squares.sum())]


def _aligned(first: Floats, second: Floats) -> list[float]:
    """Return the minimal sums of costs, and of their squares, of bars of equal birth with lengths (k,), (l,), ascending."""
    # Some optimal matching does not cross, since |x - y|^q is convex, so it is an alignment of the sorted lists: a dynamic
    # programme along the antidiagonals i + j = constant, in O(k l) time and O(k + l) memory.
    k, l = len(first), len(second)
    outside = np.full(k, np.inf)  # what lies before the first and after the last bar of `second`
    padded = np.concatenate([outside, second, outside])[::-1]
    first_cost, second_cost = (np.stack([lengths / 2, (lengths / 2) ** 2]) for lengths in (first, padded))
    two_back, one_back = np.full((2, k + 1), np.inf), np.full((2, k + 1), np.inf)
    one_back[:, 0] = 0.0
    together = np.empty((2, k))
    for start in range(k + l - 1, -1, -1):
        # For i = 0 .. k bars of the first list: the bar of the second list on this antidiagonal.
        current = one_back + second_cost[:, start : start + k + 1]
        np.abs(first - padded[start + 1 : start + k + 1], out=together[0])
        np.square(together[0], out=together[1])
        matched = two_back[:, :-1] + together
        np.minimum(matched, one_back[:, :-1] + first_cost, out=matched)
        np.minimum(current[:, 1:], matched, out=current[:, 1:])
        two_back, one_back = one_back, current
    return one_back[:, k].tolist()


def _finite_diagram(values: ArrayLike, name: str) -> Floats:
    diagram = as_diagram(values, name)
    if not np.isfinite(diagram).all():
        raise ValueError(f"{name} must hold finite bars only; leave out essential classes")
    return diagram


def _matched_cost(direct: Floats, first_cost: Floats, second_cost: Floats) -> float:
    """Return the minimal total cost of a partial matching; unmatched points pay their cost to the diagonal."""
    from scipy.optimize import linear_sum_assignment

    # A pair may also go to the diagonal; an assignment of the savings over that needs no copies of the diagonal.
    together = np.minimum(direct, np.add.outer(first_cost, second_cost))
    savings = together - first_cost[:, None] - second_cost[None, :]
    rows, columns = linear_sum_assignment(savings)
    # Summed from the matched costs, not from the savings, so that equal diagrams are at distance exactly 0.
    matched = together[rows, columns].sum()
    return float(matched + np.delete(first_cost, rows).sum() + np.delete(second_cost, columns).sum())


def _bottleneck(direct: Floats, first_cost: Floats, second_cost: Floats) -> float:
    """Return the least r at which all points farther than r from the diagonal can be matched within r."""
    # Two matchings, one that serves all such points of the first diagram and one all of the second, always combine into one
    # that serves both (Mendelsohn and Dulmage 1958), so each side is checked by itself.
    # Each point costs at least its minimum, and no more than its way to the diagonal.
    first_best = np.minimum(first_cost, direct.min(axis=1, initial=np.inf))
    second_best = np.minimum(second_cost, direct.min(axis=0, initial=np.inf))
    least = max(first_best.max(initial=0.0), second_best.max(initial=0.0))
    most = max(first_cost.max(initial=0.0), second_cost.max(initial=0.0))

    def is_feasible(radius: float) -> bool:
        is_close = direct <= radius
        return _all_matched(is_close[first_cost > radius]) and _all_matched(is_close.T[second_cost > radius])

    if is_feasible(least):  # mostly
        return float(least)
    costs = np.concatenate([direct.reshape(-1), first_cost, second_cost])
    candidates = np.unique(costs[(costs > least) & (costs <= most)])
    return float(candidates[bisect_left(candidates, True, key=is_feasible)])


def _all_matched(allowed: NDArray[np.bool_]) -> bool:
    """Return whether every row of `allowed` (n_rows, n_columns) can be matched to a column of its own."""
    # Built by hand: scipy's conversion from the dense array takes longer than the matching.
    # 32 bits, since older versions of scipy match with nothing else.
    columns = np.nonzero(allowed)[1].astype(np.int32)
    row_starts = np.concatenate([[0], np.cumsum(np.count_nonzero(allowed, axis=1))]).astype(np.int32)
    graph = csr_array((np.ones(len(columns), bool), columns, row_starts), shape=allowed.shape)
    return bool((maximum_bipartite_matching(graph, perm_type="column") >= 0).all())
