"""`toposcale describe`: the weight matrices of a model; and what it shares with `toposcale compare`."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from toposcale.features import description
from toposcale.features.feature import OF_COMPARISON, RELATIVE_CHANGE, SUMMARY
from toposcale.features.names import feature_name, short_layer
from toposcale.features.registry import lookup
from toposcale.forecasting import results
from toposcale.io.errors import UserError, listed, one_line
from toposcale.io.files import finite_or_none
from toposcale.io.schemas import ALL_LAYERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_options(parser, "checkpoint")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    several = description.checkpoints_of(options.checkpoint)
    if several and options.plot:
        raise UserError(f"--plot: it draws one checkpoint, such as {list(several.values())[-1]}")
    if several and not options.all:
        call: Callable[..., Any] = partial(description.features_of, names=SUMMARY)
    else:
        call = description.features_of if options.all else description.describe
    measure(options, call, options.checkpoint, count=len(several) or 1)


def add_options(parser: argparse.ArgumentParser, *checkpoints: str) -> None:
    """Add the arguments of a command that measures some checkpoints."""
    for checkpoint in checkpoints:
        parser.add_argument(checkpoint, metavar=checkpoint.upper(), help="a file of weights, or a folder")
    parser.add_argument("more", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="every feature in long form: layer, feature, value")
    parser.add_argument(
        "--features", action="append", metavar="GROUP", help="only topology, norms or spectra; may be repeated"
    )
    results.add_form_options(parser)
    parser.add_argument(
        "--layers", action="append", metavar="GLOB", help="only matrices of such a name; may be given again"
    )
    parser.add_argument("--plot", metavar="FILE", help="also write a picture, .svg, .png or .pdf")


def measure(options: argparse.Namespace, call: Callable[..., Any], *checkpoints: str, count: int) -> None:
    """Print the table that a function of `description` makes of `count` checkpoints."""
    from rich.console import Console
    from rich.progress import Progress

    if options.more:
        raise UserError(
            f"{options.command}: too many checkpoints ({listed(options.more, 3)}): describe takes one, compare two; "
            "the workflow measures a whole training (kind: folder under models)"
        )
    if options.plot and options.all:
        raise UserError("--plot: it draws the table of one row per matrix; leave --all out")
    groups = {"features": tuple(options.features)} if options.features else {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=options.quiet or not console.is_terminal) as bar:
        measured = iter(range(1, count + 1))
        bar.add_task("Reading", total=None)

        def track(matrices: Any, total: int) -> Any:
            for task in bar.task_ids:
                bar.remove_task(task)
            return bar.track(matrices, total=total, description=f"Checkpoint {next(measured, count)} of {count}")

        table = call(*checkpoints, layers=options.layers or "*", **groups, progress=track)
    if options.plot:
        from toposcale import plot_matrices

        plot_matrices(table, options.plot)
    _show(table, options)


def _show(table: Any, options: argparse.Namespace) -> None:
    """Print a table of `describe` or `compare`, and its notes below it or, with CSV, on standard error."""
    notes = [one_line(note) for note in table.attrs["notes"]]
    if options.json:
        rows = (table if table.index.name is None else table.reset_index()).to_dict("records")
        finite = [{key: finite_or_none(value) for key, value in row.items()} for row in rows]
        print(json.dumps({"rows": finite, "notes": notes}))
        return
    if "shape" in table:
        table["shape"] = ["x".join(map(str, shape)) if shape else "" for shape in table["shape"]]
    if options.latex:
        print(results.latex(table), end="")
        return
    if options.csv:
        if sys.stdout.isatty():
            table = table.rename(index=one_line).map(lambda value: one_line(value) if isinstance(value, str) else value)
        table.to_csv(sys.stdout, index=table.index.name is not None, lineterminator="\n")
        print(*(f"toposcale: {note}" for note in notes), sep="\n", end="\n" if notes else "", file=sys.stderr)
    elif options.all:
        columns = [name for name in table.columns if name not in ("step", "layer", "feature")]
        _print_table(table, dict.fromkeys(columns, "{:.6g}".format))
        print(*notes, sep="\n", end="\n" if notes else "")
    elif "step" in table:
        print("\n".join([*_print_steps(table), *notes]))
    else:
        print("\n".join([*_print_summary(table, options.command == "compare"), *notes]))
    sys.stdout.flush()


def _print_steps(table: Any) -> list[str]:
    """Print a row per checkpoint for the whole model, with short names; return the legend below it."""
    whole = table[table["layer"] == ALL_LAYERS].pivot(index="step", columns="feature", values="value")
    features = {name: short for name, short in SUMMARY.items() if name in whole}
    table_of_steps = whole[list(features)].rename(columns=features).reset_index()
    _print_table(table_of_steps, {"step": "{:,}".format} | dict.fromkeys(features.values(), "{:.4g}".format))
    return ["", "the whole model; --csv has every layer, --all every feature", *_legend(features).values()]


def _legend(features: Mapping[str, str]) -> dict[str, str]:
    """Return what the short names of features stand for."""
    width = max(map(len, features.values()))
    return {
        name: f"{short:>{width}}  {feature_name(name)} ({name}, {lookup(name).unit})"
        for name, short in features.items()
    }


_MAX_NAMED_LAYERS = 10
_OTHER_COLUMNS_WIDTH = 68  # characters of the other columns


def _print_summary(table: Any, is_change: bool) -> list[str]:
    """Print the table of `describe` or `compare` with short names; return the lines below it: odd layers and the legend."""
    from toposcale.forecasting.amounts import amount

    rows, lines = table.reset_index(), [""]
    features = {name: short for name, short in OF_COMPARISON.items() if name in table}
    legend = _legend(features)
    if is_change:
        lines += [
            "change: the norm of the difference over the norm in the first checkpoint",
            "others: relative change of the feature (- if only one has the layer); and the layer of the largest:",
        ]
        for name, change in table.drop(index=ALL_LAYERS)[list(features)].abs().items():
            if change.max() > 0:
                layer = change.idxmax()
                legend[name] += f": {one_line(layer)} {_FORMATS.get(name, _change)(table.at[layer, name])}"
    else:
        odd = table[table["odd"] != ""]
        lines += [f"* odd: {one_line(layer)}: {reason}" for layer, reason in odd["odd"].head(_MAX_NAMED_LAYERS).items()]
        lines += (
            [f"* odd: {len(odd) - _MAX_NAMED_LAYERS} more, in the column odd of --csv"]
            if len(odd) > _MAX_NAMED_LAYERS
            else []
        )
        rows["layer"] += [" *" if reason else "" for reason in rows.pop("odd")]
        rows["parameters"] = list(map(amount, rows["parameters"]))
    form = _change if is_change else "{:.4g}".format
    formats = {short: _FORMATS.get(name, form) for name, short in features.items()}
    _print_table(rows.rename(columns=features | {"parameters": "params"}), formats)
    return lines + list(legend.values())


def _change(relative: float, sign: str = "+") -> str:
    return "from 0" if math.isinf(relative) else f"{relative:{sign}.1%}"


_FORMATS: Mapping[str, Callable[..., str]] = {RELATIVE_CHANGE: partial(_change, sign="")}
"""Formats of features that are not differences."""


def _print_table(table: Any, formats: Mapping[str, Callable[..., str]]) -> None:
    """Print a table, the columns in `formats` as right-aligned numbers; NaN is shown as -."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200)
    if "layer" in table and table["layer"].str.len().max() + _OTHER_COLUMNS_WIDTH > console.width:
        # A narrow terminal gets shorter names, not broken ones.
        table["layer"] = list(map(short_layer, table["layer"]))
    rich_table = Table(box=None, pad_edge=False)
    for name in table.columns:
        folds = name == "layer"
        rich_table.add_column(
            name,
            justify="right" if name in formats else "left",
            no_wrap=not folds,
            overflow="fold" if folds else "crop",
        )
    for row in table.to_dict("records"):
        cells = [
            one_line(value) if name not in formats else "-" if value != value else formats[name](value)
            for name, value in row.items()
        ]
        rich_table.add_row(*map(Text, cells))
    console.print(rich_table)
