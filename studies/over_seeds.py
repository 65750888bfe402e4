"""Tests over the seeds of a configuration: the run permutation, the test between runs, and what studies report of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from studies.norms import NORMS
from studies.run_permutation import RunPermutation, lagged, pair_correlations, permute_pairs
from toposcale.analysis.aligned import Aligned, aligned_series, warmups_of
from toposcale.analysis.controls import CONTROLS, Control
from toposcale.analysis.series import SERIES_KEY, configurations_of, whole_model
from toposcale.features.feature import WEIGHT_NORM
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.errors import UserError
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import DRAWS, BetweenRuns, between_runs, fit_of_configuration
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.prewhitening import MIN_FOR_TEST, prewhiten, with_squares

MIN_SEEDS = 8
"""A configuration with fewer runs is not tested: its pairings are too few for a p-value that survives many tests."""
MANY_DRAWS, CLOSE_CALL = 100_000, (0.02, 0.10)
"""Draws of a test whose corrected p lies in `CLOSE_CALL`, so that the level does not depend on the draws."""
EARLY, SHARE = 0.2, 0.3
"""Shares of training at which the losses, and at the later one the features, are read."""
FINISHED_SHARE = 0.99
"""Share of its steps at which a run has a loss of its end."""
LATER = 0.5
"""Share of the training at which the loss tells the final one so well that every test between runs must find it."""
STUDY_DRAWS = 200_000
"""Permutations of a test between runs that a study was planned with."""
_HALF = float(ndtri(0.975))


def run_permutation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, metric: str, seed: int
) -> pd.DataFrame:
    """Test whether residuals of whole-model features follow the loss of their own run more than those of other seeds.

    Uses configurations of at least `MIN_SEEDS` runs, on the testable segment or, without one, on all checkpoints.
    """
    parts = []
    for paired in paired_residuals(features, metrics, models, metric=metric):
        correlations = pair_correlations(paired.x, paired.y, paired.controls)[:, 0]
        labels = paired.configurations
        counts = {"n_runs": len(labels), "n_configurations": len(set(labels)), "n": paired.n}
        parts.append(_rows(paired.keys, metric, partial(_permuted, correlations, labels, seed), **counts))
    if not parts:
        raise UserError(f"no configuration has {MIN_SEEDS} seeds that were measured at the same checkpoints")
    return pd.concat(parts, ignore_index=True)


def _permuted(correlations: Floats, labels: Sequence[str], seed: int, chosen: Any, draws: int) -> RunPermutation:
    return permute_pairs(correlations[chosen], labels, draws=draws, seed=seed)


def _rows(keys: Sequence[tuple[str, ...]], metric: str, test: Callable[..., Any], **counts: int) -> pd.DataFrame:
    """Return a row for each key; test: as in `with_more_draws`, its dataclass fields become columns."""
    p, counted = with_more_draws(test, len(keys))
    columns = vars(test(slice(None), DRAWS)) | counts | {"p": p, "n_permutations": counted}
    return pd.DataFrame(keys, columns=SERIES_KEY).assign(metric=metric, **columns)


def with_more_draws(test: Callable[[NDArray[np.int64], int], Any], size: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the p-values (size,) of a family and how many permutations each rests on, `MANY_DRAWS` for close calls.

    test: takes indices and a number of draws, and returns `p` and `n_permutations`.
    """
    indices = np.arange(size)
    first = test(indices, DRAWS)
    p, counted, drawn = first.p, np.full(size, first.n_permutations), np.zeros(size, dtype=bool)
    while True:
        q = benjamini_hochberg(p)
        close = indices[(q >= CLOSE_CALL[0]) & (q <= CLOSE_CALL[1]) & ~drawn]
        if not len(close):
            return p, counted
        again = test(close, MANY_DRAWS)
        drawn[close] = True
        p[close], counted[close] = again.p, again.n_permutations


class Paired(NamedTuple):
    """Residuals of features x (R runs of S, m) and metric y (R of 1, m) with n checkpoints, and their configurations."""

    keys: list[tuple[str, ...]]
    x: list[Floats]
    y: list[Floats]
    configurations: list[str]
    controls: list[Floats]
    n: int


