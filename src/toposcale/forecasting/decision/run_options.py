"""The options that state the facts of a training run, by the names of the arguments of `toposcale.advise`."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toposcale.forecasting.runs.facts import FACTS, SHAPE_FIELDS, option
from toposcale.forecasting.runs.schedules import SHAPES
from toposcale.io.errors import UserError

OPTIONS = FACTS | SHAPE_FIELDS
"""The options of a run."""

_ALIASES = {"sizes": "--size", "target_loss": "--target"}
STANDARD_INPUT = "-"
NAMES_IN_OTHER_TOOLS = {name: option(fact) for fact, stated in OPTIONS.items() for name in stated.elsewhere}
"""Options by their names in other tools."""


@contextmanager
def curve_file(curve: str, *, is_table: bool = False) -> Iterator[str]:
    """Yield the path of a curve: of `-` that of a file with the standard input, which is removed at the end.

    A table has the suffix of JSON or CSV, by its first character.
    """
    if curve != STANDARD_INPUT:
        yield curve
        return
    with TemporaryDirectory() as folder:
        content = sys.stdin.buffer.read()
        suffix = {b"[": ".json", b"{": ".jsonl"}.get(content[:1], ".csv") if is_table else ""
        file = Path(folder, f"standard input{suffix}")
        file.write_bytes(content)
        try:
            yield str(file)
        except UserError as error:
            raise UserError(str(error).replace(str(file), "standard input")) from error


def add_option(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add the option of an argument, with its alias."""
    alias = OPTIONS[name].alias if name in OPTIONS else _ALIASES.get(name, "")
    names = [option(name), *([alias] if alias else [])]
    parser.add_argument(*names, **{"metavar": name.upper()} | settings)


def add_run_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add every option of a run, which takes a value for each of `several` runs."""
    settings, if_several = {}, ""
    if several:
        settings, if_several = {"nargs": "+"}, "; if the runs differ a value each, - for none"
    for name, fact in OPTIONS.items():
        add_option(parser, name, help=fact.help + if_several, **settings)


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run as arguments of `toposcale.advise`; raise UserError for one that does not apply."""
    facts = {name: value for name, value in options.items() if name not in SHAPE_FIELDS}
    shape_options = {name: options[name] for name in SHAPE_FIELDS if name in options}
    if options.get("schedule") in SHAPES:
        facts["schedule"] = {"shape": options["schedule"], **shape_options}
    elif shape_options and ("schedule" not in options or os.path.exists(options["schedule"])):
        named = " and ".join(map(option, shape_options))
        where = f"with the file {options['schedule']}" if "schedule" in options else "without --schedule"
        raise UserError(f"{named}: not used {where}; it belongs to --schedule {', '.join(SHAPES)}")
    return facts
