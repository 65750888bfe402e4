"""The configurations of the fourth study, and their tables: a row for each run, a file for each configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.norms import NORMS
from studies.over_seeds import LATER
from studies.study3 import configurations
from studies.study3.configurations import Configuration
from studies.study3.measures import NUCLEAR
from toposcale.analysis.over_seeds import EARLY, SHARE

PLAN = "studies/study4/study.yaml"
TABLE = "models"
LOSS_SHARES = (EARLY, SHARE, LATER, 1.0)
"""Shares of the training at which the validation loss is measured; the features are measured at `SHARE`."""
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


def planned(root: Path) -> list[Configuration]:
    """Return the configurations of the plan, small models first. root: the folder of the repository."""
    return configurations.planned(root, [PLAN])


def complete(folder: Path, configuration: Configuration) -> bool:
    """Return whether the table of a configuration is there, with every run of the plan and every number."""
    path = configurations.file_of(folder, TABLE, configuration.name)
    if not path.exists():
        return False
    table = pd.read_csv(path)
    finite = np.isfinite(table[list(NUMBERS)].to_numpy(np.float64)).all()
    return list(table["model"]) == list(configuration.runs) and bool(finite)
