"""Across settings: `PYTHONPATH=workflow python -m studies.controls.settings TABLES` (question 3 of the plan).

Does topology at 30% of the training, with loss, norms, spectrum and rate, predict the final loss of a setting that was
not seen? It writes `gains.csv`, `stopping.csv` and `errors.csv`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from studies import small_tables
from studies.controls.study_4 import POWER
from studies.norms import MEAN_ROW_NORM
from studies.nulls.configurations import RUNS, table_of
from studies.over_seeds import EARLY, LATER, SHARE, value_at_share
from studies.study4.configurations import loss_column
from toposcale.statistics.coefficients import Floats

LOSSES = (loss_column(EARLY), loss_column(SHARE))
LOGS = ("learning_rate", "n_parameters", "batch_size", "frobenius_norm", MEAN_ROW_NORM, "nuclear_norm")
TOPOLOGY_LOGS = ("h0_total", "h0_mean", "neural_persistence", "h1_total")
SCORE = "h0_surrogate_z"
PENALTIES = np.logspace(-4, 3, 15)
WIDTHS = (0.5, 1.0, 2.0, 4.0)
"""Widths of the Gaussian kernel, in units of the square root of the number of columns."""
GROUP = 8
"""Settings that start together in a decision on early stopping."""
KEPT = 4
"""Settings of a group that go on after 30% of the training."""
GROUPS = 2000
RESAMPLES = 1000
GROUPS_OF_RESAMPLE = 200
"""Groups that are drawn in each resample of the bootstrap."""
POLICIES = ("loss at 30%", "base", "with topology", "at random")


def base_columns(table: pd.DataFrame) -> Floats:
    """Return the base predictors (n, c) of settings, a row each."""
    columns = [table[name].to_numpy(np.float64) for name in LOSSES]
    columns += [np.log(table[name].to_numpy(np.float64)) for name in LOGS]
    columns.append((table["optimizer"] == "signum").to_numpy(np.float64))
    return np.column_stack(columns)


def added_columns(table: pd.DataFrame, seed: int = 42) -> dict[str, Floats]:
    """Return what is added to the base: topology, and as controls the loss at half of the training, and noise."""
    topology = [np.log(table[name].to_numpy(np.float64)) for name in TOPOLOGY_LOGS]
    if SCORE in table:
        topology.append(table[SCORE].to_numpy(np.float64))
    noise = np.random.default_rng(seed).standard_normal((len(table), len(topology)))
    later = table[[loss_column(LATER)]].to_numpy(np.float64)
    return {"topology": np.column_stack(topology), "loss at 50%": later, "noise": noise}


def standardised_columns(training: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return columns that vary in the training rows, in units of their mean and deviation there."""
    varying = training.std(axis=0) > 1e-12
    mean, deviation = training[:, varying].mean(axis=0), training[:, varying].std(axis=0)
    return (training[:, varying] - mean) / deviation, (other[:, varying] - mean) / deviation


def ridge_prediction(training: Floats, target: Floats, other: Floats) -> Floats:
    """Predict by ridge regression; the penalty has the least leave-one-out error."""
    left, strength, right = np.linalg.svd(training, full_matrices=False)
    centred = target - target.mean()
    best, errors = None, np.inf
    for penalty in PENALTIES:
        share = strength**2 / (strength**2 + penalty)
        hat = (left**2) @ share + 1 / len(target)
        error = np.abs((centred - left @ (share * (left.T @ centred))) / (1 - hat)).mean()
        if error < errors:
            best, errors = penalty, error
    weights = right.T @ (strength / (strength**2 + best) * (left.T @ centred))
    return np.asarray(other @ weights + target.mean())


def kernel_prediction(training: Floats, target: Floats, other: Floats) -> Floats:
    """Predict by kernel ridge regression; penalty and width have the least leave-one-out error."""
    centred, best, errors = target - target.mean(), None, np.inf
    for width in WIDTHS:
        values, vectors = np.linalg.eigh(_kernel(training, training, width))
        for penalty in PENALTIES:
            inverse = (vectors / (values + penalty)) @ vectors.T
            error = np.abs(inverse @ centred / np.diag(inverse)).mean()
            if error < errors:
                best, errors = (width, inverse @ centred), error
    assert best is not None
    return np.asarray(_kernel(other, training, best[0]) @ best[1] + target.mean())


