"""The configurations that the false-positive rates are measured on: the runs of studies 1 to 3, in `runs`, or others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from studies import small_tables
from toposcale.analysis.series import headline_metric, whole_model
from toposcale.io.errors import UserError
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.prewhitening import testable_segment

RUNS = Path(__file__).parent / "runs"
"""The tables of studies 1 to 3, a folder each; the README.md there says what they hold."""
MIN_SEEDS = 10
"""A smaller configuration has too few pairs of runs."""


@dataclass(frozen=True)
class Configuration:
    """Runs that differ only by their seeds: by run, the features of the whole model that were measured at several
    checkpoints and the headline metric; all features, losses and models."""

    name: str
    features: dict[str, pd.DataFrame]
    metrics: dict[str, pd.DataFrame]
    whole: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
    metric: str

    @property
    def models(self) -> pd.DataFrame:
        """A row for each run."""
        return self.whole[2]

    @cached_property
    def _losses(self) -> pd.DataFrame:
        """A row for each run, a column for each checkpoint of the testable segment."""
        table = pd.concat(self.metrics.values()).pivot(index="model", columns="step", values="value")
        table = table.loc[list(self.features)]
        steps = table.columns.to_numpy(np.float64)
        segment = testable_segment(steps, float(self.models["warmup_steps"].iloc[0]))
        return table.iloc[:, segment.start : segment.stop]

    @property
    def losses(self) -> Floats:
        """The headline metric of the R runs on the T checkpoints of the testable segment (R, T)."""
        return self._losses.to_numpy(np.float64)

    @cached_property
    def series(self) -> dict[str, Floats]:
        """The features (R, T) that all runs have at all checkpoints of the testable segment."""
        rows = pd.concat(self.features.values())
        series = {}
        for name, own in rows.groupby("feature"):
            table = own.pivot(index="model", columns="step", values="value")
            values = table.reindex(self._losses.index)[self._losses.columns.intersection(table.columns)]
            if values.shape == self._losses.shape and np.isfinite(values.to_numpy(np.float64)).all():
                series[str(name)] = values.to_numpy(np.float64)
        return series

    def crossed(
        self, features_of: Sequence[str], losses_of: Sequence[str], *, one_configuration: bool
    ) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Features, metrics and models of runs that have the features of one run and the losses of another.

        one_configuration: whether they are the seeds of one configuration, or a configuration each.
        """
        names = [f"run-{index:02d}" for index in range(len(features_of))]
        features = pd.concat(
            [self.features[run].assign(model=name) for name, run in zip(names, features_of, strict=True)]
        )
        metrics = pd.concat([self.metrics[run].assign(model=name) for name, run in zip(names, losses_of, strict=True)])
        facts = self.models[["warmup_steps", "final_step"]].iloc[: len(names)].reset_index(drop=True)
        return features, metrics, facts.assign(model=names, configuration=self.name if one_configuration else names)


def configurations_of(folder: Path) -> Iterator[Configuration]:
    """The configurations of at least `MIN_SEEDS` runs in a folder: tables of a study, whole or a file a configuration,
    or a finished run.

    UserError: the folder holds none of them.
    """
    if (folder / "tables/models.parquet").exists():
        features, metrics, models = small_tables.read(folder)
    else:
        models, series, early = (table_of(folder, name) for name in ("models", "series", "early"))
        features, metrics = small_tables.long_tables(series, early)
    features = whole_model(features)
    metric = headline_metric(metrics["metric"])
    if metric is None:
        raise UserError(f"{folder}: no loss was measured")
    metrics = metrics[metrics["metric"] == metric].dropna(subset=["value"])
    for name, own in models.groupby("configuration", sort=False):
        if len(own) >= MIN_SEEDS:
            inside, losses = (table[table["model"].isin(own["model"])] for table in (features, metrics))
            followed = inside[inside.groupby("feature")["step"].transform("nunique") > 1]
            by_run = [{str(run): rows for run, rows in table.groupby("model")} for table in (followed, losses)]
            yield Configuration(str(name), by_run[0], by_run[1], (inside, losses, own), metric)


def table_of(folder: Path, name: str) -> pd.DataFrame:
    """Return a table of a study, from one file or from a file a configuration. UserError: there is none."""
    paths = sorted([*folder.glob(f"{name}.csv*"), *folder.glob(f"{name}/*.csv*")])
    if not paths:
        raise UserError(f"{folder}: no {name}.csv and no tables/models.parquet; name a study's tables or a run")
    return pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
