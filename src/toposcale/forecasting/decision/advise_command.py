"""`toposcale advise`: continue a training run, or train another size."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from toposcale import advise
from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.decision import run_options
from toposcale.forecasting.runs.facts import option
from toposcale.io.errors import UserError, printable

RUN_FILE = "progress.json"
"""The file of a run of the workflow that says what is known of each model and which files show its progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "losses as a tracker, a training loop or a Trainer wrote them, - for the standard input; without it the run "
    text += "has not started; or the folder of a run of the workflow, for advice on each of its trainings"
    parser.add_argument("curve", metavar="CURVE", nargs="?", help=text)
    run_options.add_run_options(parser)
    text = "parameters of a model that could be trained; may be given again"
    run_options.add_option(parser, "sizes", action="append", default=[], metavar="PARAMETERS", help=text)
    text = "another run of the family, all else as in this run but for what its log states; may be given again"
    run_options.add_option(parser, "known", action="append", default=[], metavar="CURVE:PARAMETERS", help=text)
    run_options.add_option(parser, "remaining", metavar="FLOP", help="compute that will still be spent")
    text = "a loss; the advice says when it is reached"
    run_options.add_option(parser, "target_loss", metavar="LOSS", help=text)
    run_options.add_output_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print the advice."""
    # Lines are as long as the terminal, or COLUMNS; in a file or a pipe they are not broken.
    width = shutil.get_terminal_size(fallback=(0, 0)).columns or None
    if options.curve and Path(options.curve, RUN_FILE).exists():
        _advise_run(options, width)
        return
    run_values = {name: value for name in run_options.OPTIONS if (value := getattr(options, name)) is not None}
    with run_options.curve_file(options.curve or "") as curve:
        advice = advise(
            curve or None,
            **run_options.arguments(run_values),
            sizes=options.sizes,
            known=[_known_arguments(text) for text in options.known],
            remaining=options.remaining,
            target_loss=options.target_loss,
        )
    run_options.show(options, advice, advice.text(width))


def _advise_run(options: argparse.Namespace, width: int | None) -> None:
    from toposcale import advise_run  # it reads tables, which needs more than a curve does

    not_used = (*run_options.OPTIONS, "sizes", "known", "remaining", "target_loss", "plot", "csv", "latex")
    if stated := [option(name) for name in not_used if getattr(options, name)]:
        raise UserError(f"{' and '.join(stated)}: not used with the folder of a run; its configuration says it")
    advice = advise_run(options.curve)
    print(json.dumps(advice.as_json(), indent=1, allow_nan=False) if options.json else printable(advice.text(width)))


def _known_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a known run from CURVE:PARAMETERS; the name of a file may contain colons."""
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
