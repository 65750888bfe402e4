"""Picture of a table of `toposcale.describe` or `compare`: a panel per feature, the matrices by block."""

import os
import re
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import cast

import numpy as np
import pandas as pd

from toposcale.features.feature import OF_COMPARISON, RELATIVE_CHANGE
from toposcale.features.names import feature_name, short_layer
from toposcale.features.registry import lookup
from toposcale.features.roles import Role, network_order, odd_layers, role_of
from toposcale.forecasting import pictures
from toposcale.io.errors import UserError, listed, needs_extra
from toposcale.io.schemas import ALL_LAYERS

with needs_extra("plot", "a picture"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullLocator

    from toposcale.figures.style import MUTED, SEVERAL_LOOKS, STRIKING, WIDTH, styled

_MAX_NAMED = 24  # matrices whose names stand under the axis without touching; of more the blocks are numbered
_MAX_CHANGED = 3  # largest changes that are ringed and named in the title of a panel
_MAX_TICKS = 16  # numbers of blocks under the axis
_LONGEST = 110  # characters of a panel's note: what fits next to its title
_LETTER = 0.085  # inches of a letter of a tick label, amply
_WIDE = 30  # ratio of the largest size to the median from which an axis is logarithmic
_LOOKS = dict(zip(Role, SEVERAL_LOOKS, strict=True))


def plot_matrices(table: pd.DataFrame, path: str | os.PathLike[str] | None = None, *, ax: Axes | None = None) -> Figure:
    """Draw a table of `describe` or `compare`: a panel per feature, the matrices by block.

    Parameters
    ----------
    table : pandas.DataFrame
        Result of `toposcale.describe` or `toposcale.compare`.
    path : path, optional
        File to write, .svg, .png or .pdf; none is written by default.
    ax : matplotlib.axes.Axes, optional
        Axes for only the first feature.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    UserError
        If the suffix or the table is not one of these, or matplotlib is not installed.

    Notes
    -----
    Circles mark the odd matrices (`describe`), or the three largest relative changes (`compare`), and the panel names them.
    Embeddings come first, then the blocks, attention before feed-forward, and the output last, each in alphabetical order;
    so are matrices whose names have no number of a block. A line joins the same matrix of consecutive blocks. An axis is
    logarithmic where the largest value is more than 30 times the median, and linear near 0.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> table = toposcale.describe({"square": np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])})
    >>> toposcale.plot_matrices(table, "square.gif")
    Traceback (most recent call last):
    ...
    toposcale.io.errors.UserError: square.gif: the suffix of a picture must be .svg, .png, .pdf
    """
    if path is not None:
        pictures.kind_of(path)
    figure = draw(table, ax)
    if path is not None:
        pictures.write(figure, path)
    return figure


@styled
def draw(table: pd.DataFrame, ax: Axes | None = None) -> Figure:
    """Return the figure of `plot_matrices`."""
    matrices = table.drop(index=ALL_LAYERS, errors="ignore") if isinstance(table, pd.DataFrame) else pd.DataFrame()
    features = [name for name in OF_COMPARISON if name in matrices]
    if not features or matrices.empty or matrices.index.name != "layer" or "shape" not in matrices:
        raise UserError("plot_matrices: a table of toposcale.describe or toposcale.compare is needed")
    has_blocks = any(re.search(r"\d", layer) for layer in matrices.index)
    if has_blocks:
        matrices = matrices.loc[sorted(matrices.index, key=network_order)]
    is_change = "odd" not in matrices
    names = list(map(short_layer, matrices.index)) if len(matrices) <= _MAX_NAMED else []
    is_level = _LETTER * sum(map(len, names)) < WIDTH - 1
    room = 0 if is_level else _LETTER * max(map(len, names))
    if ax is None:
        figure = Figure(figsize=(WIDTH, 1.35 * len(features) + 1 + room))
        panels = list(figure.subplots(len(features), sharex=True, squeeze=False)[:, 0])
    else:
        figure, panels = cast(Figure, ax.get_figure(root=True)), [ax]
    for axes, name in zip(panels, features, strict=False):
        _panel(
            axes,
            matrices[name].astype(float),
            {str(layer): shape for layer, shape in matrices["shape"].items()},
            is_change,
        )
    if names:
        panels[-1].set_xticks(range(len(names)), names, rotation=0 if is_level else 90)
        order = "by block, attention first" if has_blocks else "in alphabetical order"
        panels[-1].set_xlabel(f"matrix, {order}")
    else:
        _mark_blocks(panels[-1], list(matrices.index))
    if ax is not None:
        return figure
    roles = [role for role in Role if role in set(map(role_of, matrices.index))]
    figure.legend(
        [Line2D([], [], linestyle="", **_LOOKS[role]) for role in roles], roles, loc="outside upper right", ncols=4
    )
    figure.suptitle("Relative change of each matrix" if is_change else "Weight matrices", x=0.01, ha="left")
    return figure


def _panel(axes: Axes, values: pd.Series, shapes: Mapping[str, Sequence[int]], is_change: bool) -> None:
    """Draw one feature of every matrix, and mark and name the odd ones or the largest changes."""
    name, layers = str(values.name), list(values.index)
    numbers, x = values.to_numpy() * (100 if is_change else 1), np.arange(len(values))
    kinds = pd.Series(range(len(layers))).groupby([re.sub(r"\d+", "*", layer, count=1) for layer in layers])
    for _, members in kinds:
        look = _LOOKS[role_of(layers[members.iloc[0]])]
        axes.plot(members, numbers[members], color=look["color"], linewidth=0.6, alpha=0.5)
        axes.plot(members, numbers[members], linestyle="", **look)
    if is_change:
        largest = values.abs().replace(np.inf, np.nan).nlargest(_MAX_CHANGED)
        sign = "" if name == RELATIVE_CHANGE else "+"
        marked = {layer: f"{short_layer(layer)} {values[layer]:{sign}.1%}" for layer in largest[largest > 0].index}
        axes.axhline(0, color=MUTED, linewidth=0.8)
    else:
        odd = odd_layers({str(layer): {name: value} for layer, value in values.items()}, shapes)
        marked = {one.layer: short_layer(one.layer) for one in odd}
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if len(sizes) and sizes.max() > _WIDE * np.median(sizes):
        # Logarithmic, but for the neighbourhood of 0: a value may be 0 or, as a change, negative.
        axes.set_yscale("asinh", linear_width=np.median(sizes))
        decades = 10.0 ** np.arange(np.ceil(np.log10(2 * np.median(sizes))), np.log10(sizes.max()))
        ticks = np.concatenate([-decades, [0.0], decades])
        axes.set_yticks(ticks[(ticks >= np.nanmin(numbers)) & (ticks <= np.nanmax(numbers))])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    if marked:
        ringed = values.index.isin(marked)
        axes.plot(x[ringed], numbers[ringed], "o", markersize=9, mfc="none", mec=STRIKING)
    axes.margins(x=0.02, y=0.15)
    missing = [short_layer(layer) for layer in values.index[~np.isfinite(numbers)]]
    notes = [f"without a value: {listed(missing, 1)}"] if missing else []
    notes += [f"{'largest' if is_change else 'odd'}: {listed(marked.values(), _MAX_CHANGED)}"] if marked else []
    axes.set_title(feature_name(name))
    axes.set_title(shorten("; ".join(notes), _LONGEST, placeholder=" …"), loc="right", fontsize=8, color=STRIKING)
    axes.set_ylabel("change (%)" if is_change else lookup(name).unit)


def _mark_blocks(axes: Axes, layers: list[str]) -> None:
    """Number the blocks on the horizontal axis where they begin."""
    blocks = [re.search(r"\d+", layer) for layer in layers]
    numbers = [block.group() if block else "" for block in blocks]
    begins = [
        index for index, pair in enumerate(zip(["", *numbers], numbers, strict=False)) if pair[1] not in ("", pair[0])
    ]
    shown = begins[:: 1 + len(begins) // _MAX_TICKS]
    axes.set_xticks(shown, [numbers[index] for index in shown])
    axes.set_xlabel("block; in each, attention first")
