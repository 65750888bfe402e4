"""explorer.html: features, diagrams, merge trees and loss surfaces of every checkpoint, two models side by side.

The page holds one part for the run and one for each model, which is unpacked when the model is chosen. `parts` makes them;
`toposcale.pages.watch` serves the same parts for a training in progress.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import all_in_nats, with_metrics
from toposcale.figures.landscape import counted_tree, loss_grid, merge_tree_layout
from toposcale.figures.style import model_appearances
from toposcale.landscape.plane_names import most_informative
from toposcale.pages import templates
from toposcale.pages.chart_data import columns, described, keys_of, rounded

MAX_BARS = 700_000
"""Bars on a page; of larger runs each diagram keeps its longest ones. About seven bytes a bar."""

MAX_LOSSES = 600_000
"""Losses of surfaces on a page; of larger runs the grids are thinned. About four bytes a loss."""

BAR_DIGITS = 4
LOSS_DIGITS = 6


def explorer(**tables: Any) -> str:
    """Return the page as text; the arguments are those of `parts`."""
    page_parts = parts(**tables)
    return page(page_parts["run"], [templates.embedded(name, part) for name, part in page_parts.items()])


def page(run: Mapping[str, Any], data: Sequence[str] = (), *, live: bool = False) -> str:
    """Return the page around a run's part; a live page asks its server for the parts."""
    return templates.render("explorer.html", run=run, data=data, live=live)


def parts(
    *,
    run: str,
    models: pd.DataFrame,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    diagrams: pd.DataFrame,
    surfaces: pd.DataFrame | None = None,
    extras: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the data of the page: "run", and "model-0", "model-1", ... in the order of the run's models.

    The tables are those of a run; `surfaces` (model, step, plane, x, y, loss) may be absent. `extras`: by model, `advice`
    (text) and `forecast` (steps, values, low, high, name).
    """
    looks = model_appearances(models)
    values = with_metrics(features, metrics)
    keys = keys_of(values)
    longest, kept, total = _longest(diagrams)
    if surfaces is None or surfaces.empty:
        surfaces = pd.DataFrame(columns=["model", "step", "x", "y", "loss"])
    else:
        surfaces = surfaces[surfaces["plane"] == most_informative(set(surfaces["plane"]))]
    stride = int(np.ceil(np.sqrt(max(1.0, len(surfaces) / MAX_LOSSES))))  # of the rows and columns of each surface
    sizes = models.drop_duplicates("model").set_index("model")["n_parameters"]
    page_parts: dict[str, dict[str, Any]] = {
        "run": {
            "name": run,
            "keys": described(keys, in_nats=all_in_nats(models)),
            "models": [
                {"name": name, "color": look.color, "parameters": None if pd.isna(sizes[name]) else int(sizes[name])}
                for name, look in looks.items()
            ],
            "notes": _notes(longest, kept, total, stride, bool(len(surfaces))),
        }
    }
    for number, name in enumerate(looks):
        page_parts[f"model-{number}"] = {
            **columns(values[values["model"] == name], keys),
            "diagrams": list(_diagrams(diagrams[diagrams["model"] == name], longest)),
            "surfaces": list(_surfaces(surfaces[surfaces["model"] == name], stride)),
            **((extras or {}).get(name, {})),
        }
    return page_parts


def _notes(longest: int | None, kept: int, total: int, stride: int, has_surfaces: bool) -> list[str]:
    """Return notes on thinned diagrams and surfaces, with the factors, and on missing ones."""
    notes = [
        f"All {total:,} bars of the run are in this page."
        if longest is None
        else f"Thinned: each diagram holds at most its {longest} longest bars of each dimension; "
        f"{kept:,} of the {total:,} bars of the run are in this page.",
        f"Births and deaths are rounded to {BAR_DIGITS} significant digits, losses to {LOSS_DIGITS}.",
    ]
    if not has_surfaces:
        notes.append("No loss surface was computed, so there are neither merge trees nor surfaces.")
    if stride > 1:
        share = "every second" if stride == 2 else f"one in {stride}"
        notes.append(f"Thinned: of the rows and columns of each loss surface {share} is drawn; merge trees are whole.")
    return notes


def _longest(diagrams: pd.DataFrame) -> tuple[int | None, int, int]:
    """Return the most bars a diagram may keep for a total of `MAX_BARS` (None: all), bars kept, and all bars."""
    sizes = diagrams.groupby(["model", "step", "source", "layer", "dimension"], observed=True).size().to_numpy()
    total = int(sizes.sum())
    if total <= MAX_BARS:
        return None, total, total
    # At index k - 1: number of bars that are kept if a diagram may keep k.
    kept = np.cumsum(len(sizes) - np.cumsum(np.bincount(sizes)))
    longest = max(1, int(np.searchsorted(kept, MAX_BARS, side="right")))
    return longest, int(kept[longest - 1]), total


def _diagrams(rows: pd.DataFrame, longest: int | None) -> Iterator[dict[str, Any]]:
    """Yield a model's diagrams: by source, layer and dimension the bars of all steps, longest first within a step.

    The bars of the k-th of `steps` are those from `starts[k]` to `starts[k + 1]`; `counts`: bars before thinning.
    """
    for (source, layer, _), bars in rows.groupby(["source", "layer", "dimension"], observed=True):
        bars = bars.assign(length=bars["death"] - bars["birth"])
        bars = bars.sort_values(["step", "length"], ascending=[True, False], kind="stable")
        steps, counts = np.unique(bars["step"].to_numpy(), return_counts=True)
        if longest is not None:
            bars = bars[bars.groupby("step").cumcount() < longest]
        kept = np.minimum(counts, counts.max() if longest is None else longest)
        yield {
            "source": source,
            "layer": layer,
            "dimension": bars["dimension"].iloc[0].item(),
            "steps": steps.tolist(),
            "counts": counts.tolist(),
            "starts": [0, *np.cumsum(kept).tolist()],
            "births": rounded(bars["birth"], BAR_DIGITS),
            "deaths": rounded(bars["death"], BAR_DIGITS),
        }


def _surfaces(rows: pd.DataFrame, stride: int) -> Iterator[dict[str, Any]]:
    """Yield a model's loss surfaces (`losses`: by row of y) with the merge trees of their sublevel sets."""
    for step in sorted(set(rows["step"].tolist())):
        x, y, losses = loss_grid(rows[rows["step"] == step])
        tree = counted_tree(losses)
        layout = merge_tree_layout(tree)
        yield {
            "step": step,
            "x": rounded(x[::stride]),
            "y": rounded(y[::stride]),
            "losses": [rounded(row, LOSS_DIGITS) for row in losses[::stride, ::stride]],
            "segments": rounded(np.ravel(layout.segments), LOSS_DIGITS),
            "nodes": rounded(np.ravel(layout.nodes), LOSS_DIGITS),
            "minima": tree.n_minima,
            "saddles": tree.n_saddles,
        }
