"""The environment that every job inherits, and the last line of a run that failed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from toposcale.io.errors import UserError, listed, message_of

NO_CAUSE_RECORDED = (
    "toposcale: interrupted, a job was killed (out of memory?), or Snakemake refused a file: the lines above say which; "
    "the same command goes on from here"
)


def cause(run: str, since: float) -> str:
    """Return the last line of a run that failed: what its first job to fail after a time says, and how many more did."""
    # scripts/_job.py writes them next to the logs.
    files = [path for path in Path(run, "logs").rglob("*.cause.txt") if path.stat().st_mtime >= since - 1]
    files.sort(key=lambda path: (path.stat().st_mtime, path))
    causes = [path.read_text(encoding="utf-8").strip() for path in files]
    # A full disk takes the file and not its text.
    first = next(filter(None, causes), f"toposcale: {run}: no room to write; make room and run again")
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return first + more if causes else NO_CAUSE_RECORDED


@contextmanager
def mistakes_in_a_line() -> Iterator[None]:
    """End the run with the message of a `UserError`, or of a file that cannot be read, without a traceback."""
    try:
        yield
    except UserError as error:
        sys.exit(f"toposcale: {error}")
    except OSError as error:
        sys.exit(f"toposcale: {message_of(error)[-300:]}")


def prepare(home: Path) -> None:
    """Set the environment of this process and all that it starts; `home` is the folder of the Snakefile."""
    # Scripts import the library from this copy, whatever else is installed: what runs is what is fingerprinted.
    path = os.pathsep.join(filter(None, [str(home / "src"), os.environ.get("PYTHONPATH")]))
    os.environ.update(PYTHONPATH=path, TOPOSCALE_REVISION=revision(home))
    # When the run began, which the processes of its jobs inherit.
    os.environ.setdefault("TOPOSCALE_STARTED", str(time.time()))


def refuse_space(python: str) -> None:
    """Raise `UserError` for a Python whose path has a space: Snakemake does not quote it when it runs a script."""
    if " " in python:
        raise UserError(
            f"{python}: Snakemake cannot run scripts with a Python whose path has a space; "
            "put the environment elsewhere: make run VENV=FOLDER"
        )


def refuse_read_only(folder: Path) -> None:
    """Raise `UserError` where nothing can be written in `folder`, or in what exists of the path to it."""
    nearest = next(path for path in (folder, *folder.parents, Path()) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(
            f"{nearest.resolve()}: a run writes there, but it is read-only; make it writable, or give another folder "
            "with --directory"
        )


AHEAD = 60
"""Seconds by which a file may be dated ahead: the clock of a file server may go before ours."""


def refuse_future(run: Path, inputs: Iterable[str]) -> None:
    """Raise `UserError` where files of a run or its inputs are dated in the future, and look newer than they are."""
    latest, files = time.time() + AHEAD, [*run.rglob("*"), *map(Path, inputs)]
    ahead = sorted(str(file) for file in files if file.is_file() and file.stat().st_mtime > latest)
    if ahead:
        raise UserError(
            f"{listed(ahead, 1)}: dated in the future, so that Snakemake takes for up to date what is not; date them now, "
            "with touch, and run again"
        )


def revision(home: Path) -> str:
    """Return the git revision of the workflow, with -dirty behind it if files were changed.

    Where git gives none, that of the process that started this one, or "unknown".
    """
    # The folder of the clone: an installed toposcale may lie in that of another project.
    command = ["git", "-C", str(home), "--git-dir=.git", "describe", "--always", "--dirty"]
    command += ["--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        # The node of a cluster may have no git, and a table must not depend on where it was made.
        return os.environ.get("TOPOSCALE_REVISION", "unknown")
