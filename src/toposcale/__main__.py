"""`python -m toposcale watch FOLDER`."""

import argparse
import sys

from toposcale.io.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser("python -m toposcale")
    commands = parser.add_subparsers(dest="command", required=True)
    add_watch(commands)
    given = parser.parse_args()
    try:
        watch(given)
    except UserError as error:
        print(f"toposcale: {error}", file=sys.stderr)
        return 1
    return 0


def add_watch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = (
        "follow a training on a local page: a monitor's folder, or one of checkpoints such as the Trainer's"
    )
    command = commands.add_parser("watch", help=text, description=text)
    command.add_argument("folder", metavar="FOLDER")
    command.add_argument("--port", type=int, default=8765, help="of the page, 0 for any that is free")
    command.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="between two looks at the folder"
    )


def watch(given: argparse.Namespace) -> None:
    try:
        from toposcale.pages.watch import watch as follow
    except ImportError as error:
        raise UserError(f"watch needs {error.name}: pip install 'toposcale[workflow]'") from error
    follow(given.folder, port=given.port, every=given.every)


if __name__ == "__main__":
    sys.exit(main())
