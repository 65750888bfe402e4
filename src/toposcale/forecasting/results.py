"""Results as scientific Python has them: rows, plain JSON, axes, text, and HTML in a notebook."""

import argparse
import json
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, cast

from toposcale.io.errors import UserError, one_line, printable
from toposcale.io.files import atomic_write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_WHOLE = 1e9
"""Number from which on a whole one, such as FLOP, is rounded in a table for a paper."""


class Result(ABC):
    """A result as rows, plain JSON, axes, text and HTML."""

    @abstractmethod
    def to_frame(self) -> "pd.DataFrame":
        """Return the rows of the result."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result in the types of JSON, None where there is no number."""

    @abstractmethod
    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the main panel into `ax`, or all of them into a figure of their own; return the main panel."""

    @property
    @abstractmethod
    def _summary(self) -> str:
        """The answer in a line."""

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the result.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes for only the main panel; by default a figure of all panels is made.

        Returns
        -------
        matplotlib.axes.Axes
            The main panel; its `figure` has all of them, and ``figure.savefig`` writes it.

        Raises
        ------
        UserError
            If matplotlib is not installed.
        """
        if isinstance(ax, str | os.PathLike):
            warnings.warn("plot(path) becomes plot().figure.savefig(path)", DeprecationWarning, stacklevel=2)
            return write(self, ax)
        return self._draw(ax)

    def __repr__(self) -> str:
        return one_line(f"<{type(self).__name__}: {self._summary}>")

    def _repr_html_(self) -> str:
        from toposcale.forecasting import pictures  # most answers are only printed

        picture = ""
        with suppress(UserError):  # without matplotlib
            picture = pictures.rendered(_figure_of(self._draw(None)), "svg").decode()
        return f'{picture}<pre style="white-space: pre-wrap">{escape(str(self))}</pre>'


class MappedResult(Result, Mapping[str, Any]):
    """A result that as a mapping has the keys of its JSON."""

    @property
    @abstractmethod
    def _values(self) -> dict[str, Any]:
        """Keys and values of the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the keys and values of the JSON."""
        return dict(self._values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _figure_of(axes: "Axes") -> "Figure":
    """Return the whole figure of axes that are in one."""
    return cast("Figure", axes.get_figure(root=True))


def write(result: Result, path: str | os.PathLike[str]) -> "Axes":
    """Write the picture of a result as a file, .svg, .png or .pdf, with its answer as the title; return the main panel."""
    from toposcale.forecasting import pictures  # most answers are only printed

    pictures.kind_of(path)
    axes = result.plot()
    figure = _figure_of(axes)
    title = figure.suptitle(result._summary.replace("$", r"\$"), x=0.01, ha="left", fontsize=9, wrap=True)
    title.set_parse_math(False)
    pictures.write(figure, path)
    return axes


def add_form_options(parser: argparse.ArgumentParser, *, plot: str = "", csv: bool = True) -> None:
    """Add the options of a command that prints a result; without `csv` where the command names files of its own.

    plot: what --plot does, if there is one.
    """
    if plot:
        parser.add_argument("--plot", metavar="FILE", help=f"also {plot}, .svg, .png or .pdf")
    forms = parser.add_mutually_exclusive_group()
    if csv:
        forms.add_argument("--csv", action="store_true", help="comma-separated values, every digit of them")
        forms.add_argument("--json", action="store_true", help="JSON; null where there is no number")
    else:
        text = "JSON instead of the table; with FILE it is written there, too"
        forms.add_argument("--json", nargs="?", const=True, metavar="FILE", help=text)
    forms.add_argument("--latex", action="store_true", help="a table of LaTeX, for a paper; needs booktabs there")


def show(result: Result, options: argparse.Namespace, text: str | None = None) -> None:
    """Print a result in the form that the options ask for, else as `text`, by default its own; write its files."""
    as_json = json.dumps(result.to_dict(), indent=1, allow_nan=False) if options.json else ""
    if isinstance(options.json, str):
        with atomic_write(options.json) as temporary:
            temporary.write_text(f"{as_json}\n", encoding="utf-8")
    if getattr(options, "plot", None):
        write(result, options.plot)
    if options.json is True:
        print(as_json)
    elif options.latex:
        print(latex(result.to_frame()), end="")
    elif options.csv is True:  # otherwise a file that is written too
        result.to_frame().to_csv(sys.stdout, index=False, lineterminator="\n")
    else:
        print(printable(str(result) if text is None else text))


def latex(table: "pd.DataFrame") -> str:
    """Return a table for a paper."""
    return table.to_latex(index=table.index.name is not None, escape=True, na_rep="", float_format=_number)


def _number(value: float) -> str:
    """Return a number with four digits, and whole ones such as steps in full."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < MAX_WHOLE else f"{value:.4g}"