def paired_residuals(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    metric: str,
    control: Control = CONTROLS["weight_norm"],
) -> Iterator[Paired]:
    """Yield the features that all runs of full configurations have at the same checkpoints, prewhitened."""
    warmups, configurations = warmups_of(models), full_configurations(features, metrics, models, metric)
    inside = whole_model(features[features["model"].isin(configurations)])
    losses = metrics[(metrics["metric"] == metric) & metrics["model"].isin(configurations)]
    grids: dict[tuple[float, ...], dict[str, Aligned]] = {}
    for group in aligned_series(inside, losses, control):
        cut, reason = group.testable(warmups)
        used = group if reason else cut  # without a testable segment all checkpoints: what the runs share cancels
        if used.n >= MIN_FOR_TEST and not used.missing:
            runs = grids.setdefault(tuple(used.steps), {})
            # Series that differ only before the segment, such as distances from the checkpoint before, come in groups.
            runs[group.model] = _beside(runs[group.model], used) if group.model in runs else used
    names = sorted(configurations)
    for steps in sorted(grids):
        runs = grids[steps]
        if set(runs) != set(configurations):
            continue
        keys_of = {name: list(zip(*run.keys.values(), strict=True)) for name, run in runs.items()}
        keys = sorted(set.intersection(*map(set, keys_of.values())))
        indices = {name: [keys_of[name].index(key) for key in keys] for name in names}
        controls = {name: with_squares(run.controls) for name, run in runs.items()}
        if keys:
            yield Paired(
                keys,
                [prewhiten(runs[name].values[indices[name]], controls[name]).values for name in names],
                [prewhiten(runs[name].targets, controls[name]).values for name in names],
                [configurations[name] for name in names],
                [lagged(controls[name]) for name in names],
                len(steps),
            )


def _beside(one: Aligned, other: Aligned) -> Aligned:
    """Join the series of two groups of a model at the same checkpoints."""
    keys = {name: np.concatenate([names, other.keys[name]]) for name, names in one.keys.items()}
    left_out = np.concatenate([one.left_out, other.left_out])
    return replace(one, keys=keys, values=np.vstack([one.values, other.values]), left_out=left_out)


def between_runs_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, metric: str, seed: int
) -> pd.DataFrame:
    """Test whole-model features at `SHARE` of training against the final metric, over finished runs of full configurations.

    Controls: the metric at `EARLY` and `SHARE`, the square of the latter, and the weight norm at `SHARE`.
    """
    values = early_values(features, metrics, models, metric, [WEIGHT_NORM.feature])
    if values is None:
        raise UserError(f"{metric}: its values at {EARLY:.0%} and {SHARE:.0%}, or those of the norm, are not there")
    return _rows(list(values.features.index), metric, partial(values.test, seed))


class EarlyValues(NamedTuple):
    """Input of the test between runs: features at `SHARE` (rows by key, columns by run), outcome (R,), controls (C, R)."""

    features: pd.DataFrame
    outcome: Floats
    controls: Floats
    configurations: list[str]

    def test(self, seed: int, chosen: Any = slice(None), draws: int = DRAWS) -> BetweenRuns:
        """Test the features at the chosen indices."""
        values = self.features.to_numpy(np.float64)[chosen]
        return between_runs(values, self.outcome, self.configurations, self.controls, draws=draws, seed=seed)


def early_values(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, metric: str, norms: Sequence[str]
) -> EarlyValues | None:
    """Return the input of the test between runs; None if a control was not measured."""
    ends = dict(zip(models["model"], models["final_step"], strict=True)) if "final_step" in models else {}
    last = metrics[metrics["metric"] == metric].groupby("model")["step"].max()
    finished = [model for model, step in last.items() if not step < FINISHED_SHARE * ends.get(model, np.nan)]
    configurations = full_configurations(features, metrics[metrics["model"].isin(finished)], models, metric)
    chosen = metrics[(metrics["metric"] == metric) & metrics["model"].isin(configurations)]
    losses = {share: value_at_share(chosen, ["metric"], share, ends) for share in (EARLY, SHARE, 1.0)}
    early = value_at_share(whole_model(features[features["model"].isin(configurations)]), SERIES_KEY, SHARE, ends)
    norm_keys = [WEIGHT_NORM._replace(feature=norm) for norm in norms]
    if not configurations or not set(norm_keys) <= set(early.index) or any(table.empty for table in losses.values()):
        return None
    names = sorted(configurations)
    final, current, early_loss = (losses[share].reindex(columns=names).to_numpy()[0] for share in (1.0, SHARE, EARLY))
    labels = pd.Series([configurations[name] for name in names])
    # Around the mean of the configuration, where the square is far from a line.
    square = (pd.Series(current) - pd.Series(current).groupby(labels).transform("mean")) ** 2
    early = early.reindex(columns=names)
    controls = np.vstack([early_loss, current, square, early.loc[norm_keys].to_numpy(np.float64)])
    if not (np.isfinite(controls).all() and np.isfinite(final).all()):
        return None
    return EarlyValues(early.dropna(), final, controls, labels.tolist())


