"""The cells of the third study: which runs its plan has, and which of them the committed tables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import configuration  # in workflow/: `make study-3` puts it on the path
import plan
from config_files import read, rebased
from studies import small_tables
from toposcale.io.errors import UserError

CONFIGURATIONS = (
    "config/study-3.yaml",
    "studies/study3/wikitext.yaml",
    "config/study-3-97k.yaml",
    "config/study-3-301k.yaml",
)
TABLES = ("models", "series", "early", "gaps")
"""`models`, the runs; `series`, losses and followed features at every checkpoint; `early`, everything at 30% of the
training; `gaps`, the losses on many windows of both texts at some checkpoints. A file a cell."""


class Cell(NamedTuple):
    """One cell of the plan: the configuration that it comes from, and its runs by name."""

    name: str
    config: Mapping[str, Any]
    runs: Mapping[str, plan.Model]


def planned(root: Path, files: Sequence[str] = CONFIGURATIONS) -> list[Cell]:
    """The cells of the plan, small models first. root: the folder of the repository."""
    cells = []
    for file in files:
        path = root / file
        config = configuration.resolve(rebased(read(path), [path]))
        runs = plan.models(config)
        for name in dict.fromkeys(run.cell for run in runs.values()):
            own = {model: run for model, run in runs.items() if run.cell == name}
            cells.append(Cell(name, config, own))
    return sorted(cells, key=lambda cell: _width(cell))


def _width(cell: Cell) -> int:
    return max(int(run.settings["d_model"]) for run in cell.runs.values())


def file_of(folder: Path, table: str, cell: str) -> Path:
    """The file of a table of a cell."""
    return folder / table / f"{cell}.csv.gz"


def complete(folder: Path, cell: Cell) -> bool:
    """Whether the tables of a cell are there, with every run of the plan at every checkpoint."""
    paths = [file_of(folder, table, cell.name) for table in TABLES]
    if not all(path.exists() for path in paths):
        return False
    models, series, early, gaps = (pd.read_csv(path) for path in paths)
    steps = {name: len(run.steps) for name, run in cell.runs.items()}
    return (
        set(models["model"]) == set(steps)
        and series.groupby("model").size().to_dict() == steps
        and sorted(early["model"]) == sorted(steps)
        and set(gaps["model"]) == set(steps)
        and gaps.groupby("model").size().nunique() == 1
    )


def read_all(folder: Path, cells: Sequence[Cell]) -> list[pd.DataFrame]:
    """The tables of all cells. UserError: a cell is missing or incomplete, or there is one that the plan does not have.

    A study is analysed once, when all of it is there.
    """
    done = [cell for cell in cells if complete(folder, cell)]
    if len(done) < len(cells):
        raise UserError(
            f"{folder}: {len(done)} of {len(cells)} cells are trained; the study is analysed once, after all of them are: "
            "make study-3"
        )
    tables = small_tables.read_cells(folder, TABLES, "`make study-3` trains them")
    if extra := set(tables[0]["cell"]) - {cell.name for cell in cells}:
        raise UserError(f"{folder}: not in the plan: {', '.join(sorted(extra))}")
    return tables
