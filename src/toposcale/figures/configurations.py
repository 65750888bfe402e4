"""Many runs in one figure: the runs of a configuration, which differ by their seed alone, become one line with a band."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import configurations_of
from toposcale.figures.panels import left_out_note

MOST_RUNS = 16
"""Runs that are drawn one by one; more are gathered by configuration."""

LOW, HIGH = 0.1, 0.9
"""Quantiles over the runs of a configuration between which the band lies."""


def by_configuration(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with the configurations of many runs as their models; unchanged if runs are few or all differ.

    features, metrics: `value` is the median over the runs at a step, and two columns more, `low` and `high`, hold the band.
    training and correlations: medians. Of any other table the first run of each configuration stands for it.
    """
    models = tables.get("models")
    if models is None or models["model"].nunique() <= MOST_RUNS:
        return dict(tables)
    configurations = configurations_of(models)
    counts = pd.Series(configurations).value_counts()
    if counts.max() == 1:
        return dict(tables)
    names = {model: f"{configuration} ×{counts[configuration]}" for model, configuration in configurations.items()}
    return {name: _gathered(name, table, names) for name, table in tables.items()}


def note(tables: Mapping[str, pd.DataFrame], drawn: Mapping[str, pd.DataFrame]) -> str:
    """Describe how `by_configuration` made the tables `drawn` out of `tables`; "" if it changed nothing."""
    if "models" not in tables or len(tables["models"]) == len(drawn["models"]):
        return ""
    medians = "Lines are medians over the runs of a configuration; bands hold the middle 80% of them."
    values = [tables[name]["value"] for name in ("features", "metrics") if name in tables]
    lost = sum(int((~np.isfinite(column.to_numpy(dtype=float))).sum()) for column in values)
    return " ".join(filter(None, [medians, left_out_note(lost)]))


def _gathered(name: str, table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    if "model" not in table:
        return table
    first = {configuration: model for model, configuration in reversed(list(names.items()))}
    is_named = table["model"].isin(names)
    if not is_named.any():
        return table
    if name not in ("features", "metrics", "training", "correlations"):
        kept = table[table["model"].isin(first.values()) | ~is_named]
        return kept.assign(model=kept["model"].map(names).fillna(kept["model"]))
    rows = table[is_named].assign(model=table["model"].map(names)).replace([np.inf, -np.inf], np.nan)
    numbers: list[Any] = [column for column in rows.select_dtypes("number").columns if column not in ("step", "seed")]
    keys = [column for column in rows.columns if column not in numbers and not column.endswith("reason")]
    runs = rows.groupby(keys, sort=True)
    gathered = runs[numbers].median()
    if "value" in numbers:
        gathered["low"], gathered["high"] = runs["value"].quantile(LOW), runs["value"].quantile(HIGH)
    return gathered.reset_index()
