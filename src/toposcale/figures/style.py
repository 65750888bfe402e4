"""Style of the figures, by the object-oriented API: no pyplot, no global state, nothing left open."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec
from xml.etree import ElementTree

import matplotlib.style
import pandas as pd
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from toposcale.io.files import atomic_write

WIDTH = 9.0
"""Width of a figure in inches: at the report's width, 9-point text stays readable."""

MISSING = "Description"
"""SVG metadata of a figure without data: the reason, as `missing_reason` reads it."""

_DPI = 150

_DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"  # names of the metadata of an SVG

INK = "#222222"
MUTED = "#6b6b6b"

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 9,
    "text.parse_math": False,  # names of models and layers are drawn as they are, also those with a $
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "figure.constrained_layout.use": True,
    "figure.titlesize": 12,
    "hatch.linewidth": 0.7,
    # Letters as outlines: an SVG looks the same in any browser, with any fonts, offline.
    "svg.fonttype": "path",
    "svg.hashsalt": "toposcale",
}
"""The style sheet, for `matplotlib.style.use` or `matplotlib.style.context`."""

STRIKING = "#b0347a"
"""The colour of what a reader should see first."""
SEVERAL_COLOURS = ("#0b4f8a", "#1a1a1a", "#5aa6d6", "#e08e0b")
SEVERAL_LOOKS: list[dict[str, Any]] = [
    {"color": color, "marker": marker} for color, marker in zip(SEVERAL_COLOURS, "oXsD", strict=True)
]
"""For a few things side by side that have no order."""

SEQUENTIAL = "cividis"
DIVERGING = "PuOr_r"

_SIZE_COLOURS = "plasma"
_SMALLEST = 0.80  # shade of the smallest model: beyond it the map is too light for a line on white
_LARGEST = 0.0
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
_SEED_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)))


class Appearance(NamedTuple):
    """Colour, marker and line style of one model in every figure."""

    color: str
    marker: str
    linestyle: Any

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot` and of a legend's `Line2D`."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}


def mark_of(model: str) -> str:
    """Return the `gid` of the artists of one model, by which a page finds them in the SVG."""
    return f"model={model}"


UNKNOWN_MODEL = Appearance("#8c8c8c", "x", "-")
"""A model that is in the data but not in the models table."""

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with only this project's style, whatever matplotlibrc the user has."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return drawn


def model_appearances(models: pd.DataFrame) -> dict[str, Appearance]:
    """Map each model of the WHOLE models table, which determines the colours, to its appearance, smallest first.

    Colour and marker stand for the size (and the family, where two families have the same): light and warm is small, dark
    and cold is large, so that the order survives greyscale. The line style stands for the seed. Models without a size come
    last.
    """
    models = models.drop_duplicates("model")
    models = models.assign(family=models.get("family", models["model"]), seed=models.get("seed", 0))
    models = models.sort_values(["n_parameters", "family", "seed", "model"])
    copies = models.groupby(["n_parameters", "family"], dropna=False)
    ranks, numbers = copies.ngroup(), copies.cumcount()
    appearances = {}
    for model, rank, number in zip(models["model"], ranks, numbers, strict=True):
        shade = _SMALLEST + (_LARGEST - _SMALLEST) * rank / ranks.max() if ranks.max() else 0.3
        appearances[str(model)] = Appearance(
            to_hex(colormaps[_SIZE_COLOURS](shade)),
            _MARKERS[rank % len(_MARKERS)],
            _SEED_LINES[number % len(_SEED_LINES)],
        )
    return appearances


def save(figure: Figure, svg: str | os.PathLike[str], *, pdf: bool = False) -> None:
    """Write a figure as SVG, and as PNG and PDF next to it, atomically: the same bytes for the same figure."""
    of_svg = {"Date": None, "Creator": None, **({MISSING: figure.get_label()} if figure.get_label() else {})}
    with matplotlib.style.context(["default", STYLE]):
        figure.dpi = _DPI
        canvas = FigureCanvasAgg(figure)
        # The layout is found once, for the PNG: its letters are wider, so it fits the SVG too. `savefig` would draw
        # everything once more to find it.
        if layout := figure.get_layout_engine():
            layout.execute(figure)
            figure.set_layout_engine("none")
        with atomic_write(Path(svg).with_suffix(".png")) as temporary:
            canvas.print_png(temporary, metadata={"Software": None})
        # The solver of the layout differs in the last digits between processes, and SVG names its clips by all of them.
        for axes in figure.axes:
            axes.set_position(Bbox(axes.get_position(original=True).get_points().round(9)))
        with atomic_write(svg) as temporary:
            FigureCanvasSVG(figure).print_svg(temporary, metadata=of_svg)
        if pdf:
            with atomic_write(Path(svg).with_suffix(".pdf")) as temporary:
                FigureCanvasPdf(figure).print_pdf(temporary, metadata={"CreationDate": None})


def missing_reason(svg: str | os.PathLike[str]) -> str:
    """Return why a figure that `save` wrote has no data; "" if it has."""
    return ElementTree.parse(svg).findtext(f".//{{{_DUBLIN_CORE}}}{MISSING.lower()}", "")
