"""`toposcale check`: how the advice would read a file."""

import argparse

from toposcale import check_curve
from toposcale.forecasting.decision.run_options import OPTIONS, add_option
from toposcale.io.errors import printable

_COLUMNS = ("loss_column", "step_column", "pattern", "run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("curve", metavar="CURVE", help="losses as advise takes them")
    for name in _COLUMNS:
        add_option(parser, name, help=OPTIONS[name])


def run(options: argparse.Namespace) -> None:
    """Print how the file is read."""
    columns = {name: getattr(options, name) for name in _COLUMNS}
    for line in check_curve(options.curve, options.curve, **columns):
        print(printable(line))
