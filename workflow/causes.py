"""Why a run failed: what its jobs left, as the last line of the run."""

from __future__ import annotations

from pathlib import Path

CAUSES = "*.cause.txt"
"""The files in which jobs say why they failed, beside their logs; see scripts/_job.py."""

NONE_LEFT = (
    "toposcale: interrupted, or a job was killed (out of memory?): the lines above name it; the same command goes on from "
    "here"
)


def cause(run: str, since: float) -> str:
    """The line of the first job that failed after a time, and how many more did."""
    files = [path for path in Path(run, "logs").rglob(CAUSES) if path.stat().st_mtime >= since - 1]
    files.sort(key=lambda path: (path.stat().st_mtime, path))
    if not files:
        return NONE_LEFT
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return files[0].read_text(encoding="utf-8").strip() + more
