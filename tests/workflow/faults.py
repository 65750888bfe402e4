"""A smallest run, and runs in which a fault is planted (see `planted/sitecustomize.py` for the moments)."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from environment import NO_CAUSE_RECORDED
from loaded import PATIENCE
from workspace import Workspace, new_workspace

PLANTED = Path(__file__).parent / "planted"
TARGET = "results/small/tables/scaling.parquet"
"""The end of the run under test: an analysis of the features, metrics and models tables."""


def smallest(path: Path) -> Workspace:
    """One model, three checkpoints, no embeddings: every kind of job but those that load other people's models."""
    workspace = new_workspace(path)
    workspace.config |= {
        "models": {"one": {"d_model": 4, "n_layers": 1, "n_heads": 1}},
        "training": {
            **{"steps": 4, "checkpoint_every": 2, "batch_size": 2, "context": 8},
            **{"warmup_steps": 1, "validation_sequences": 2},
        },
        "weights": {"jobs": "checkpoint"},
        "embeddings": {"enabled": False},
        "statistics": {"resamples": 10},
    }
    return workspace


def environment(fault: dict[str, Any] | None) -> dict[str, str]:
    """The environment of a run with a fault."""
    if fault is None:
        return dict(os.environ)
    path = os.pathsep.join([str(PLANTED), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | {"PYTHONPATH": path, "TOPOSCALE_FAULT": json.dumps(fault)}


def start(workspace: Workspace, *arguments: str, fault: dict[str, Any] | None = None, cores: int = 1):
    """A run in a process of its own, for tests that do something while it goes on."""
    return subprocess.Popen(
        workspace.command(*arguments, cores=cores),
        env=environment(fault),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(workspace: Workspace, *arguments: str, fault: dict[str, Any] | None = None, cores: int = 1):
    """The exit status and all that was said; after a fault by jobs that outlived Snakemake too."""
    if fault is None:
        done = workspace.snakemake(*arguments, cores=cores, check=False)
        return done.returncode, done.stdout + done.stderr
    process = start(workspace, *arguments, fault=fault, cores=cores)
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said


def complaints(said: str) -> list[str]:
    """The lines in which jobs say what is wrong; the last line of a run, which repeats one of them, is not counted."""
    assert "Traceback" not in said, said
    lines = said.rstrip().splitlines()
    found = [line for line in lines if line.startswith("toposcale: ")]
    if found and found[-1] == lines[-1]:
        repeated = re.sub(r" \(and \d+ more\)$", "", found[-1])
        if repeated in found[:-1] or repeated == NO_CAUSE_RECORDED:
            return found[:-1]
    return found


def assert_same_bytes(workspace: Workspace, undisturbed: Workspace) -> None:
    """Every table, checkpoint and part of a table is there and as it is in the undisturbed run."""
    for folder in ("tables", "checkpoints", "features", "diagrams", "metrics"):
        expected = [path for path in (undisturbed.results / folder).rglob("[!.]*") if path.is_file()]
        assert expected
        for path in expected:
            assert (workspace.results / path.relative_to(undisturbed.results)).read_bytes() == path.read_bytes(), path
