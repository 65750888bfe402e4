"""`toposcale test-metric`: whether a metric tells more than the loss."""

import argparse
import re
import sys
from contextlib import ExitStack

from toposcale.forecasting import results
from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.decision.run_options import curve_file
from toposcale.io.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = (
        "tables or logs with a step, a loss and other numbers; several are several runs; - is a table on standard input"
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help=text)
    text = "columns to test, separated by spaces or commas; by default all that are nothing else by their names"
    parser.add_argument("--metric", nargs="+", action="extend", metavar="NAME", default=[], help=text)
    parser.add_argument("--target", metavar="NAME", help="column of the loss, by default a validation loss")
    text = "columns that are held fixed, by default the step, learning_rate and weight_norm where they are there"
    parser.add_argument("--given", nargs="+", action="extend", metavar="NAME", help=text)
    parser.add_argument("--run", metavar="COLUMN", help="column that tells runs apart, by default run or model")
    text = "column of what runs share but for their seed, which tells effects of seeds and of settings apart"
    parser.add_argument("--settings", metavar="COLUMN", help=text)
    text = "steps of warm-up, 0 without one; by default from the learning rate"
    parser.add_argument("--warmup-steps", "--warmup", metavar="STEPS", help=text)
    text = "checkpoints that the metric looks ahead, 1 if left out"
    parser.add_argument("--ahead", type=int, default=1, metavar="K", help=text)
    results.add_form_options(parser, plot="write a picture of the first metric")


def run(options: argparse.Namespace) -> None:
    """Print the answers."""
    import toposcale

    try:
        warmup = None if options.warmup_steps is None else number_of(options.warmup_steps)
    except ValueError:
        raise UserError(f"--warmup-steps {options.warmup_steps}: not a number of steps") from None
    with ExitStack() as files:
        test = toposcale.test_metric(
            [files.enter_context(curve_file(file, is_table=True)) for file in options.files],
            _names(options.metric),
            target=options.target,
            given=None if options.given is None else _names(options.given),
            run=options.run,
            settings=options.settings,
            warmup_steps=warmup,
            ahead=options.ahead,
        )
    results.show(test, options)
    if options.csv or options.latex:
        print(*(f"toposcale: {note}" for note in test.notes), sep="\n", end="\n" if test.notes else "", file=sys.stderr)


def _names(texts: list[str]) -> list[str]:
    """Return the names of options that take several, separated by spaces or commas."""
    return [name for text in texts for name in re.split(r"\s*,\s*", text.strip()) if name]
