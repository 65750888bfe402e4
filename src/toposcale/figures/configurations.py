"""Many runs in one figure: the runs of a configuration, which differ only by their seed, become one line with a band."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import configurations_of
from toposcale.figures.panels import left_out_note
from toposcale.io import schemas

MAX_RUNS = 16
"""Runs that are drawn one by one; more are gathered by configuration."""

MEDIANS = ("features", "metrics", "training", "schedules", "correlations", "forecasts")
"""Tables whose numbers have a median over the runs of a configuration."""

LOW = 0.1
"""Quantile over the runs of a configuration from which the band goes; `note` names the share within."""
HIGH = 0.9
"""Quantile to which it goes."""


def by_configuration(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables with the configurations of many runs as their models; unchanged if runs are few or all differ.

    Values are medians over the runs of a configuration. features, metrics: two columns more, `low` and `high`, hold the
    band. forecasts: `n_missing` counts the runs without a forecast. Unchanged, too, if one of the tables is not in
    `MEDIANS`, for then the figure is about single runs.
    """
    models = tables.get("models")
    of_runs = {name for name, table in tables.items() if "model" in table} - {"models", *MEDIANS}
    if models is None or of_runs or models["model"].nunique() <= MAX_RUNS:
        return dict(tables)
    configurations = configurations_of(models)
    counts = pd.Series(configurations).value_counts()
    if counts.max() == 1:
        return dict(tables)
    names = {model: f"{configuration} ×{counts[configuration]}" for model, configuration in configurations.items()}
    gathered = {name: _medians(name, table, names) for name, table in tables.items() if name != "models"}
    first = models.assign(model=models["model"].map(names)).drop_duplicates("model")
    return {**gathered, "models": first}


def note(tables: Mapping[str, pd.DataFrame], drawn: Mapping[str, pd.DataFrame]) -> str:
    """Describe how `by_configuration` made the tables `drawn` out of `tables`; "" if it changed nothing."""
    if "models" not in tables or len(tables["models"]) == len(drawn["models"]):
        return ""
    medians = "Lines are medians over the runs of a configuration; bands hold the middle 80% of them."
    forecasts = "Forecasts and the ends of their intervals are medians, too." if "forecasts" in tables else ""
    values = [tables[name]["value"] for name in ("features", "metrics") if name in tables]
    lost = sum(int((~np.isfinite(column.to_numpy(dtype=float))).sum()) for column in values)
    return " ".join(filter(None, [medians, forecasts, left_out_note(lost)]))


def _medians(name: str, table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    if "model" not in table or not table["model"].isin(names).any():
        return table
    rows = table[table["model"].isin(names)].replace([np.inf, -np.inf], np.nan)
    rows = rows.assign(model=rows["model"].map(names))
    keys = list(dict.fromkeys(["model", *schemas.TABLES[name].key]))  # a training log has its model in its file's name
    numbers: list[Any] = [column for column in rows.select_dtypes("number").columns if column not in keys]
    runs = rows.groupby(keys, sort=True)
    gathered = runs[numbers].median()
    if name in ("features", "metrics"):
        gathered["low"], gathered["high"] = runs["value"].quantile(LOW), runs["value"].quantile(HIGH)
    gathered = gathered.reset_index()
    if name == "forecasts":
        n_runs = gathered["model"].map(Counter(names.values()))
        gathered["n_missing"] = n_runs - runs["forecast"].count().to_numpy()
    return gathered
