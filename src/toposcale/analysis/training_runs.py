"""Training runs from the tables of a run, with the features of their checkpoints, which early forecasts read."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import whole_model
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.series import Series, in_order, on_grid, read_only
from toposcale.forecasting.runs.training_run import TrainingRun


@dataclass(frozen=True)
class FeaturedRun(TrainingRun):
    """A training run with features "source/feature" at its checkpoints.

    features: (n_checkpoints,) each, or (n_checkpoints, length) for vectorised diagrams.
    """

    features: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "features", {name: read_only(values) for name, values in self.features.items()})
        for name, values in self.features.items():
            if len(values) != len(self.checkpoint_steps):
                raise ValueError(
                    f"{name}: one for each of the {len(self.checkpoint_steps)} checkpoints of {self.model}"
                )

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, and its features."""
        kept = self.checkpoint_steps <= last
        return super().rows_until(last) | {"features": {name: values[kept] for name, values in self.features.items()}}


def features_of(run: TrainingRun) -> Mapping[str, np.ndarray]:
    """Return the features of a run by name; none of one that has none."""
    return run.features if isinstance(run, FeaturedRun) else {}


def trainings_from_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    models: pd.DataFrame,
    *,
    schedules: pd.DataFrame | None = None,
    vectors: pd.DataFrame | None = None,
) -> list[TrainingRun]:
    """Return a training run for each language model with a size, sorted by model; columns that a table lacks stay unknown.

    A schedule that is not in `schedules` is that of the log; `vectors` are features, too.
    """
    whole = whole_model(features) if len(features) else features
    runs: list[TrainingRun] = []
    in_nats = models["in_nats"].fillna(True).astype(bool) if "in_nats" in models else slice(None)
    for row in models.loc[in_nats].dropna(subset="n_parameters").sort_values("model").to_dict("records"):
        model = row["model"]
        columns = _rows_of(model, training).reindex(columns=["step", "loss", "gradient_norm", "learning_rate"])
        log = {str(name): values.to_numpy(dtype=np.float64) for name, values in columns.items()}
        series = _series(_rows_of(model, whole), ["source", "feature"])
        checkpoints = np.concatenate([np.empty(0), *(np.asarray(steps, np.float64) for steps, _ in series.values())])
        series |= _vectors(_rows_of(model, vectors))  # they are read only where something else was measured
        run = FeaturedRun.of(
            _facts(row),
            _schedule(row, _rows_of(model, schedules), log),
            log,
            _series(_rows_of(model, metrics), ["metric"]),
            checkpoints=checkpoints,
            notes=_clauses(row.get("log_notes")),
            low_confidence_reasons=_clauses(row.get("log_low_confidence_reasons")),
        )
        on_checkpoints = {name: on_grid(run.checkpoint_steps, *in_order(pair)) for name, pair in series.items()}
        runs.append(replace(run, features=on_checkpoints))
    return runs


def _rows_of(model: str, table: pd.DataFrame | None) -> pd.DataFrame:
    """Return the rows of a model; an empty frame if the table is missing."""
    return pd.DataFrame() if table is None or table.empty else table[table["model"] == model]


def _facts(model: Mapping[Hashable, Any]) -> RunFacts:
    """Return the facts in a row of the models table."""
    tokens = model["tokens_per_step"]
    return RunFacts(
        str(model["model"]),
        int(model["n_parameters"]),
        np.nan if pd.isna(tokens) else float(tokens),
        family=_text(model.get("family")),
        seed=int(model.get("seed", 0)),
        optimizer=_text(model.get("optimizer")),
        weight_average=_text(model.get("weight_average")),
        weight_decay=np.nan if pd.isna(decay := model.get("weight_decay")) else float(decay),
        unique_tokens=np.nan if pd.isna(unique := model.get("unique_tokens")) else float(unique),
    )


def _text(entry: Any) -> str:
    """Return a text of a table; a missing one, None or NaN, is empty."""
    return entry if isinstance(entry, str) else ""


def _clauses(entry: Any) -> tuple[str, ...]:
    """Return the clauses of a table entry, one per line."""
    return tuple(_text(entry).splitlines())


def _schedule(model: Mapping[Hashable, Any], rows: pd.DataFrame, log: Mapping[str, np.ndarray]) -> LearningRateSchedule:
    """Return the schedule of the rows of the schedules table, else that of the log."""
    final_step, warmup = int(model["final_step"]), model.get("warmup_steps")
    warmup_steps = None if pd.isna(warmup) else float(warmup)
    if rows.empty:
        return LearningRateSchedule.of_log(final_step, log["step"], log["learning_rate"], None, warmup_steps)
    rates = np.interp(np.arange(final_step + 1), rows["step"], rows["learning_rate"])
    is_logged = bool(np.isfinite(log["learning_rate"]).any())
    provenance = ScheduleProvenance(str(model.get("schedule_provenance", ScheduleProvenance.GIVEN)))
    stated = None if warmup_steps is None else int(warmup_steps)
    return LearningRateSchedule(final_step, rates, provenance, "", stated, is_logged)


def _series(rows: pd.DataFrame, key: list[str]) -> dict[str, Series]:
    """Return steps and values by name, "metric" or "source/feature"."""
    return {
        "/".join(map(str, name)): (part["step"].to_numpy(np.float64), part["value"].to_numpy(np.float64))
        for name, part in (rows.groupby(key, sort=True) if len(rows) else ())
    }


def _vectors(rows: pd.DataFrame) -> dict[str, Series]:
    """Return steps and vectors by "source/name"."""
    by_name: dict[str, Series] = {}
    for (source, name), part in rows.groupby(["source", "vector"]) if len(rows) else ():
        wide = part.pivot(index="step", columns="index", values="value").sort_index()
        by_name[f"{source}/{name}"] = wide.index.to_numpy(np.float64), wide.to_numpy(np.float64)
    return by_name
