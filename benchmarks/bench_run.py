"""The whole default run against one plain script that does the same work in a loop. It takes ten minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.runs import ROOT, snakemake
from benchmarks.timing import Row

CONFIGURATION = "config/config.yaml"


def plain_run(folder: str) -> float:
    """Wall seconds of the loop, planning left out."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.plain_run", str(ROOT / CONFIGURATION)]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


def rows() -> Iterator[Row]:
    """One row; the two sides run one after the other in the same empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        workflow = snakemake(folder, configuration=CONFIGURATION).wall
        shutil.rmtree(Path(folder) / "results")
        yield Row("default run, two cores / one plain loop", workflow, plain_run(folder), 1.3)
