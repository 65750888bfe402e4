"""`python -m toposcale`: the features of a checkpoint, what changed between two, and a page that follows a training."""

import argparse
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from toposcale import __version__
from toposcale.io.amounts import number_of
from toposcale.io.errors import UserError, one_line
from toposcale.training.schedules import SHAPES

_EXAMPLES = """commands:
  python -m toposcale describe model.safetensors
  python -m toposcale describe checkpoint-500 --layers '*attn*' --csv > features.csv
  python -m toposcale compare checkpoint-100 checkpoint-500
  python -m toposcale advise losses.csv --parameters 25e6 --tokens-per-step 5e5 --schedule cosine --warmup 500 --steps 24000
  python -m toposcale watch my-run

A checkpoint is a safetensors or .bin file, or a folder in the layout of Hugging Face. From Python:
  toposcale.describe(checkpoint), toposcale.compare(one, other); help(toposcale.describe) tells the rest.
Measure a training while it goes on: toposcale.monitor. A whole study, with report and forecasts: the Snakemake workflow.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit status is 1 for what is wrong with a checkpoint, 2 for a wrong command."""
    options = _parser().parse_args(arguments)
    warnings.showwarning = lambda message, *_: print(f"toposcale: {one_line(message)}", file=sys.stderr)
    try:
        if options.command == "watch":
            _watch(options)
        elif options.command == "advise":
            _advise(options)
        else:
            _show(_table(options), csv=options.csv)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m toposcale",
        description="Topology, norms and spectra of the weights of language models.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"toposcale {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, checkpoints, text in (
        ("describe", ["checkpoint"], "features of every weight matrix: layer, feature, value"),
        ("compare", ["before", "after"], "changes of every feature, and how far the persistence diagrams moved"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        for checkpoint in checkpoints:
            command.add_argument(checkpoint, metavar=checkpoint.upper(), help="a file of weights, or a folder")
        command.add_argument("--csv", action="store_true", help="comma-separated values, every digit of them")
        command.add_argument(
            "--layers", action="append", metavar="GLOB", help="only matrices of such a name; may be given again"
        )
        command.add_argument(
            "--model", default="model", help="name of the model in a run, to get the very numbers of that run"
        )
        command.set_defaults(checkpoints=checkpoints)
    text = "finish this training run, or start a larger one: from its loss curve"
    command = commands.add_parser("advise", help=text, description=text)
    command.add_argument("curve", metavar="CURVE", help="losses as a tracker, a training loop or a Trainer wrote them")
    for name, meaning in _OF_A_RUN.items():
        kind = str if name in _TEXTS else _amount
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=name.upper(), help=meaning)
    several: dict[str, Any] = {"action": "append", "default": []}
    command.add_argument(
        "--size", type=_amount, metavar="PARAMETERS", help="a size that could be started; may be given again", **several
    )
    command.add_argument(
        "--known",
        metavar="CURVE:PARAMETERS[:KEY=VALUE...]",
        help="another run of the family; what no KEY (an option above) says of it is as in this run; may be given again",
        **several,
    )
    command.add_argument("--remaining", type=_amount, metavar="FLOP", help="compute that will still be spent")
    command.add_argument("--target", type=float, metavar="LOSS", help="a loss; told when it is reached")
    command.add_argument("--json", action="store_true", help="the object that advice.json has for a model")
    text = "a local page that follows a training: a monitor's folder, or one of checkpoints such as the Trainer's"
    command = commands.add_parser("watch", help=text, description=text)
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


_TEXTS = ("schedule", "loss_column", "step_column")
_OF_A_RUN = {
    "parameters": "number of parameters, such as 25e6",
    "tokens_per_step": "tokens that one step reads",
    "schedule": "constant, linear, cosine or wsd, or a file with the columns step and learning_rate",
    "warmup": "steps of warm-up",
    "decay_start": "wsd: the step at which the rate begins to fall",
    "steps": "the last step of the plan",
    "peak": "highest learning rate",
    "final": "learning rate at the end, 0 if left out; without --peak a share of it",
    "loss_column": "the column of the loss, where no usual name tells it",
    "step_column": "the column of the step, where no usual name tells it",
}


def _advise(given: argparse.Namespace) -> None:
    import json

    from toposcale.decision.curve import advise

    options = {name: value for name in _OF_A_RUN if (value := getattr(given, name)) is not None}
    advice = advise(
        given.curve,
        **_arguments(options),
        sizes=given.size,
        known=[_known(text, options) for text in given.known],
        remaining=given.remaining,
        target_loss=given.target,
    )
    if given.json:
        print(json.dumps(dict(advice), indent=1, allow_nan=False))
    else:
        # Lines are as long as the terminal, or COLUMNS; in a file or a pipe they are not broken.
        width = shutil.get_terminal_size(fallback=(0, 0)).columns or None
        print("\n".join(filter(None, [advice.chart(min(64, max((width or 80) - 12, 20))), advice.text(width)])))


def _amount(text: str) -> float:
    try:
        return number_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; write for example 25e6 or 25M") from None


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a run as `toposcale.advise` takes them. UserError: an option that means nothing there."""
    names = {"parameters": "n_parameters", "warmup": "warmup_steps"}
    arguments = {names.get(name, name): value for name, value in options.items() if name not in _OF_A_SHAPE}
    of_shape = {name: options[name] for name in _OF_A_SHAPE if name in options}
    if options.get("schedule") in SHAPES:
        arguments["schedule"] = {"shape": options["schedule"], **of_shape}
    elif of_shape and ("schedule" not in options or os.path.exists(options["schedule"])):
        named = " and ".join(f"--{name.replace('_', '-')}" for name in of_shape)
        where = f"beside the file {options['schedule']}" if "schedule" in options else "without --schedule"
        raise UserError(f"{named}: means nothing {where}; it belongs to --schedule {', '.join(SHAPES)}")
    return arguments


_OF_A_SHAPE = ("decay_start", "peak", "final")
# Those that a shape does not read.
_IDLE = {"constant": ("decay_start", "final"), "linear": ("decay_start",), "cosine": ("decay_start",)}


def _known(text: str, options: dict[str, Any]) -> dict[str, Any]:
    """Another run from CURVE:PARAMETERS[:KEY=VALUE...]; `options` are those of the run that is asked about.

    It is read from its end, for the name of a file may hold colons.
    """
    parts = text.split(":")
    pairs = []
    while len(parts) > 2 and "=" in parts[-1]:
        pairs.append(parts.pop().partition("="))
    try:
        stated = {
            name: value if name in _TEXTS else _amount(value)
            for key, _, value in reversed(pairs)
            for name in [key.replace("-", "_")]
        }
        if len(parts) < 2 or set(stated) - set(_OF_A_RUN):
            raise ValueError
        stated["parameters"] = _amount(parts[-1])
    except (ValueError, argparse.ArgumentTypeError):
        raise UserError(
            f"--known {text}: it must be CURVE:PARAMETERS, then any of {', '.join(_OF_A_RUN)} as :KEY=VALUE"
        ) from None
    # A part of a schedule is read beside the parts of this run's.
    if stated.keys() & set(_OF_A_SHAPE) and options.get("schedule") in SHAPES:
        stated = {name: options[name] for name in ("schedule", *_OF_A_SHAPE) if name in options} | stated
    elif stated.get("schedule") in SHAPES and options.get("schedule") in SHAPES:
        idle = _IDLE.get(str(stated["schedule"]), ())
        stated = {name: options[name] for name in _OF_A_SHAPE if name in options and name not in idle} | stated
    return {"curve": ":".join(parts[:-1]), **_arguments(stated)}


def _table(given: argparse.Namespace) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    from toposcale.features import description

    call = getattr(description, given.command)
    checkpoints = [getattr(given, name) for name in given.checkpoints]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        return call(
            *checkpoints,
            layers=given.layers or "*",
            model=given.model,
            progress=lambda matrices, total: bar.track(matrices, total=total, description="Measuring"),
        )


def _show(table: Any, *, csv: bool) -> None:
    if csv:
        table.to_csv(sys.stdout, index=False, lineterminator="\n")
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=None, pad_edge=False)
        shown.add_column("layer", overflow="fold")
        shown.add_column("feature", no_wrap=True)
        for name in table.columns[2:]:
            shown.add_column(name, justify="right", no_wrap=True)
        last = ""
        for layer, feature, *values in table.itertuples(index=False):
            # A layer is named where it begins; a distance stands under change alone.
            is_distance = len(values) == 3 and all(np.isnan(values[:2])) and not np.isnan(values[2])
            numbers = [f"{value:.6g}" for value in values]
            numbers = ["", "", numbers[2]] if is_distance else numbers
            shown.add_row(*map(Text, ["" if layer == last else one_line(layer), feature, *numbers]))
            last = layer
        Console(width=None if sys.stdout.isatty() else 200).print(shown)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
