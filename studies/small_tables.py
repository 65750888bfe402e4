"""The small tables of finished runs that are committed: what the studies read, and a table as CSV and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io import tables
from toposcale.io.errors import UserError

METRICS = (VALIDATION_LOSS, "generalisation_gap")
DIGITS = 8
TABLES = Path(__file__).parent / "tables"
"""The results of studies of one module."""


def run(main: Callable[[Path, list[Path]], None]) -> None:
    """Call `main(folder, runs)` with what the command line names; a mistake of the user's ends in one line.

    runs: those of the named folders that hold a finished run.
    """
    folder, *runs = map(Path, sys.argv[1:])
    try:
        main(folder, [run for run in runs if (run / "tables/features.parquet").exists()])
    except UserError as error:
        sys.exit(f"toposcale: {error}")


def read(run: Path) -> list[pd.DataFrame]:
    """Features, metrics and models of a run."""
    names = ("features", "metrics", "models")
    return [tables.read_checked(run / f"tables/{name}.parquet").to_pandas() for name in names]


def check_finished(metrics: pd.DataFrame, models: pd.DataFrame) -> None:
    """UserError: a model has no loss at its end. A study is analysed once, when all of it is there."""
    losses = metrics[metrics["metric"] == VALIDATION_LOSS]
    ended = losses.merge(models[["model", "final_step"]], on="model").query("step == final_step")
    if missing := sorted(set(models["model"]) - set(ended["model"])):
        raise UserError(
            f"{len(missing)} of {len(models)} runs are not finished (for example {missing[0]}): a study is analysed once, "
            "after all runs are finished"
        )


def long_tables(series: pd.DataFrame, early: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The features and metrics tables that small tables of a study hold, a row for each model and step.

    series: losses and features at every checkpoint; early: features at 30% of the training.
    """
    metrics = series[["model", "step", *METRICS]].melt(["model", "step"], var_name="metric", value_name="value")
    rows = [
        table.melt(["model", "step"], var_name="feature", value_name="value")
        for table in (series.drop(columns=list(METRICS)), early)
    ]
    features = pd.concat(rows).dropna(subset=["value"]).drop_duplicates(["model", "step", "feature"])
    return features.assign(source="weights", layer="all"), metrics


def read_configurations(folder: Path, names: Sequence[str], remedy: str) -> list[pd.DataFrame]:
    """The tables of these names of all configurations, from a file a configuration.

    UserError, with the remedy: there is none.
    """
    parts = [[pd.read_csv(path) for path in sorted((folder / name).glob("*.csv.gz"))] for name in names]
    if not all(parts):
        raise UserError(f"{folder}: no tables of finished runs; {remedy}")
    return [pd.concat(part, ignore_index=True) for part in parts]


def write(table: pd.DataFrame, path: Path, digits: int = DIGITS) -> None:
    """Write a table as CSV; packed where the name ends in .gz, the same bytes each time."""
    packed = {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, float_format=f"%.{digits}g", compression=packed)


def sections(results: Mapping[str, pd.DataFrame], folder: Path, heading: str) -> str:
    """Write the tables of results, and return a section of Markdown for each."""
    for name, table in results.items():
        write(table, folder / f"{name}.csv")
    return "\n\n".join(f"{heading} {title(name)}\n\n{markdown(table)}" for name, table in results.items())


def title(name: str) -> str:
    """The name of a table as a heading."""
    return name.replace("_", " ").capitalize()


def markdown(table: pd.DataFrame) -> str:
    """A table as a page shows it, numbers to four digits; "None." without rows."""
    if table.empty:
        return "None."
    rows = [list(table.columns), ["---"] * table.shape[1]]
    rows += [
        [f"{value:.4g}".replace("nan", "") if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
