"""The options that state the facts of a training run, by the names of the arguments of `toposcale.advise`."""

import argparse
import json
import os
from typing import Any

from toposcale.forecasting.pictures import Drawn
from toposcale.forecasting.runs.schedules import SHAPES
from toposcale.io.errors import UserError, printable

OPTIONS = {
    "n_parameters": "number of parameters, such as 25e6",
    "tokens_per_step": "tokens that one step reads",
    "schedule": "constant, linear, cosine or wsd, or a file with the columns step and learning_rate",
    "warmup_steps": "steps of warm-up",
    "decay_start": "wsd: the step at which the decay begins",
    "steps": "the last step of the run",
    "peak": "highest learning rate",
    "final": "minimum learning rate, 0 if left out; without --peak its ratio to the peak",
    "loss_column": "the column of the loss, if its name is not a usual one",
    "step_column": "the column of the step, if its name is not a usual one",
    "pattern": "a regular expression of the lines of a text log, with groups such as (?P<step>\\d+) and (?P<loss>[\\d.]+)",
    "run": "which run of the file to read, from 1, where it holds several",
    "unique_tokens": "unique tokens of the training text, if it is repeated",
    "epochs": "epochs of the whole run over the training text",
    "optimizer": "such as adamw; under another or unknown one the forecast of a decay is less certain",
    "objective": "next-token if left out; there is no forecast for another one, such as masked",
}
"""Help texts of the options."""

_SHAPE_OPTIONS = ("decay_start", "peak", "final")
_ALIASES = {"n_parameters": "--parameters", "warmup_steps": "--warmup", "sizes": "--size", "target_loss": "--target"}
NAMES_IN_OTHER_TOOLS = {
    **dict.fromkeys(("--lr", "--learning-rate", "--max-lr"), "--peak"),
    **dict.fromkeys(("--min-lr", "--end-lr"), "--final"),
    **dict.fromkeys(("--params", "--model-size"), "--n-parameters"),
    **dict.fromkeys(("--batch-size", "--batch-tokens"), "--tokens-per-step"),
    **dict.fromkeys(("--max-steps", "--total-steps"), "--steps"),
    **dict.fromkeys(("--lr-schedule", "--scheduler"), "--schedule"),
}
"""Options by their names in other tools."""


def add_option(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add the option of an argument, with its alias."""
    names = [option(name), *([_ALIASES[name]] if name in _ALIASES else [])]
    parser.add_argument(*names, **{"metavar": name.upper()} | settings)


def add_run_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add every option of a run, which takes a value for each of `several` runs."""
    settings, if_several = {}, ""
    if several:
        settings, if_several = {"nargs": "+"}, "; if the runs differ a value each, - for none"
    for name, meaning in OPTIONS.items():
        add_option(parser, name, help=meaning + if_several, **settings)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how an answer is shown."""
    parser.add_argument("--plot", metavar="FILE", help="also write a picture, .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="print JSON")


def show(options: argparse.Namespace, answer: Drawn, text: str) -> None:
    """Print an answer as its text or as JSON, and draw it if a file is named."""
    if options.plot:
        answer.plot(options.plot)
    print(json.dumps(dict(answer), indent=1, allow_nan=False) if options.json else printable(text))


def option(name: str) -> str:
    """Return the option of an argument."""
    return f"--{name.replace('_', '-')}"


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run as arguments of `toposcale.advise`; raise UserError for one that does not apply."""
    facts = {name: value for name, value in options.items() if name not in _SHAPE_OPTIONS}
    shape_options = {name: options[name] for name in _SHAPE_OPTIONS if name in options}
    if options.get("schedule") in SHAPES:
        facts["schedule"] = {"shape": options["schedule"], **shape_options}
    elif shape_options and ("schedule" not in options or os.path.exists(options["schedule"])):
        named = " and ".join(map(option, shape_options))
        where = f"with the file {options['schedule']}" if "schedule" in options else "without --schedule"
        raise UserError(f"{named}: not used {where}; it belongs to --schedule {', '.join(SHAPES)}")
    return facts
