"""`toposcale watch`: a local page that follows a training."""

import argparse
from pathlib import Path

from toposcale.io.errors import UserError, needs_extra

_LONGEST_WAIT = 86_400  # seconds, a day


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--wait", action="store_true", help="for a folder that is not there yet")
    parser.add_argument("--port", type=int, default=8765, help="of the page, 0 for any that is free")
    parser.add_argument(
        "--notify", metavar="COMMAND", help="run it once for each alert, with a line of JSON on its standard input"
    )
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="between two looks")


def run(options: argparse.Namespace) -> None:
    """Serve the page until it is interrupted."""
    with needs_extra("watch", "watch"):
        from toposcale.pages.watch import watch
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port {options.port}: a port is a number from 0, for any that is free, to 65535")
    if not 0 < options.every <= _LONGEST_WAIT:
        raise UserError(f"--every {options.every:g}: it must be more than 0 and at most {_LONGEST_WAIT:,} seconds")
    if not options.wait and not Path(options.folder).exists():
        raise UserError(f"{options.folder}: no such folder; if the training makes it later, add --wait")
    watch(options.folder, port=options.port, every=options.every, notify=options.notify)
