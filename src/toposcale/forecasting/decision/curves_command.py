"""`toposcale curves`: which of several training runs is better."""

import argparse
from contextlib import ExitStack
from string import ascii_uppercase
from typing import Any

from toposcale import compare_runs
from toposcale.forecasting.decision import run_options
from toposcale.forecasting.runs.facts import option
from toposcale.io.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "losses of A, B, ..., as for advise; each is compared with A"
    parser.add_argument("curves", nargs="+", metavar="CURVE", help=text)
    run_options.add_run_options(parser, several=True)
    text = "standard deviation of the loss between seeds, nats; by default estimated from published replicates"
    run_options.add_option(parser, "seed_noise", metavar="NATS", help=text)
    run_options.add_output_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print the comparison."""
    count = len(options.curves)
    if count < 2:
        raise UserError("curves: give two or more; advise forecasts one")
    if count > len(ascii_uppercase):
        raise UserError(f"curves: give at most {len(ascii_uppercase)}, one for each letter; here are {count}")
    stated = {name: values for name in run_options.OPTIONS if (values := getattr(options, name))}
    if wrong := [name for name, values in stated.items() if len(values) not in (1, count)]:
        raise UserError(f"{option(wrong[0])}: one value, or one for each of the {count} curves (- for none)")
    runs: list[dict[str, Any]] = []
    for index, curve in enumerate(options.curves):
        values = {name: of_runs[index % len(of_runs)] for name, of_runs in stated.items()}
        run_values = {name: value for name, value in values.items() if value != "-"}
        try:
            runs.append({"curve": curve, **run_options.arguments(run_values)})
        except UserError as error:
            raise UserError(f"{curve}: {error}") from None
    with ExitStack() as files:
        for run_arguments in runs:
            run_arguments["curve"] = files.enter_context(run_options.curve_file(run_arguments["curve"]))
        comparison = compare_runs(*runs, seed_noise=options.seed_noise)
    run_options.show(options, comparison, str(comparison))