def _kernel(first: Floats, second: Floats, width: float) -> Floats:
    squares = ((first[:, None] - second[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squares / (2 * width**2 * first.shape[1])))


def predictions(base: Floats, added: Floats | None, target: Floats, method: str) -> Floats:
    """Predict the target (n,) of each setting from all others."""
    predicted = np.empty(len(target))
    for index in range(len(target)):
        kept = np.arange(len(target)) != index
        training, other = standardised_columns(base[kept], base[~kept])
        if method == "ridge":
            training, other = np.hstack([training, training**2]), np.hstack([other, other**2])
        if added is not None:
            more, of_other = standardised_columns(added[kept], added[~kept])
            training, other = np.hstack([training, more]), np.hstack([other, of_other])
        # What is far outside of the training rows is not extrapolated.
        other = np.clip(other, training.min(axis=0), training.max(axis=0))
        predict = ridge_prediction if method == "ridge" else kernel_prediction
        predicted[index] = predict(training, target[kept], other)[0]
    return predicted


def gain_row(without: Floats, with_added: Floats) -> dict[str, float]:
    """Return the mean gain of errors (n,) of two predictions with its 95% t interval, and what is found in 80%."""
    gain = without - with_added
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    half = t.ppf(0.975, len(gain) - 1) * error
    row = {"error_without": without.mean(), "error_with": with_added.mean(), "gain": gain.mean()}
    row |= {"low": gain.mean() - half, "high": gain.mean() + half}
    return row | {"detectable": error * (norm.ppf(0.975) + norm.ppf(POWER))}


def new_settings(folder: Path) -> tuple[pd.DataFrame, int]:
    """Return the settings that were trained to their end, and how many diverged."""
    table = pd.read_csv(folder / "settings.csv")
    finished = np.isfinite(table[loss_column(1.0)])
    return table[finished].reset_index(drop=True), int((~finished).sum())


def third_study() -> pd.DataFrame:
    """Return the settings of study 3: the means over their seeds."""
    models, series, early = (table_of(RUNS / "study-3", name) for name in ("models", "series", "early"))
    ends = dict(zip(models["model"], models["final_step"], strict=True))
    losses = series[["model", "step"]].assign(metric="loss", value=series["validation_loss"])
    table = models.merge(early.drop(columns="step"), on="model")
    for share in (EARLY, SHARE, LATER, 1.0):
        values = value_at_share(losses, ["metric"], share, ends).iloc[0]
        table[loss_column(share)] = table["model"].map(values)
    names = [loss_column(share) for share in (EARLY, SHARE, LATER, 1.0)]
    return (
        table.groupby("configuration")[[*names, *LOGS, *TOPOLOGY_LOGS]].mean().reset_index().assign(optimizer="adamw")
    )


def analyse(name: str, table: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of `gains`, of `stopping`, and of `errors` of each setting."""
    base, more = base_columns(table), added_columns(table)
    early, final = table[loss_column(SHARE)].to_numpy(np.float64), table[loss_column(1.0)].to_numpy(np.float64)
    target = final - early
    rows: dict[str, list[dict[str, Any]]] = {"gains": [], "stopping": [], "errors": []}
    for method in ("ridge", "kernel ridge"):
        plain = predictions(base, None, target, method)
        errors = {"nothing": np.abs(plain - target)}
        for added, columns in more.items():
            fuller = predictions(base, columns, target, method)
            errors[added] = np.abs(fuller - target)
            key = {"settings": name, "method": method, "added": added, "n": len(table)}
            rows["gains"].append(key | gain_row(errors["nothing"], errors[added]))
            if added == "topology" and method == "ridge":
                ranked = {"loss at 30%": early, "base": early + plain, "with topology": early + fuller}
                rows["stopping"] += [{"settings": name} | row for row in stopping_rows(ranked, final)]
        key = {"settings": name, "method": method}
        rows["errors"] += [
            key | dict(zip(errors, values, strict=True)) for values in zip(*errors.values(), strict=True)
        ]
    return rows


def mean_regret(scores: Floats, final: Floats, groups: np.ndarray, random: np.random.Generator) -> Floats:
    """Return the regret of each group (G, n) of settings when only the `KEPT` lowest scores go on."""
    order = scores[groups] + 1e-12 * random.standard_normal(groups.shape)
    kept = np.take_along_axis(groups, np.argsort(order, axis=1)[:, :KEPT], axis=1)
    return np.asarray(final[kept].min(axis=1) - final[groups].min(axis=1))


def drawn_groups(n: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Return groups (count, GROUP) of different settings."""
    return np.argsort(random.random((count, n)), axis=1)[:, :GROUP]


def stopping_rows(ranked: Mapping[str, Floats], final: Floats, seed: int = 42) -> Iterator[dict[str, Any]]:
    """Yield the mean regret of each policy, and the difference that topology makes, with bootstrap intervals."""
    random = np.random.default_rng(seed)
    scores = dict(ranked) | {"at random": np.zeros(len(final))}
    groups = drawn_groups(len(final), GROUPS, random)
    means = {name: mean_regret(score, final, groups, random).mean() for name, score in scores.items()}
    drawn: dict[str, list[float]] = {name: [] for name in scores}
    for _ in range(RESAMPLES):
        resample = random.integers(len(final), size=len(final))
        groups = drawn_groups(len(final), GROUPS_OF_RESAMPLE, random)
        for name, score in scores.items():
            drawn[name].append(float(mean_regret(score[resample], final[resample], groups, random).mean()))
    for name in POLICIES:
        yield {"policy": name, "regret": means[name]} | _percentiles(drawn[name])
    difference = np.array(drawn["with topology"]) - np.array(drawn["base"])
    yield {"policy": "with topology less base", "regret": means["with topology"] - means["base"]} | _percentiles(
        difference
    )


def _percentiles(values: Sequence[float] | Floats) -> dict[str, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return {"low": float(low), "high": float(high)}


def main(folder: Path) -> None:
    """Write and print the tables."""
    table, diverged = new_settings(folder)
    results = [analyse("new", table), analyse("study 3", third_study())]
    print(f"{len(table)} settings, and {diverged} that diverged\n")
    for name in ("gains", "stopping", "errors"):
        rows = pd.DataFrame([row for result in results for row in result[name]])
        small_tables.write(rows, folder / f"{name}.csv")
        if name != "errors":
            print(small_tables.markdown(rows), end="\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
