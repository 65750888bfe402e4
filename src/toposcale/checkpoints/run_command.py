"""`toposcale run`: the workflow on a configuration, by Snakemake."""

import argparse
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from toposcale.io.errors import UserError, needs_extra

PACKAGE = Path(__file__).resolve().parents[1]
HOME = PACKAGE / "_workflow" if (PACKAGE / "_workflow").is_dir() else PACKAGE.parents[1]
"""The folder of the workflow: the one that the wheel carries, or that of the project."""

_HOW_MANY = ("-c", "--cores", "-j", "--jobs", "--profile", "-e", "--executor")
_NO_RUN = ("-n", "--dry", "--unlock", "--lint", "-l", "--list", "--summary", "--detailed", "--dag", "--rulegraph", "-h")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "such as mine.yaml, which `toposcale init` writes; what it makes goes to results/ in this folder"
    parser.add_argument("configuration", metavar="CONFIG", help=text)
    text = "options and targets of Snakemake, such as --cores 4, --dry-run, --profile slurm; all cores if none is named"
    parser.add_argument("options", metavar="...", nargs=argparse.REMAINDER, help=text)


def run(given: argparse.Namespace) -> None:
    """Run Snakemake, say where the results are, and exit with its status."""
    with needs_extra("workflow", "run"):
        import_module("snakemake")
    reader = [sys.executable, str(HOME / "workflow/config_reading.py")]
    # Snakemake runs code that it finds in a configuration, so the file is read here first.
    if subprocess.run([*reader, "check", given.configuration], check=False).returncode:
        sys.exit(1)
    status = _call(command(given.configuration, given.options))
    if status and os.path.isdir(".snakemake/locks") and os.listdir(".snakemake/locks"):
        # What is locked after a failure was locked by another run.
        unlock = "make unlock" if Path.cwd() == HOME else f"toposcale run {given.configuration} --unlock"
        raise UserError(f"another run is at work in this folder, or was killed; if it was killed: {unlock}")
    if not status and "--" not in given.options and not any(word.startswith(_NO_RUN) for word in given.options):
        # A run of a part has none; Snakemake has said what it did.
        outputs = subprocess.run([*reader, "outputs", given.configuration], capture_output=True, text=True, check=False)
        print(outputs.stdout, end="")
    sys.exit(status)


def command(configuration: str, options: list[str]) -> list[str]:
    """Return the call of Snakemake; what the user gives comes last, so that it goes before what is given here."""
    ours = ["--configfile", configuration, "--snakefile", str(HOME / "Snakefile")]
    ours += ["--workflow-profile", str(HOME / "profiles/default")]
    if not any(word.startswith(_HOW_MANY) for word in options):
        ours += ["--cores", "all"]
    words = [
        str(HOME / "profiles" / word) if before == "--profile" and _is_ours(word) else word
        for before, word in zip(["", *options], options, strict=False)
    ]
    return [sys.executable, "-m", "snakemake", *ours, *words]


def _is_ours(profile: str) -> bool:
    """Return whether a profile comes with the workflow, and the user has none of this name."""
    folders = Path(), Path.home() / ".config/snakemake"
    return (HOME / "profiles" / profile).is_dir() and not any((folder / profile).exists() for folder in folders)


def _call(words: list[str]) -> int:
    """Run a command to its end, also when it is interrupted, and return its status."""
    with subprocess.Popen(words) as process:
        # Of Ctrl-C Snakemake hears itself, and it needs time to end its jobs.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return process.returncode
