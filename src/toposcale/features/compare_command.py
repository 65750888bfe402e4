"""`toposcale compare`: what changed between two checkpoints."""

import argparse

from toposcale.features import description
from toposcale.features.describe_command import add_options, measure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_options(parser, "before", "after")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    call = description.changes_of if options.all else description.compare
    measure(options, call, options.before, options.after, count=2)
