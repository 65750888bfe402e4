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
    text = "continue this training run, or train a larger model: from its loss curve"
    command = commands.add_parser("advise", help=text, description=text)
    command.add_argument("curve", metavar="CURVE", help="losses as a tracker, a training loop or a Trainer wrote them")
    for name, meaning in _OF_A_RUN.items():
        kind = str if name in _TEXTS else _amount
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=name.upper(), help=meaning)
    several: dict[str, Any] = {"action": "append", "default": []}
    command.add_argument(
        "--size",
        type=_amount,
        metavar="PARAMETERS",
        help="parameters of a model that could be trained; may be given again",
        **several,
    )
    command.add_argument(
        "--known",
        metavar="CURVE:PARAMETERS",
        help="another run of the family, all else as in this run but for what its log tells; may be given again",
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
    "loss_column": "the column of the loss, where no usual name tells it",
    "step_column": "the column of the step, where no usual name tells it",
    "unique_tokens": "tokens of the text, where the run reads it more than once",
    "epochs": "how often the whole run reads the text",
    "optimizer": "such as adamw; a decay under another, or an unknown one, is less well known",
}


def _advise(given: argparse.Namespace) -> None:
    import json

    from toposcale.decision.advise import advise

    options = {name: value for name in _OF_A_RUN if (value := getattr(given, name)) is not None}
    advice = advise(
        given.curve,
        **_arguments(options),
        sizes=given.size,
        known=[_known(text) for text in given.known],
        remaining=given.remaining,
        target_loss=given.target,
    )
    if given.json:
        print(json.dumps(dict(advice), indent=1, allow_nan=False))
    else:
        # Lines are as long as the terminal, or COLUMNS; in a file or a pipe they are not broken.
        width = shutil.get_terminal_size(fallback=(0, 0)).columns or None
        print(advice.text(width))


def _amount(text: str) -> float:
    try:
        return number_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, for example 25e6 or 25M") from None


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
        raise UserError(f"{named}: not used {where}; it belongs to --schedule {', '.join(SHAPES)}")
    return arguments


_OF_A_SHAPE = ("decay_start", "peak", "final")


def _known(text: str) -> dict[str, Any]:
    """Another run from CURVE:PARAMETERS; the name of a file may hold colons."""
    curve, _, size = text.rpartition(":")
    try:
        if not curve:
            raise ValueError
        return {"curve": curve, "n_parameters": number_of(size)}
    except ValueError:
        raise UserError(
            f"--known {text}: it must be CURVE:PARAMETERS; a run whose plan differs is given in Python "
            "(toposcale.advise) or under models in a configuration"
        ) from None


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
