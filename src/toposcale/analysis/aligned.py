"""From the long tables to aligned arrays: the start of every analysis of series over checkpoints."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.controls import PLAIN, Control
from toposcale.analysis.series import MIN_FOR_CORRELATION, SERIES_KEY, require
from toposcale.io.errors import counted
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import Floats, is_constant
from toposcale.statistics.prewhitening import testable_segment


def warmups_of(models: pd.DataFrame) -> dict[str, float]:
    """Return the warm-up steps of each model for which they are known, or at least a step by which it was over."""
    warmups = models.reindex(columns=["warmup_steps", "warmup_at_most"]).astype(float)
    steps = warmups["warmup_steps"].fillna(warmups["warmup_at_most"])
    return dict(zip(models["model"][steps.notna()], steps.dropna(), strict=True))


Columns = dict[str, NDArray[Any]]
"""Rows of a table as one array for each column. Many small data frames take longer to build than to fill."""


def join_rows(rows: Sequence[Columns]) -> pd.DataFrame:
    """Concatenate the rows of several groups into one table, with NaN where a group lacks a column."""
    names = dict.fromkeys(name for part in rows for name in part)
    lacking = [np.full(len(part["model"]), np.nan) for part in rows]
    return pd.DataFrame(
        {name: np.concatenate([part.get(name, nan) for part, nan in zip(rows, lacking, strict=True)]) for name in names}
    )


@dataclass(frozen=True)
class Aligned:
    """S series of one model, of one layer where the control has series of the layer, and M metrics, at T checkpoints."""

    model: str
    keys: Columns  # S of source, layer and feature
    values: Floats  # (S, T)
    metrics: list[str]  # M names
    targets: Floats  # (M, T)
    steps: Floats  # (T,)
    controls: Floats  # (C, T)
    missing: str  # why a required control is not there, else ""
    left_out: NDArray[np.int64]  # (S,): checkpoints without a finite value

    @property
    def n(self) -> int:
        """Number of common checkpoints."""
        return len(self.steps)

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a series and a metric."""
        return len(self.values) * len(self.metrics)

    def testable(self, warmups: Mapping[str, float]) -> tuple[Self, str]:
        """Return the part on the testable segment, and why it cannot be tested, else ""."""
        start, stop, reason = testable_segment(self.steps, warmups.get(self.model))
        values, targets, controls = (rows[:, start:stop] for rows in (self.values, self.targets, self.controls))
        segment = replace(self, values=values, targets=targets, steps=self.steps[start:stop], controls=controls)
        return segment, self.missing or reason

    def generator(self, seed: int, purpose: int) -> np.random.Generator:
        """Return a generator for these checkpoints; another model or feature changes no draws."""
        return np.random.default_rng([seed, purpose, self.n])

    def reasons(self) -> NDArray[np.object_]:
        """Return why each pair (S, M) has no correlation; "" if it has one."""
        reasons = np.full((len(self.values), len(self.metrics)), "", dtype=object)
        if self.n < MIN_FOR_CORRELATION:
            reasons[:] = f"{counted(self.n, 'common checkpoint')}; at least {MIN_FOR_CORRELATION} are needed"
            return reasons
        reasons[:, is_constant(self.targets)] = "constant metric"
        reasons[is_constant(self.values), :] = "constant feature"
        return reasons

    def pairs(self) -> Columns:
        """Return the keys of the pairs: arrays (S x M,) of model, source, layer, feature, metric."""
        n_series, n_metrics = len(self.values), len(self.metrics)
        return {
            "model": np.full(n_series * n_metrics, self.model, dtype=object),
            **{name: np.repeat(names, n_metrics) for name, names in self.keys.items()},
            "metric": np.array(self.metrics * n_series, dtype=object),
        }

    def rows(self, columns: Mapping[str, Any]) -> Columns:
        """Return a row for each pair, as columns; columns: arrays (S, M), or a value for all pairs."""
        shape = (len(self.values), len(self.metrics))
        shared = {"n": self.n, "n_left_out": self.left_out[:, None], **columns}
        return self.pairs() | {name: np.broadcast_to(values, shape).ravel() for name, values in shared.items()}


