"""Many runs in one figure: the seeds of a configuration become one line with a band."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import cells_of
from toposcale.figures.panels import left_out_note

MOST_RUNS = 16
"""Largest number of runs that are drawn one by one; more are grouped by configuration."""

LOW, HIGH = 0.1, 0.9
"""Quantiles over the seeds of a configuration at the ends of the band."""


def by_cell(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with configurations as models; unchanged if there are few runs or one seed of each.

    features, metrics: `value` is the median over the seeds at a step, with the band in the columns `low` and `high`.
    training and correlations: medians. Any other table keeps the first seed of each configuration.
    """
    models = tables.get("models")
    if models is None or models["model"].nunique() <= MOST_RUNS:
        return dict(tables)
    cells = cells_of(models)
    counts = pd.Series(cells).value_counts()
    if counts.max() == 1:
        return dict(tables)
    names = {model: f"{cell} ×{counts[cell]}" for model, cell in cells.items()}
    return {name: _gathered(name, table, names) for name, table in tables.items()}


def note(tables: Mapping[str, pd.DataFrame], drawn: Mapping[str, pd.DataFrame]) -> str:
    """Return the note beneath a figure that shows configurations, "" where `by_cell` changed nothing."""
    if "models" not in tables or len(tables["models"]) == len(drawn["models"]):
        return ""
    medians = "Lines are medians over the seeds of a configuration; bands hold the middle 80% of them."
    values = [tables[name]["value"] for name in ("features", "metrics") if name in tables]
    lost = sum(int((~np.isfinite(column.to_numpy(dtype=float))).sum()) for column in values)
    return " ".join(filter(None, [medians, left_out_note(lost)]))


def _gathered(name: str, table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    if "model" not in table:
        return table
    first = {cell: model for model, cell in reversed(list(names.items()))}
    is_named = table["model"].isin(names)
    if not is_named.any():
        return table
    if name not in ("features", "metrics", "training", "correlations"):
        kept = table[table["model"].isin(first.values()) | ~is_named]
        return kept.assign(model=kept["model"].map(names).fillna(kept["model"]))
    named = table[is_named].assign(model=table["model"].map(names)).replace([np.inf, -np.inf], np.nan)
    numbers: list[Any] = [column for column in named.select_dtypes("number").columns if column not in ("step", "seed")]
    keys = [column for column in named.columns if column not in numbers and not column.endswith("reason")]
    runs = named.groupby(keys, sort=True)
    gathered = runs[numbers].median()
    if "value" in numbers:
        gathered["low"], gathered["high"] = runs["value"].quantile(LOW), runs["value"].quantile(HIGH)
    return gathered.reset_index()
