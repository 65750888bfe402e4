"""Drawing of a merge tree: where its leaves, saddles and branches lie."""

from typing import NamedTuple

import numpy as np

from toposcale.landscape.merge_tree import MergeTree


class MergeTreeLayout(NamedTuple):
    """Planar drawing of a merge tree without crossings; heights are losses.

    nodes: float64 (k, 2), x and height of every minimum, from left to right, and of every saddle. segments: float64 (s, 2,
    2), the ends of each branch, which is vertical, and of the horizontal bar at each saddle.
    """

    nodes: np.ndarray
    segments: np.ndarray


def merge_tree_layout(tree: MergeTree) -> MergeTreeLayout:
    """Return coordinates that draw `tree`: leaves at x = 0, 1, ..., a saddle midway between what it joins.

    Components stand side by side; roots rise to the largest finite value, non-finite heights a tenth of the range above
    it.
    """
    finite = tree.values[np.isfinite(tree.values)]
    low, top = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    beyond = top + 0.1 * ((top - low) or 1.0)

    def height(vertex: int) -> float:
        return float(tree.values[vertex]) if np.isfinite(tree.values[vertex]) else beyond

    # The upper end of each living branch.
    stem = {vertex: (float(x), height(vertex)) for x, vertex in enumerate(_leaf_order(tree))}
    nodes, segments = list(stem.values()), []
    events = np.column_stack([tree.saddles, tree.dying, tree.surviving])
    for saddle, dying, surviving in events.tolist():
        level = height(saddle)
        (x_dying, y_dying), (x_surviving, y_surviving) = stem.pop(dying), stem[surviving]
        corners = (x_dying, level), (x_surviving, level)
        segments += [((x_dying, y_dying), corners[0]), ((x_surviving, y_surviving), corners[1]), corners]
        stem[surviving] = ((x_dying + x_surviving) / 2, level)
        nodes.append(stem[surviving])
    segments += [((x, y), (x, max(y, top))) for x, y in stem.values()]
    lines = np.array([line for line in segments if line[0] != line[1]], dtype=np.float64)
    return MergeTreeLayout(np.array(nodes, dtype=np.float64), lines.reshape(-1, 2, 2))


def _leaf_order(tree: MergeTree) -> list[int]:
    """Return the minima from left to right, the leaves below every saddle side by side."""
    leaves = {vertex: [vertex] for vertex in tree.minima.tolist()}
    for dying, surviving in zip(tree.dying.tolist(), tree.surviving.tolist(), strict=True):
        leaves[surviving] += leaves.pop(dying)
    return [leaf for root in tree.roots.tolist() for leaf in leaves[root]]
