"""The configurations of the third study: which runs its plan has, and which of them the committed tables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import plan  # in workflow/: `make study-3` puts it on the path
from config_reading import read, rebased, resolve
from studies import small_tables
from toposcale.io.errors import UserError

CONFIG_FILES = (
    "config/study-3.yaml",
    "studies/study3/wikitext.yaml",
    "config/study-3-97k.yaml",
    "config/study-3-301k.yaml",
)
TABLES = ("models", "series", "early", "gaps")
"""`models`, the runs; `series`, losses and followed features at every checkpoint; `early`, everything at 30% of the
training; `gaps`, the losses on many sequences of both texts at some checkpoints. A file a configuration."""


class Configuration(NamedTuple):
    """One configuration of the plan: the resolved config file that it comes from, and its runs by name."""

    name: str
    config: Mapping[str, Any]
    runs: Mapping[str, plan.Model]


def planned(root: Path, files: Sequence[str] = CONFIG_FILES) -> list[Configuration]:
    """The configurations of the plan, small models first. root: the folder of the repository."""
    configurations = []
    for file in files:
        path = root / file
        config = resolve(rebased(read(path), [path]))
        runs = plan.models(config)
        for name in dict.fromkeys(run.configuration for run in runs.values()):
            own = {model: run for model, run in runs.items() if run.configuration == name}
            configurations.append(Configuration(name, config, own))
    return sorted(configurations, key=_width)


def _width(configuration: Configuration) -> int:
    return max(int(run.settings["d_model"]) for run in configuration.runs.values())


def file_of(folder: Path, table: str, configuration: str) -> Path:
    """The file of a table of a configuration."""
    return folder / table / f"{configuration}.csv.gz"


def complete(folder: Path, configuration: Configuration) -> bool:
    """Whether the tables of a configuration are there, with every run of the plan at every checkpoint."""
    paths = [file_of(folder, table, configuration.name) for table in TABLES]
    if not all(path.exists() for path in paths):
        return False
    models, series, early, gaps = (pd.read_csv(path) for path in paths)
    steps = {name: len(run.steps) for name, run in configuration.runs.items()}
    return (
        set(models["model"]) == set(steps)
        and series.groupby("model").size().to_dict() == steps
        and sorted(early["model"]) == sorted(steps)
        and set(gaps["model"]) == set(steps)
        and gaps.groupby("model").size().nunique() == 1
    )


def read_all(folder: Path, configurations: Sequence[Configuration]) -> list[pd.DataFrame]:
    """Return the tables of all configurations.

    UserError: one is missing or incomplete, or there is one that the plan does not have. A study is analysed once, when
    all of it is there.
    """
    done = [configuration for configuration in configurations if complete(folder, configuration)]
    if len(done) < len(configurations):
        raise UserError(
            f"{folder}: {len(done)} of {len(configurations)} configurations are trained; "
            "the study is analysed once, after all of them are: make study-3"
        )
    tables = small_tables.read_configurations(folder, TABLES, "`make study-3` trains them")
    if extra := set(tables[0]["configuration"]) - {configuration.name for configuration in configurations}:
        raise UserError(f"{folder}: not in the plan: {', '.join(sorted(extra))}")
    return tables