def full_configurations(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, metric: str
) -> dict[str, str]:
    """Return the configuration of each run, of configurations with `MIN_SEEDS` runs that have features and metric."""
    measured = set(features["model"]) & set(metrics.loc[metrics["metric"] == metric, "model"])
    labels = {model: label for model, label in configurations_of(models).items() if model in measured}
    n_runs = Counter(labels.values())
    return {model: label for model, label in labels.items() if n_runs[label] >= MIN_SEEDS}


def value_at_share(table: pd.DataFrame, key: list[str], share: float, ends: Mapping[str, float]) -> pd.DataFrame:
    """Return every series at the last checkpoint within a share of its training: rows by key, columns by model."""
    end = table["model"].map(ends).astype(float).fillna(table.groupby("model")["step"].transform("max"))
    rows = table[table["step"] <= share * end + 1e-6].sort_values("step", kind="stable")
    rows = rows.groupby(["model", *key], sort=True).tail(1)
    return rows.pivot(index=key, columns="model", values="value")


def between_rows(
    question: str,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    seed: int,
    draws: int = STUDY_DRAWS,
    norms: Sequence[str] = NORMS,
    metric: str = VALIDATION_LOSS,
) -> pd.DataFrame:
    """A row for each feature: does it tell at 30% of training how the metric of the runs of a configuration will end?

    norms: the features that are given at 30%, beside the metric at 20 and 30% and the square of the latter. The interval is
    Fisher's. UserError: a control is not there.
    """
    read = early_values(features, metrics, models, metric, norms)
    if read is None:
        raise UserError(f"{metric}: its values or those of {', '.join(norms)} are not there")
    test = read.test(seed=seed, draws=draws)
    # The z of each configuration has one degree of freedom less than its test.
    low, high = fisher_interval(test.correlation, test.degrees_of_freedom - test.n_configurations)
    return pd.DataFrame(
        {
            "question": question,
            "feature": read.features.index.get_level_values("feature"),
            "n_models": test.n_runs,
            "n_configurations": test.n_configurations,
            "estimate": test.correlation,
            "low": low,
            "high": high,
            "p": test.p,
        }
    ).dropna(subset=["estimate"])


def partial_correlations(read: EarlyValues, features: Sequence[str]) -> dict[str, dict[str, float]]:
    """By configuration and feature: the correlation of what mean and controls of the configuration leave of feature and
    outcome."""
    values = read.features.droplevel(["source", "layer"]).loc[list(features)].to_numpy(np.float64)
    found = {}
    for configuration in dict.fromkeys(read.configurations):
        runs = np.flatnonzero([own == configuration for own in read.configurations])
        fit = fit_of_configuration(values, read.outcome[None], read.controls, runs)
        found[configuration] = dict(zip(features, fit.correlations(fit.residuals[None])[0].tolist(), strict=True))
    return found


def fisher_interval(correlation: Floats, degrees_of_freedom: Floats | float) -> tuple[Floats, Floats]:
    """Bounds of the 95% interval of correlations whose z has the variance 1 / degrees_of_freedom (Fisher 1921)."""
    with np.errstate(divide="ignore"):
        middle = np.arctanh(correlation)
    half = _HALF / np.sqrt(degrees_of_freedom)
    return np.tanh(middle - half), np.tanh(middle + half)


def later_loss(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, norms: Sequence[str]
) -> pd.DataFrame:
    """The norms, and the loss at `LATER` in the place of a feature: it tells the final one, so it must be found."""
    values = metrics[metrics["metric"] == VALIDATION_LOSS]
    ends = dict(zip(models["model"], models["final_step"], strict=True))
    later = value_at_share(values, ["metric"], LATER, ends).T.reset_index()
    later = later.rename(columns={VALIDATION_LOSS: "value"})
    control = later.assign(feature=f"loss_at_{LATER:.0%}", step=0, source="weights", layer="all")
    return pd.concat([features[features["feature"].isin(norms)], control])
