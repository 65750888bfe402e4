"""`python -m toposcale`: the features of a checkpoint, what changed between two, and a page that follows a training."""

import argparse
import json
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from toposcale import __version__
from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.runs.schedules import SHAPES
from toposcale.io.errors import UserError, listed, one_line, printable

_EXAMPLES = """commands:
  python -m toposcale describe model.safetensors
  python -m toposcale describe checkpoint-500 --layers '*attn*' --all --csv > features.csv
  python -m toposcale compare checkpoint-100 checkpoint-500
  python -m toposcale advise losses.csv --parameters 25e6 --tokens-per-step 5e5 --schedule cosine --warmup 500 --steps 24000
  python -m toposcale curves a.csv b.csv --parameters 25e6 --tokens-per-step 5e5
  python -m toposcale check losses.csv
  python -m toposcale watch my-run

A checkpoint is a safetensors, .bin, .pt or .ckpt file, or a folder in the layout of Hugging Face. From Python:
  toposcale.describe(checkpoint), toposcale.compare(one, other); help(toposcale.describe) explains them.
Measure a training while it goes on: toposcale.monitor. A whole study, with report and forecasts: the Snakemake workflow.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit status is 1 for what is wrong with a checkpoint, 2 for a wrong command."""
    given = sys.argv[1:] if arguments is None else arguments
    # argparse takes -25e6 for an option, but nothing that begins with a space.
    options = _parser().parse_args([f" {text}" if _is_negative(text) else text for text in given])
    warnings.showwarning = lambda message, *_: print(f"toposcale: {one_line(message)}", file=sys.stderr)
    try:
        options.run(options)
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # of `... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"toposcale: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("toposcale: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Parser that names the command or option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line."""
        choice = re.match(r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice and (near := get_close_matches(choice[1], re.findall(r"\w+", choice[2]), 1)):
            message += f"; did you mean {near[0]}?"
        before, _, unknown = message.partition("unrecognized arguments: ")
        if not before and unknown:
            option = next((word.partition("=")[0] for word in unknown.split() if word.startswith("-")), "")
            options = map(_option, (*_OF_A_RUN, "size", "known", "remaining", "target"))
            near = get_close_matches(option, [*_MEANT, *options], 1)
            if near:
                message += f"; did you mean {_MEANT.get(near[0], near[0])}?"
            elif not option:
                message += "; an option takes one value, so give it again for each: --size 50e6 --size 100e6"
        super().error(message)


_MEANT = {
    **dict.fromkeys(("--lr", "--learning-rate", "--max-lr"), "--peak"),
    **dict.fromkeys(("--min-lr", "--end-lr"), "--final"),
    **dict.fromkeys(("--params", "--n-parameters", "--model-size"), "--parameters"),
    **dict.fromkeys(("--batch-size", "--batch-tokens"), "--tokens-per-step"),
    **dict.fromkeys(("--max-steps", "--total-steps"), "--steps"),
    **dict.fromkeys(("--lr-schedule", "--scheduler"), "--schedule"),
}
"""Options by their names in other tools."""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "python -m toposcale",
        description="Topology, norms and spectra of the weights of language models.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"toposcale {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def added(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    for name, checkpoints, text in (
        ("describe", ["checkpoint"], "the weight matrices of a model, one row each, and which of them are odd"),
        ("compare", ["before", "after"], "what changed between two checkpoints, one row per matrix"),
    ):
        command = added(name, _measure, text)
        for checkpoint in checkpoints:
            command.add_argument(checkpoint, metavar=checkpoint.upper(), help="a file of weights, or a folder")
        command.add_argument("more", nargs="*", default=[], help=argparse.SUPPRESS)
        command.add_argument("--all", action="store_true", help="every feature in long form: layer, feature, value")
        command.add_argument(
            "--features", action="append", metavar="GROUP", help="only topology, norms or spectra; may be repeated"
        )
        command.add_argument("--csv", action="store_true", help="comma-separated values, every digit of them")
        command.add_argument(
            "--layers", action="append", metavar="GLOB", help="only matrices of such a name; may be given again"
        )
        command.add_argument("--plot", metavar="FILE", help=_PLOT)
        command.set_defaults(checkpoints=checkpoints)
    command = added("advise", _advise, "continue this training run, or train a larger model: from its loss curve")
    text = "losses as a tracker, a training loop or a Trainer wrote them; without it the run has not started"
    command.add_argument("curve", metavar="CURVE", nargs="?", help=text)
    for name, meaning in _OF_A_RUN.items():
        command.add_argument(_option(name), type=str if name in _TEXTS else _amount, metavar=name.upper(), help=meaning)
    text = "parameters of a model that could be trained; may be given again"
    command.add_argument("--size", type=_amount, action="append", default=[], metavar="PARAMETERS", help=text)
    text = "another run of the family, all else as in this run but for what its log states; may be given again"
    command.add_argument("--known", action="append", default=[], metavar="CURVE:PARAMETERS", help=text)
    command.add_argument("--remaining", type=_amount, metavar="FLOP", help="compute that will still be spent")
    command.add_argument("--target", type=float, metavar="LOSS", help="a loss; the advice says when it is reached")
    command.add_argument("--plot", metavar="FILE", help=_PLOT)
    command.add_argument("--json", action="store_true", help="the object that advice.json has for a model")
    command = added("curves", _curves, "which of several training runs is better, from their loss curves")
    text = "losses of A, B, ..., as for advise; each is compared with A"
    command.add_argument("curves", nargs="+", metavar="CURVE", help=text)
    for name, meaning in _OF_A_RUN.items():
        meaning += "; if the runs differ a value each, - for none"
        kind = str if name in _TEXTS else _amount_or_none
        command.add_argument(_option(name), nargs="+", type=kind, metavar=name.upper(), help=meaning)
    text = "standard deviation of the loss between seeds, nats; by default estimated from published replicates"
    command.add_argument("--seed-noise", type=_amount, metavar="NATS", help=text)
    command.add_argument("--plot", metavar="FILE", help=_PLOT)
    command.add_argument("--json", action="store_true", help="print the comparison as JSON")
    command = added("check", _check, "how advise would read a file: columns, rows, units, and what is left out")
    command.add_argument("curve", metavar="CURVE", help="losses as advise takes them")
    for name in ("loss_column", "step_column"):
        command.add_argument(_option(name), metavar=name.upper(), help=_OF_A_RUN[name])
    text = "a local page that follows a training: a monitor's folder, or one of checkpoints such as the Trainer's"
    command = added("watch", _watch, text)
    command.add_argument("folder", metavar="FOLDER")
    command.add_argument("--port", type=int, default=8765, help="of the page, 0 for any that is free")
    command.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="between two looks")
    return parser


def _watch(given: argparse.Namespace) -> None:
    try:
        from toposcale.pages.watch import watch
    except ImportError as error:
        raise UserError(f"watch needs {error.name}: run it in the environment of the workflow (make watch)") from error
    if not 0 <= given.port <= 65535:
        raise UserError(f"--port {given.port}: a port is a number from 0, for any that is free, to 65535")
    watch(given.folder, port=given.port, every=given.every)


_PLOT = "also write a picture, .svg or .png"
_TEXTS = ("schedule", "loss_column", "step_column", "optimizer")
_OF_A_RUN = {
    "parameters": "number of parameters, such as 25e6",
    "tokens_per_step": "tokens that one step reads",
    "schedule": "constant, linear, cosine or wsd, or a file with the columns step and learning_rate",
    "warmup": "steps of warm-up",
    "decay_start": "wsd: the step at which the decay begins",
    "steps": "the last step of the run",
    "peak": "highest learning rate",
    "final": "minimum learning rate, 0 if left out; without --peak its ratio to the peak",
    "loss_column": "the column of the loss, if its name is not a usual one",
    "step_column": "the column of the step, if its name is not a usual one",
    "unique_tokens": "unique tokens of the training text, if it is repeated",
    "epochs": "epochs of the whole run over the training text",
    "optimizer": "such as adamw; under another or unknown one the forecast of a decay is less certain",
}


def _advise(given: argparse.Namespace) -> None:
    from toposcale.forecasting.decision.advise import advise

    options = {name: value for name in _OF_A_RUN if (value := getattr(given, name)) is not None}
    advice = advise(
        given.curve,
        **_arguments(options),
        sizes=given.size,
        known=[_known(text) for text in given.known],
        remaining=given.remaining,
        target_loss=given.target,
    )
    if given.plot:
        advice.plot(given.plot)
    if given.json:
        print(json.dumps(dict(advice), indent=1, allow_nan=False))
    else:
        # Lines are as long as the terminal, or COLUMNS; in a file or a pipe they are not broken.
        width = shutil.get_terminal_size(fallback=(0, 0)).columns or None
        print(printable(advice.text(width)))


def _curves(given: argparse.Namespace) -> None:
    from toposcale.forecasting.decision.compare_runs import compare_runs

    count = len(given.curves)
    if count < 2:
        raise UserError("curves: give two or more; advise forecasts one")
    runs: list[dict[str, Any]] = []
    for index, curve in enumerate(given.curves):
        options = {}
        for name in _OF_A_RUN:
            values = getattr(given, name) or [None]
            if len(values) not in (1, count):
                raise UserError(f"{_option(name)}: one value, or one for each of the {count} curves (- for none)")
            value = values[index % len(values)]
            if value not in (None, "-"):
                options[name] = value
        try:
            runs.append({"curve": curve, **_arguments(options)})
        except UserError as error:
            raise UserError(f"{curve}: {error}") from None
    comparison = compare_runs(*runs, seed_noise=given.seed_noise)
    if given.plot:
        comparison.plot(given.plot)
    print(json.dumps(dict(comparison), indent=1, allow_nan=False) if given.json else printable(comparison))


def _check(given: argparse.Namespace) -> None:
    from toposcale.forecasting.decision.curve_check import check_curve
    from toposcale.forecasting.runs.from_curve import Stated

    columns = {"loss_column": given.loss_column, "step_column": given.step_column}
    for line in check_curve(Stated(given.curve, given.curve, **columns)):
        print(printable(line))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_negative(text: str) -> bool:
    try:
        return number_of(text) < 0
    except ValueError:
        return False


def _amount(text: str) -> float:
    try:
        return number_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, for example 25e6 or 25M") from None


def _amount_or_none(text: str) -> float | None:
    return None if text == "-" else _amount(text)


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run as arguments of `toposcale.advise`; raise UserError for an option that does not apply."""
    names = {"parameters": "n_parameters", "warmup": "warmup_steps"}
    arguments = {names.get(name, name): value for name, value in options.items() if name not in _OF_A_SHAPE}
    of_shape = {name: options[name] for name in _OF_A_SHAPE if name in options}
    if options.get("schedule") in SHAPES:
        arguments["schedule"] = {"shape": options["schedule"], **of_shape}
    elif of_shape and ("schedule" not in options or os.path.exists(options["schedule"])):
        named = " and ".join(map(_option, of_shape))
        where = f"with the file {options['schedule']}" if "schedule" in options else "without --schedule"
        raise UserError(f"{named}: not used {where}; it belongs to --schedule {', '.join(SHAPES)}")
    return arguments


_OF_A_SHAPE = ("decay_start", "peak", "final")


def _known(text: str) -> dict[str, Any]:
    """Return another run from CURVE:PARAMETERS; the name of a file may contain colons."""
    curve, _, size = text.rpartition(":")
    try:
        if not curve:
            raise ValueError
        return {"curve": curve, "n_parameters": number_of(size)}
    except ValueError:
        raise UserError(
            f"--known {text}: it must be CURVE:PARAMETERS; a run with another schedule is given in Python "
            "(toposcale.advise) or under models in a configuration"
        ) from None


def _measure(given: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from toposcale.features import description

    if given.more:
        raise UserError(
            f"{given.command}: too many checkpoints ({listed(given.more, 3)}): describe takes one, compare two; "
            "the workflow measures a whole training (kind: folder under models)"
        )
    if given.plot:  # what is wrong with it is said before minutes of work
        from toposcale.figures.matrices import plot_matrices
        from toposcale.forecasting.pictures import kind_of

        kind_of(given.plot)
        if given.all:
            raise UserError("--plot: it draws the table of one row per matrix; leave --all out")
    long = {"describe": "features_of", "compare": "changes_of"}
    call = getattr(description, long[given.command] if given.all else given.command)
    groups = {"features": tuple(given.features)} if given.features else {}
    checkpoints = [getattr(given, name) for name in given.checkpoints]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        table = call(
            *checkpoints,
            layers=given.layers or "*",
            **groups,
            progress=lambda matrices, total: bar.track(matrices, total=total, description="Measuring"),
        )
    if given.plot:
        plot_matrices(table, given.plot)
    _show(table, given)


def _show(table: Any, given: argparse.Namespace) -> None:
    """Print a table of `describe` or `compare`, and its notes below it or, with CSV, on standard error."""
    notes = [one_line(note) for note in table.attrs["notes"]]
    if "shape" in table:
        table["shape"] = ["x".join(map(str, shape)) if shape else "" for shape in table["shape"]]
    if given.csv:
        if sys.stdout.isatty():
            table = table.rename(index=one_line).map(lambda value: one_line(value) if isinstance(value, str) else value)
        table.to_csv(sys.stdout, index=table.index.name is not None, lineterminator="\n")
        print(*(f"toposcale: {note}" for note in notes), sep="\n", end="\n" if notes else "", file=sys.stderr)
    elif given.all:
        _print_table(table, dict.fromkeys(table.columns[2:], "{:.6g}".format))
        print(*notes, sep="\n", end="\n" if notes else "")
    else:
        print("\n".join([*_print_summary(table, given.command == "compare"), *notes]))
    sys.stdout.flush()


_MOST_NAMED = 10
_BESIDE_THE_NAME = 68  # characters of the other columns


def _print_summary(table: Any, is_change: bool) -> list[str]:
    """Print the table of `describe` or `compare` with short names; return the lines below it: odd layers and the legend."""
    from toposcale.features.feature import SUMMARY
    from toposcale.features.names import feature_name
    from toposcale.features.registry import lookup
    from toposcale.forecasting.amounts import amount
    from toposcale.io.schemas import ALL_LAYERS

    shown, lines = table.reset_index(), [""]
    features = {name: short for name, short in SUMMARY.items() if name in table}
    legend = {
        name: f"{short:>5}  {feature_name(name)} ({name}, {lookup(name).unit})" for name, short in features.items()
    }
    if is_change:
        lines += [
            "relative change from the first checkpoint (- if only one has the layer), and the layer of the largest:"
        ]
        for name, change in table.drop(index=ALL_LAYERS)[list(features)].abs().items():
            if change.max() > 0:
                layer = change.idxmax()
                legend[name] += f": {one_line(layer)} {_change(table.at[layer, name])}"
    else:
        odd = table[table["odd"] != ""]
        lines += [f"* odd: {one_line(layer)}: {reason}" for layer, reason in odd["odd"].head(_MOST_NAMED).items()]
        lines += [f"* odd: {len(odd) - _MOST_NAMED} more, in the column odd of --csv"] if len(odd) > _MOST_NAMED else []
        shown["layer"] += [" *" if reason else "" for reason in shown.pop("odd")]
        shown["parameters"] = list(map(amount, shown["parameters"]))
    form = _change if is_change else "{:.4g}".format
    _print_table(shown.rename(columns=features | {"parameters": "params"}), dict.fromkeys(features.values(), form))
    return lines + list(legend.values())


def _change(relative: float) -> str:
    return "from 0" if math.isinf(relative) else f"{relative:+.1%}"


def _print_table(table: Any, formats: dict[str, Callable[[float], str]]) -> None:
    """Print a table, the columns in `formats` as right-aligned numbers; NaN is shown as -."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from toposcale.features.names import short_layer

    console = Console(width=None if sys.stdout.isatty() else 200)
    if "layer" in table and table["layer"].str.len().max() + _BESIDE_THE_NAME > console.width:
        # A narrow terminal gets shorter names, not broken ones.
        table["layer"] = list(map(short_layer, table["layer"]))
    shown = Table(box=None, pad_edge=False)
    for name in table.columns:
        folds = name == "layer"
        shown.add_column(
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
        shown.add_row(*map(Text, cells))
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())
