"""The configurations of the fourth study, and their tables: a row for each run, a file for each configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import plan  # in workflow/: `make study-4` puts it on the path
from config_reading import read, resolve
from studies.norms import NORMS
from studies.over_seeds import EARLY, LATER, SHARE

PLAN = "studies/study4/study.yaml"
TABLE = "models"
LOSS_SHARES = (EARLY, SHARE, LATER, 1.0)
"""Shares of the training at which the validation loss is measured; the features are measured at `SHARE`."""
NUCLEAR = "nuclear_norm"
H0 = ("h0_total", "h0_mean")
SCORE = "h0_surrogate_z"
FEATURES = (*NORMS, NUCLEAR, *H0, SCORE)


def loss_column(share: float) -> str:
    """Return the column of the validation loss at a share of the training."""
    return f"validation_loss_at_{share:.0%}"


def surrogate(feature: str) -> str:
    """Return the column of the mean of a feature over the surrogates of a run."""
    return f"surrogate_{feature}"


def surrogate_error(feature: str) -> str:
    """Return the column of the standard error of that mean."""
    return f"{surrogate(feature)}_standard_error"


NUMBERS = (*map(loss_column, LOSS_SHARES), *FEATURES, *map(surrogate, H0), *map(surrogate_error, H0))


class Configuration(NamedTuple):
    """One configuration of the plan: the resolved file that it comes from, and its runs by name."""

    name: str
    config: Mapping[str, Any]
    runs: Mapping[str, plan.Model]


def planned(root: Path, study: str = PLAN) -> list[Configuration]:
    """Return the configurations of a plan, small models first. root: the folder of the repository."""
    path = root / study
    config = resolve(read(path), [path])
    by_name: dict[str, dict[str, plan.Model]] = {}
    for model, run in plan.models(config).items():
        by_name.setdefault(run.configuration, {})[model] = run
    return sorted((Configuration(name, config, runs) for name, runs in by_name.items()), key=_width)


def _width(configuration: Configuration) -> int:
    return max(int(run.settings["d_model"]) for run in configuration.runs.values())


def file_of(folder: Path, configuration: Configuration) -> Path:
    """Return the file of the runs of a configuration."""
    return folder / TABLE / f"{configuration.name}.csv.gz"


def complete(folder: Path, configuration: Configuration) -> bool:
    """Return whether the table of a configuration is there, with every run of the plan and every number."""
    path = file_of(folder, configuration)
    if not path.exists():
        return False
    table = pd.read_csv(path)
    finite = np.isfinite(table[list(NUMBERS)].to_numpy(np.float64)).all()
    return list(table["model"]) == list(configuration.runs) and bool(finite)
