"""The environment that every job inherits: which copy of the library runs, on how many threads, at which revision."""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake import script

import forkserver
from toposcale.errors import UserError


def prepare(home: Path) -> None:
    """Set it for this process and all that it starts; `home` is the folder of the Snakefile."""
    # Scripts import the library from this copy, whatever is installed beside it: what runs is what is fingerprinted.
    given = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(home / "src"), *([given] if given else [])])
    # One thread a job, or a sum would depend on the number of cores.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ.update(threads, PYTHONPATH=path, TOPOSCALE_REVISION=revision(home))


def plan_fast() -> None:
    """Spare the planning of many jobs what it can do without: 22 s for 10,000 of them become 15."""
    # Planning makes millions of objects, which all stay: what looks for garbage among them finds none, in 3 s.
    gc.disable()
    # And Snakemake 9.27 reads the script of a rule once for each of its jobs.
    script.get_source = remembering(script.get_source)


def remembering(get_source: Callable[..., Any]) -> Callable[..., Any]:
    """Snakemake's `script.get_source`, asked once for each path without wildcards."""
    found: dict[tuple[str, str], Any] = {}

    def get_source_once(path: Any, sourcecache: Any, basedir: Any = None, *wildcards_and_params: Any) -> Any:
        key = str(path), str(basedir)
        if "{" in key[0]:
            return get_source(path, sourcecache, basedir, *wildcards_and_params)
        if key not in found:
            found[key] = get_source(path, sourcecache, basedir, *wildcards_and_params)
        return found[key]

    return get_source_once


def prepare_run(workflow: Any, shell: Any) -> None:
    """Make a run on this machine fast; `workflow` and `shell` are Snakemake's. A run on a cluster is left as it is."""
    gc.enable()
    gc.freeze()
    if not workflow.local_exec:
        return
    # With a limit on jobs a second, which Snakemake 9.27 always has, every look for work makes it look again a second
    # later: looks a second grow with the number of jobs done. On one machine the cores are limit enough.
    workflow.scheduler.job_rate_limiter = None
    # The fork server's jobs run in this Python; and what stands before every command is for scripts alone.
    in_this_python = not workflow.deployment_settings.deployment_method
    scripts_alone = not any(rule.shellcmd for rule in workflow.rules)
    if sys.platform == "linux" and in_this_python and scripts_alone:
        with suppress(OSError):  # without it, jobs start as they always did
            server, before = forkserver.start()
            atexit.register(forkserver.stop, server)
            shell.prefix("set -euo pipefail; " + before.replace("{", "{{").replace("}", "}}"))


def refuse_read_only(folder: Path) -> None:
    """A `UserError` where nothing can be written in `folder`, or in what is there of the path to it."""
    there = next(path for path in (folder, *folder.parents, Path()) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{there.resolve()}: a run writes there, but it is read-only; make it writable, or give another folder "
            "with --directory"
        )


def revision(home: Path) -> str:
    """The git revision of the workflow, with -dirty behind it if files were changed.

    Where git gives none, that of the process that started this one, or "unknown".
    """
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        # The node of a cluster may have no git, and a table must not depend on where it was made.
        return os.environ.get("TOPOSCALE_REVISION", "unknown")