@dataclass(frozen=True)
class MeasuredSeries:
    """All series and metrics of one model as matrices over the checkpoints, NaN where one was not measured."""

    model: str
    keys: Columns  # S keys
    values: Floats  # (S, T)
    n_rows: NDArray[np.int64]  # (S,): checkpoints in the table, with a value or NaN
    metrics: list[str]  # M names
    targets: Floats  # (M, T)
    steps: Floats  # (T,)

    def aligned(self, control: Control = PLAIN) -> Iterator[Aligned]:
        """Yield the series to which the control applies, grouped by the checkpoints that they share with the metrics."""
        layers, is_asked = self.keys["layer"], control.is_asked_of(self.keys)
        by_key = dict(zip(zip(*self.keys.values(), strict=True), self.values, strict=True))
        for metric_pattern, metrics in _patterns(np.isfinite(self.targets)):
            for pattern, indices in _patterns(np.isfinite(self.values) & metric_pattern):
                indices = indices[is_asked[indices]]
                # Large groups are faster.
                group_of_series = layers if control.of_layer else np.full(len(layers), ALL_LAYERS)
                for layer in dict.fromkeys(group_of_series[indices]):
                    members = indices[group_of_series[indices] == layer]
                    controls, missing = _regressors(by_key, control, str(layer), pattern)
                    yield Aligned(
                        self.model,
                        {name: names[members] for name, names in self.keys.items()},
                        self.values[np.ix_(members, pattern)],
                        [self.metrics[m] for m in metrics],
                        self.targets[np.ix_(metrics, pattern)],
                        self.steps[pattern],
                        controls,
                        missing,
                        self.n_rows[members] - int(pattern.sum()),
                    )


def measured_series(features: pd.DataFrame, metrics: pd.DataFrame) -> list[MeasuredSeries]:
    """Return the series of each model that has metrics. ValueError: a missing column, or a repeated key."""
    require(features=features, metrics=metrics)
    with_features, with_metrics = (set(table["model"].unique()) for table in (features, metrics))
    if without := sorted(with_features - with_metrics):
        warnings.warn(f"no metrics for {', '.join(without)}: left out of the statistics", stacklevel=2)
    series_of_models = []
    for model in sorted(with_features & with_metrics):
        rows = features[features["model"] == model]
        wide = _wide(rows, SERIES_KEY, "features")
        targets = _wide(metrics[metrics["model"] == model], ["metric"], "metrics")
        steps = sorted(set(wide.columns) | set(targets.columns))
        keys = {name: wide.index.get_level_values(name).to_numpy(object) for name in SERIES_KEY}
        n_rows = rows.groupby(SERIES_KEY).size().reindex(wide.index).to_numpy()
        values, losses = (table.reindex(columns=steps).to_numpy(np.float64) for table in (wide, targets))
        names = [str(name) for name in targets.index]
        series_of_models.append(MeasuredSeries(model, keys, values, n_rows, names, losses, np.array(steps, np.float64)))
    return series_of_models


def aligned_series(features: pd.DataFrame, metrics: pd.DataFrame, control: Control = PLAIN) -> Iterator[Aligned]:
    """Yield the series of each model, grouped by the checkpoints that they share with the metrics.

    Every pair of series and metric to which the control applies is in exactly one group. ValueError: a missing column,
    or a repeated key.
    """
    return chain.from_iterable(series.aligned(control) for series in measured_series(features, metrics))


def _wide(table: pd.DataFrame, key: list[str], name: str) -> pd.DataFrame:
    repeated = table.duplicated(["step", *key])
    if repeated.any():
        row = table[repeated].iloc[0]
        raise ValueError(f"{name}: {row['model']} step {row['step']} has two rows for {', '.join(row[key])}")
    return table.pivot(index=key, columns="step", values="value").sort_index()


def _regressors(
    by_key: Mapping[tuple[str, str, str], Floats], control: Control, layer: str, pattern: NDArray[np.bool_]
) -> tuple[Floats, str]:
    """Return the series (C, T) that a control holds fixed for a layer; none, and the reason, if one is missing."""
    regressors = [np.empty((0, int(pattern.sum())))]
    for key, needed in control.keys(layer).items():
        values = by_key[key][pattern] if key in by_key else np.array([np.nan])
        if np.isfinite(values).all():
            regressors.append(values[None])
        elif needed:
            return regressors[0], control.missing
    return np.concatenate(regressors), ""


def _patterns(masks: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Return the distinct rows of `masks`, each with the indices of its rows."""
    rows: dict[bytes, list[int]] = {}
    for index, mask in enumerate(masks):
        rows.setdefault(mask.tobytes(), []).append(index)
    return [(np.frombuffer(mask, bool), np.array(indices)) for mask, indices in sorted(rows.items())]
