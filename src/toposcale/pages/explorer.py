"""explorer.html: features, diagrams, merge trees and loss surfaces of every checkpoint, two models side by side.

The numbers travel as one block: a header in JSON and the arrays behind it, compressed together. A diagram's ends are
stored as 16-bit fractions of the range of its model and layer, which no screen can tell from the exact ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale import pages
from toposcale.features.names import feature_label, metric_label, series_name
from toposcale.figures.landscape_comparison import counted_tree, loss_grid
from toposcale.figures.style import model_appearances
from toposcale.io.schemas import ALL_LAYERS
from toposcale.landscape import merge_tree_layout
from toposcale.landscape.planes import most_telling

MOST_BARS = 1_000_000
"""Bars on a page; of larger runs each diagram keeps its longest ones. Four bytes a bar."""

MOST_LOSSES = 1_500_000
"""Losses of surfaces on a page; of larger runs the grids are thinned. Two bytes a loss."""

GRAPH = "grid8"
TOP = 65_534
"""The largest code of a finite number; the one above stands for infinity or no number."""

ABSENT = np.float32(np.inf)
"""A feature that was not computed at a checkpoint; NaN is one that was, and is none."""


class Block:
    """Arrays behind one another, each found again by its place, type and length."""

    def __init__(self) -> None:
        self._places: list[tuple[str, int, int]] = []
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, values: Any, kind: str) -> int:
        """Store an array as `kind` ("<u2", "<u4" or "<f4") and return its number."""
        data = np.ascontiguousarray(values, dtype=kind)
        self._places.append((kind[1:], self._length, data.size))
        padding = -data.nbytes % 4
        self._parts.append(data.tobytes() + bytes(padding))
        self._length += data.nbytes + padding
        return len(self._places) - 1

    def packed(self, header: Mapping[str, Any]) -> str:
        """The header and the arrays as text for the page: a length (4 bytes), JSON, arrays; compressed."""
        text = json.dumps({**header, "arrays": self._places}, separators=(",", ":"), allow_nan=False)
        encoded = text.encode()
        encoded += b" " * (-len(encoded) % 4)
        return pages.compressed(b"".join([len(encoded).to_bytes(4, "little"), encoded, *self._parts]))


def explorer(
    *,
    run: str,
    models: pd.DataFrame,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    diagrams: pd.DataFrame,
    surfaces: pd.DataFrame | None = None,
    most_bars: int = MOST_BARS,
    most_losses: int = MOST_LOSSES,
) -> str:
    """The page as text. The arguments are tables of the run; `surfaces` (model, step, plane, x, y, loss) may be absent."""
    block = Block()
    looks = model_appearances(models)
    values = pd.concat(
        [metrics.rename(columns={"metric": "feature"}).assign(source="metric", layer=ALL_LAYERS), features]
    )
    keys = values[["source", "layer", "feature"]].drop_duplicates()
    keys = keys.sort_values(["source", "layer", "feature"]).reset_index(drop=True)
    longest, bars_kept, bars_total = _longest(diagrams, most_bars)
    surfaces = _of_one_plane(surfaces)
    stride = _stride(len(surfaces), most_losses)
    sizes = models.drop_duplicates("model").set_index("model")["n_parameters"]
    header = {
        "keys": [_described(*key) for key in keys.itertuples(index=False)],
        "models": [
            {
                "name": name,
                "color": look.color,
                "parameters": int(sizes[name]),
                **_series(values[values["model"] == name], keys, block),
                "diagrams": _diagrams(diagrams[diagrams["model"] == name], longest, block),
                "surfaces": _surfaces(surfaces[surfaces["model"] == name], stride, block),
            }
            for name, look in looks.items()
        ],
        "top": TOP,
    }
    return pages.render(
        "explorer.html",
        run=run,
        packed=block.packed(header),
        notes=_notes(longest, bars_kept, bars_total, stride),
    )


def _of_one_plane(surfaces: pd.DataFrame | None) -> pd.DataFrame:
    """The surfaces on the plane that tells most."""
    if surfaces is None or surfaces.empty:
        return pd.DataFrame(columns=["model", "step", "x", "y", "loss"])
    return surfaces[surfaces["plane"] == most_telling(set(surfaces["plane"]))]


def _notes(longest: int | None, kept: int, total: int, stride: int) -> list[str]:
    """What was thinned, and by how much."""
    notes = [f"All {total:,} bars of the run are in this page."]
    if longest is not None:
        notes = [
            f"Thinned: each diagram holds at most its {longest} longest bars of each dimension; "
            f"{kept:,} of the {total:,} bars of the run are in this page."
        ]
    notes.append("Births and deaths are rounded to a 65,534th of the range of their model and layer.")
    if stride > 1:
        which = "every second" if stride == 2 else f"one in {stride}"
        notes.append(
            f"Thinned: of the rows and columns of each loss surface {which} is drawn; merge trees are whole."
        )
    return notes


def _described(source: str, layer: str, feature: str) -> dict[str, str]:
    label = metric_label(feature) if source == "metric" else feature_label(feature, source)
    unit = label.rpartition("(")[2].rstrip(")") if label.endswith(")") else ""
    name = series_name(source, feature).partition("  [")[0]
    return {"source": source, "layer": layer, "feature": feature, "name": name, "unit": unit}


def _series(values: pd.DataFrame, keys: pd.DataFrame, block: Block) -> dict[str, Any]:
    """The steps of a model, the keys that it has, and their values as an array (keys, steps)."""
    steps = np.sort(values["step"].unique())
    index = pd.MultiIndex.from_frame(keys)
    rows = index.get_indexer(pd.MultiIndex.from_frame(values[["source", "layer", "feature"]]))
    present = np.unique(rows)
    matrix = np.full((len(present), len(steps)), ABSENT, dtype=np.float32)
    number = values["value"].to_numpy(dtype=float)
    matrix[np.searchsorted(present, rows), np.searchsorted(steps, values["step"])] = np.where(
        np.isfinite(number), number, np.nan
    )
    return {"steps": steps.tolist(), "keys": present.tolist(), "values": block.add(matrix, "<f4")}


def _longest(diagrams: pd.DataFrame, most: int) -> tuple[int | None, int, int]:
    """How many bars each diagram may keep so that all of them are at most `most` (None: all), kept bars, all bars."""
    sizes = (
        diagrams.groupby(["model", "step", "source", "layer", "dimension"], observed=True).size().to_numpy()
    )
    total = int(sizes.sum())
    if total <= most:
        return None, total, total
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= most else (low, middle - 1)
    return low, int(np.minimum(sizes, low).sum()), total


def _diagrams(rows: pd.DataFrame, longest: int | None, block: Block) -> list[dict[str, Any]]:
    """A model's diagrams: for each source, layer and dimension the bars of all steps, longest first within a step."""
    found = []
    for (source, layer), own in rows.groupby(["source", "layer"], observed=True):
        ends = own[["birth", "death"]].to_numpy(dtype=float)
        finite = ends[np.isfinite(ends)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        for dimension in sorted(set(own["dimension"].tolist())):
            same = own[own["dimension"] == dimension]
            same = same.assign(length=same["death"] - same["birth"])
            same = same.sort_values(["step", "length"], ascending=[True, False], kind="stable")
            steps, counts = np.unique(same["step"].to_numpy(), return_counts=True)
            if longest is not None:
                same = same[same.groupby("step").cumcount() < longest]
            kept = np.unique(same["step"].to_numpy(), return_counts=True)[1]
            found.append(
                {
                    "source": source,
                    "layer": layer,
                    "dimension": dimension,
                    "low": low,
                    "high": high,
                    "steps": steps.tolist(),
                    "counts": counts.tolist(),
                    "starts": block.add(np.concatenate([[0], np.cumsum(kept)]), "<u4"),
                    "births": block.add(_coded(same["birth"].to_numpy(dtype=float), low, high), "<u2"),
                    "deaths": block.add(_coded(same["death"].to_numpy(dtype=float), low, high), "<u2"),
                }
            )
    return found


def _coded(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers between low and high as 0 to TOP; whatever is not finite as TOP + 1."""
    codes = np.full(values.shape, TOP + 1, dtype=np.uint16)
    finite = np.isfinite(values)
    codes[finite] = np.round((values[finite] - low) / ((high - low) or 1.0) * TOP)
    return codes


def _stride(losses: int, most: int) -> int:
    """Every how many-th row and column of the surfaces is kept so that `most` losses suffice."""
    return int(np.ceil(np.sqrt(losses / most))) if losses > most else 1


def _surfaces(rows: pd.DataFrame, stride: int, block: Block) -> list[dict[str, Any]]:
    """A model's loss surfaces with the merge trees of their sublevel sets."""
    found = []
    for step in sorted(set(rows["step"].tolist())):
        own = rows[rows["step"] == step]
        x, y, losses = loss_grid(own)
        finite = losses[np.isfinite(losses)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        tree = counted_tree(losses, GRAPH)
        layout = merge_tree_layout(tree)
        drawn = losses[::stride, ::stride]
        found.append(
            {
                "step": step,
                "width": drawn.shape[1],
                "height": drawn.shape[0],
                "x": [float(x[0]), float(x[-1])],
                "y": [float(y[0]), float(y[-1])],
                "low": low,
                "high": high,
                "losses": block.add(_coded(drawn, low, high), "<u2"),
                "segments": block.add(layout.segments, "<f4"),
                "nodes": block.add(layout.nodes, "<f4"),
                "minima": tree.n_minima,
                "saddles": tree.n_saddles,
            }
        )
    return found
