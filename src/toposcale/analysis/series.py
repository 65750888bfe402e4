"""From the long tables to aligned arrays: what every analysis of series over checkpoints begins with."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.features.registry import WEIGHT_NORM
from toposcale.io.schemas import ALL_LAYERS, METRIC_SOURCE
from toposcale.statistics.coefficients import Floats, is_constant
from toposcale.statistics.testable import testable_stretch

SERIES_KEY = ["source", "layer", "feature"]
VARIANCE = "weight_variance"
"""The feature of weights that explains most of neural persistence (Girrbach et al. 2023)."""
EXPLAINED_BY_VARIANCE = ("neural_persistence", "neural_persistence_p2")
MIN_POINTS = 4
"""Fewer common checkpoints than this give no correlation."""

PREFERRED_METRICS = ("validation_loss", "perplexity")


def headline_metric(present: Iterable[str], chosen: Sequence[str] = ()) -> str | None:
    """The metric that answers are about: validation loss, else perplexity, else the first chosen, else training loss.

    present: metrics that were measured; chosen: tasks of an evaluation as globs (`metrics.tasks`). None where there is
    none of these: a task is never taken because its name comes first in the alphabet.
    """
    names = sorted(set(present))
    tasks = [
        name for glob in chosen if glob != "*" for name in names if fnmatchcase(name.split(".")[0], glob)
    ]
    return next((name for name in [*PREFERRED_METRICS, *tasks, "training_loss"] if name in names), None)


def cells_of(models: pd.DataFrame) -> dict[str, str]:
    """The cell of each model, what runs share but for their seed: its column `cell`, else `entry`, else the model."""
    cells = models["model"].astype(str)
    for column in ("entry", "cell"):
        if column in models:
            known = models[column].fillna("").astype(str)
            cells = known.where(known != "", cells)
    return dict(zip(models["model"], cells, strict=True))


def warmups_of(models: pd.DataFrame) -> dict[str, float]:
    """Steps of warm-up of each model, where they are known."""
    if "warmup_steps" not in models:
        return {}
    known = models.dropna(subset=["warmup_steps"])
    return dict(zip(known["model"], known["warmup_steps"].astype(float), strict=True))


Columns = dict[str, NDArray[Any]]
"""Rows of a table as one array for each column. Many small data frames take longer to build than to fill."""


def joined(rows: Sequence[Columns]) -> pd.DataFrame:
    """Rows of several groups as one table; ValueError where there are none."""
    if not rows:
        raise ValueError("features: no model has both features and metrics")
    return pd.DataFrame({name: np.concatenate([part[name] for part in rows]) for name in rows[0]})


@dataclass(frozen=True)
class Aligned:
    """Series of one layer of one model that share their checkpoints with one set of metrics.

    keys (S rows of source, layer, feature); values (S, T); metrics (M names); targets (M, T); steps (T,);
    norms (1 or more, T): the weight norm of the model and, of a layer, its own, and further controls that were asked
    for; None where the model has no weight norm at all of these steps; left_out (S,): checkpoints of the series that could
    not be used, because its value or the metric's is not finite or not there.
    """

    model: str
    keys: pd.DataFrame
    values: Floats
    metrics: list[str]
    targets: Floats
    steps: Floats
    norms: Floats | None
    left_out: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of common checkpoints."""
        return len(self.steps)

    def only(self, features: Collection[str]) -> Aligned:
        """The series of some features of the weights."""
        wanted = ((self.keys["source"] == "weights") & self.keys["feature"].isin(features)).to_numpy()
        kept = self.keys[wanted].reset_index(drop=True)
        return replace(self, keys=kept, values=self.values[wanted], left_out=self.left_out[wanted])

    def beside(self, other: Aligned) -> Aligned:
        """These series and those of another group of the same model on the same checkpoints."""
        return replace(
            self,
            keys=pd.concat([self.keys, other.keys], ignore_index=True),
            values=np.vstack([self.values, other.values]),
            left_out=np.concatenate([self.left_out, other.left_out]),
        )

    def testable(self, warmups: Mapping[str, float]) -> tuple[Aligned, str]:
        """The part on the testable stretch, and why it cannot be tested, else ""."""
        stretch = testable_stretch(self.steps, warmups.get(self.model))
        part = slice(stretch.start, stretch.stop)
        norms = None if self.norms is None else self.norms[:, part]
        cut = replace(
            self,
            values=self.values[:, part],
            targets=self.targets[:, part],
            steps=self.steps[part],
            norms=norms,
        )
        return cut, stretch.reason

    def generator(self, seed: int, purpose: int) -> np.random.Generator:
        """Random generator for resamples of these checkpoints: one more model or feature changes no other's
        draws."""
        return np.random.default_rng([seed, purpose, self.n])

    def reasons(self) -> NDArray[np.object_]:
        """Why a pair (S, M) has no correlation: text, "" where it has one."""
        reasons = np.full((len(self.values), len(self.metrics)), "", dtype=object)
        if self.n < MIN_POINTS:
            reasons[:] = f"{self.n} common checkpoints; at least {MIN_POINTS} are needed"
            return reasons
        reasons[:, is_constant(self.targets)] = "constant metric"
        reasons[is_constant(self.values), :] = "constant feature"
        return reasons

    def pairs(self) -> Columns:
        """The key of each pair of a series and a metric: arrays (S x M,) of model, source, layer, feature, metric."""
        n_series, n_metrics = len(self.keys), len(self.metrics)
        return {
            "model": np.full(n_series * n_metrics, self.model, dtype=object),
            **{str(name): np.repeat(self.keys[name].to_numpy(object), n_metrics) for name in self.keys},
            "metric": np.array(self.metrics * n_series, dtype=object),
        }

    def rows(self, columns: Mapping[str, Any]) -> Columns:
        """One row per pair, from arrays of shape (S, M) or from one value for all rows; `joined` makes the table."""
        shape = (len(self.keys), len(self.metrics))
        known = {"n": self.n, "n_left_out": self.left_out[:, None], **columns}
        return self.pairs() | {name: np.broadcast_to(values, shape).ravel() for name, values in known.items()}


