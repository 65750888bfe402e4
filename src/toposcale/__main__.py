"""The command line: which subcommands there are. Each is a module next to what it calls, imported when it is asked for."""

import argparse
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from toposcale import __version__
from toposcale.forecasting.amounts import number_of
from toposcale.io.errors import UserError, message_of, needs_extra, one_line

_EXAMPLES = """commands:
  toposcale describe model.safetensors
  toposcale describe checkpoint-500 --layers '*attn*' --all --csv > features.csv
  toposcale compare checkpoint-100 checkpoint-500
  toposcale init my-run
  toposcale run mine.yaml --cores 4
  toposcale advise losses.csv --n-parameters 25e6 --tokens-per-step 5e5 --schedule cosine --steps 24000
  toposcale curves a.csv b.csv --n-parameters 25e6 --tokens-per-step 5e5
  toposcale check losses.csv
  toposcale test-metric log.csv --metric my_metric --given step,learning_rate
  toposcale benchmark --law my_module:MyLaw
  toposcale watch my-run

A checkpoint is a safetensors file, one of PyTorch (.bin, .pt, .ckpt; pip install 'toposcale[monitor]' reads them), or a
folder in the layout of Hugging Face. From Python:
  toposcale.describe(checkpoint), toposcale.compare(one, other); help(toposcale.describe) explains them.
Measure a training while it goes on: toposcale.monitor. A whole study, with report and forecasts: the Snakemake workflow.
Completion of a shell: toposcale --print-completion bash (or zsh, tcsh), in a file that the shell reads.
"""


_COMMANDS = {
    "describe": (
        "features.describe_command",
        "the weight matrices of a model, one row each, and which of them are odd",
    ),
    "compare": ("features.compare_command", "what changed between two checkpoints, one row per matrix"),
    "init": ("checkpoints.init_command", "write a configuration of the workflow for the checkpoints in a folder"),
    "run": (
        "checkpoints.run_command",
        "run the workflow of a configuration, by Snakemake: its tables, figures and report",
    ),
    "advise": (
        "forecasting.decision.advise",
        "continue this training run, or train a larger model: from its loss curve",
    ),
    "curves": ("forecasting.decision.compare_runs", "which of several training runs is better, from their loss curves"),
    "check": (
        "forecasting.decision.check_command",
        "how advise would read a file: columns, rows, units, and what is left out",
    ),
    "test-metric": (
        "analysis.metric_command",
        "whether a metric tells more than the loss: within runs, ahead, and between runs",
    ),
    "benchmark": ("datasets.benchmark_command", "how well laws forecast published runs, ours and yours"),
    "watch": (
        "pages.watch_command",
        "a local page that follows a training: a monitor's folder, or one of checkpoints such as the Trainer's",
    ),
}
"""Module and meaning of each subcommand. A module has `add_arguments(parser)` and `run(given)`."""

_COMPLETION = "--print-completion"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 1 for an error in the input, 2 for a wrong command."""
    words = sys.argv[1:] if arguments is None else arguments
    options = argparse.Namespace()
    warnings.showwarning = lambda message, *_: print(f"toposcale: {one_line(message)}", file=sys.stderr)
    try:
        parser = _parser(words)
        if not words:
            parser.print_help()
            return 0
        if "" in words:  # a folder "" would be the current one
            parser.error("one of the arguments is empty, such as a variable of the shell that is not set")
        # argparse takes -25e6 for an option, but nothing that begins with a space.
        options = parser.parse_args([f" {text}" if _is_negative(text) else text for text in words])
        if getattr(options, "quiet", False):
            warnings.simplefilter("ignore")
        if getattr(options, "plot", None):  # what is wrong with it is said before minutes of work
            import_module("toposcale.forecasting.pictures").kind_of(options.plot)
        if getattr(options, "latex", False):
            with needs_extra("watch", "--latex"):
                import_module("jinja2")
        options.function(options)
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # of `... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if getattr(options, "verbose", False):
            traceback.print_exception(error)
        print(f"toposcale: {one_line(message_of(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("toposcale: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Parser that names the command or option that was probably meant."""

    options: Sequence[str] = ()
    """Options of the subcommand."""

    completion: Any = None
    """Completion of the name of a file by a shell; None unless its script is printed."""

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument; one that is not an option, or takes a FILE, is completed with the names of files."""
        action = super().add_argument(*names, **settings)
        if self.completion and (not names[0].startswith("-") or settings.get("metavar") == "FILE"):
            action.complete = self.completion  # type: ignore[attr-defined]
        return action

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line."""
        choice = re.match(r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice and (near := get_close_matches(choice[1], _COMMANDS, 1)):
            message += f"; did you mean {near[0]}?"
        before, _, unknown = message.partition("unrecognized arguments: ")
        if not before and unknown:
            from toposcale.forecasting.decision.run_options import NAMES_IN_OTHER_TOOLS

            meant = NAMES_IN_OTHER_TOOLS | dict(zip(self.options, self.options, strict=True))
            option = next((word.partition("=")[0] for word in unknown.split() if word.startswith("-")), "")
            if near := get_close_matches(option, [name for name in meant if meant[name] in self.options], 1):
                message += f"; did you mean {meant[near[0]]}?"
            elif not option and "--sizes" in self.options:
                message += "; an option takes one value, so give it again for each: --sizes 50e6 --sizes 100e6"
        super().error(message)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        "toposcale",
        description="Topology, norms and spectra of the weights of language models; forecasts and advice from loss curves.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"toposcale {__version__}")
    completion = None
    if any(text.startswith(_COMPLETION) for text in given):
        with needs_extra("completion", _COMPLETION):
            import shtab
        shtab.add_argument_to(parser, _COMPLETION)
        completion = shtab.FILE
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked_for = next((text for text in given if not text.startswith("-")), "")
    for name, (module, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.completion = completion
        if completion or name == asked_for:
            imported = import_module(f"toposcale.{module}")
            imported.add_arguments(command)
            if name != "run":  # whose options are those of Snakemake
                command.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no warnings")
                command.add_argument("-v", "--verbose", action="store_true", help="the traceback of an error")
            command.set_defaults(function=imported.run)
            parser.options = re.findall(r"--[a-z-]+", command.format_usage())
    return parser


def _is_negative(text: str) -> bool:
    try:
        return number_of(text) < 0
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
