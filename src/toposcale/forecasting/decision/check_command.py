"""`toposcale check`: how the advice would read a file."""

import argparse
from typing import Any

from toposcale import check_curve
from toposcale.forecasting.decision.run_options import add_option, curve_file
from toposcale.forecasting.runs.facts import FACTS, FactKind
from toposcale.io.errors import printable

_OF_LOG = [name for name, fact in FACTS.items() if fact.kind is FactKind.LOG]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("curve", metavar="CURVE", help="losses as advise takes them")
    for name in _OF_LOG:
        add_option(parser, name, help=FACTS[name].help)


def run(options: argparse.Namespace) -> None:
    """Print how the file is read."""
    facts: Any = {name: getattr(options, name) for name in _OF_LOG}
    with curve_file(options.curve) as curve:
        for line in check_curve(curve, "standard input" if curve != options.curve else curve, **facts):
            print(printable(line))