def aligned_series(
    features: pd.DataFrame, metrics: pd.DataFrame, *, variance: bool = False
) -> Iterator[Aligned]:
    """Group the series of each model by the checkpoints they have in common with the metrics.

    features: model, step, source, layer, feature, value; metrics: model, step, metric, value. Every (series,
    metric) pair of a model that has metrics comes in exactly one group. ValueError where a key occurs twice.
    variance: neural persistence alone, where the variance of the weights is known, with it beside the norms.
    """
    without = sorted(set(features["model"]) - set(metrics["model"]))
    if without:
        warnings.warn(f"no metrics for {', '.join(without)}: left out of the statistics", stacklevel=2)
    if variance:
        needed = [*EXPLAINED_BY_VARIANCE, VARIANCE, WEIGHT_NORM.feature]
        features = features[(features["source"] == "weights") & features["feature"].isin(needed)]
    for model in sorted(set(features["model"]) & set(metrics["model"])):
        rows = features[features["model"] == model]
        wide = _wide(rows, SERIES_KEY, "features")
        targets = _wide(metrics[metrics["model"] == model], ["metric"], "metrics")
        steps = sorted(set(wide.columns) | set(targets.columns))
        n_rows = rows.groupby(SERIES_KEY).size().reindex(wide.index).to_numpy()
        groups = _groups(model, wide.reindex(columns=steps), targets.reindex(columns=steps), n_rows, variance)
        if not variance:
            yield from groups
        else:
            explained = (group.only(EXPLAINED_BY_VARIANCE) for group in groups)
            yield from (group for group in explained if len(group.keys) and group.norms is not None)


def whole_model(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that describe the whole model, not one layer."""
    return table[table["layer"] == ALL_LAYERS]


def with_metrics(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Features, and metrics as features of source "metric" and layer "all": model, source, layer, feature, step, value."""
    as_features = metrics.rename(columns={"metric": "feature"}).assign(source=METRIC_SOURCE, layer=ALL_LAYERS)
    columns = ["model", *SERIES_KEY, "step", "value"]
    return pd.concat([features[columns], as_features[columns]], ignore_index=True)


def final_values(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Value of every feature and metric at the last step its model has it: model, source, layer, feature,
    step, value.

    Metrics come with source "metric" and layer "all".
    """
    both = with_metrics(features, metrics)
    last = both.sort_values("step", kind="stable").groupby(["model", *SERIES_KEY], sort=True).tail(1)
    return last.sort_values(["model", *SERIES_KEY]).reset_index(drop=True)


def _wide(table: pd.DataFrame, key: list[str], name: str) -> pd.DataFrame:
    repeated = table.duplicated(["step", *key])
    if repeated.any():
        row = table[repeated].iloc[0]
        raise ValueError(f"{name}: {row['model']} step {row['step']} has two rows for {', '.join(row[key])}")
    return table.pivot(index=key, columns="step", values="value").sort_index()


def _groups(
    model: str, wide: pd.DataFrame, targets: pd.DataFrame, n_rows: NDArray[np.int64], variance: bool
) -> Iterator[Aligned]:
    values, metric_values = wide.to_numpy(np.float64), targets.to_numpy(np.float64)
    steps = wide.columns.to_numpy(np.float64)
    keys = wide.index.to_frame(index=False)
    layers = keys["layer"].to_numpy()
    by_key = dict(zip(wide.index, values, strict=True))
    for metric_pattern, chosen_metrics in _patterns(np.isfinite(metric_values)):
        for pattern, alike in _patterns(np.isfinite(values) & metric_pattern):
            for layer in dict.fromkeys(layers[alike]):
                chosen = alike[layers[alike] == layer]
                yield Aligned(
                    model,
                    keys.iloc[chosen].reset_index(drop=True),
                    values[np.ix_(chosen, pattern)],
                    [str(targets.index[m]) for m in chosen_metrics],
                    metric_values[np.ix_(chosen_metrics, pattern)],
                    steps[pattern],
                    _controls(by_key, str(layer), pattern, variance),
                    n_rows[chosen] - int(pattern.sum()),
                )


def _controls(
    by_key: Mapping[Hashable, Floats], layer: str, pattern: NDArray[np.bool_], variance: bool
) -> Floats | None:
    """The weight norm of the model at some steps, and below it that of the layer, where it has one there.

    With `variance` that of the layer's weights too: of a whole model the mean over its layers.
    """
    source, _, norm = WEIGHT_NORM
    wanted = [(source, name, norm) for name in dict.fromkeys([ALL_LAYERS, layer])]
    wanted += [(source, layer, VARIANCE)] if variance else []
    found = []
    for key in wanted:
        values = by_key[key][pattern] if key in by_key else np.array([np.nan])
        if np.isfinite(values).all():
            found.append(values)
        elif key == WEIGHT_NORM or key[-1] == VARIANCE:
            return None
    return np.array(found)


def _patterns(masks: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Distinct rows of `masks`, each with the indices of the rows that equal it."""
    distinct, labels = np.unique(masks, axis=0, return_inverse=True)
    return [(row, np.flatnonzero(labels.ravel() == i)) for i, row in enumerate(distinct)]
