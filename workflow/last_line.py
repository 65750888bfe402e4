"""The last line of a run: where the report is, why the run failed, or that it was interrupted.

Snakemake itself says more after its hooks are done, so the line is printed when the process ends.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUSES = "*.cause.txt"
"""The files in which jobs say why they failed, beside their logs; see scripts/_job.py."""

_start = time.time()
_interrupted = threading.Event()


def hear_interrupts() -> None:
    """From here on it is known whether Ctrl-C ended the run; what Ctrl-C does is not changed."""

    def interrupted(number: int, frame: Any) -> None:
        _interrupted.set()
        signal.default_int_handler(number, frame)

    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, interrupted)
        atexit.register(lambda: _interrupted.is_set() and _print(INTERRUPTED))


INTERRUPTED = "toposcale: interrupted; the same command goes on from here"


def of_success(run: str) -> None:
    """Say where the report is, or the results of a run that was not asked for it."""
    report = Path(run) / "report.html"
    # A run that was asked for a table alone may lie beside the report of an earlier one.
    fresh = report.exists() and report.stat().st_mtime >= _start - 1
    atexit.register(_print, f"Report: {report}" if fresh else f"Results: {run}")


def of_failure(run: str, logs: Sequence[str]) -> None:
    """Say why the first job that failed did; where it could leave no reason, in which logs Snakemake wrote what it saw."""
    if not _interrupted.is_set():
        wordless = f"toposcale: a job failed and left no reason; {' '.join(logs)} names the job"
        atexit.register(_print, cause(run, _start) or wordless)


def cause(run: str, since: float) -> str:
    """The line of the first job that failed after a time, and how many more did; empty where none left one."""
    files = [path for path in Path(run, "logs").rglob(CAUSES) if path.stat().st_mtime >= since - 1]
    files.sort(key=lambda path: (path.stat().st_mtime, path))
    if not files:
        return ""
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return files[0].read_text(encoding="utf-8").strip() + more


def _print(line: str) -> None:
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)
