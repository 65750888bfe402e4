"""The questions of `test_metric` between runs: given the loss so far, does a metric tell which run will end lower?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import LEVEL
from toposcale.analysis.metric_input import STEP, MetricTable
from toposcale.analysis.metric_questions import (
    CONTROLS_DRAWN,
    HALF_WIDTH,
    PLACEBOS,
    Question,
    answered,
    given_words,
    untestable,
)
from toposcale.analysis.sensitivity import EFFECTS, SIMULATIONS, detectable_correlation
from toposcale.io.errors import counted
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration, members_of

MIN_RUNS = 12
"""Runs, or settings, that are compared at least."""
MIN_SEEDS = 8
"""Seeds of a setting that is compared: fewer have too few orders for a p-value."""
EARLIER = 2 / 3
"""Share of the time until the metric is read at which the loss is held fixed, too."""
SIMULATED_DRAWS = 999


def between_answers(data: MetricTable, share: float, seed: int) -> pd.DataFrame:
    """Answer the questions between runs: of all runs, or with settings between their seeds and between them."""
    values = values_of_runs(data, share)
    if not data.settings:
        return _answers(data, Question.BETWEEN, values, ["all"] * len(values), share, seed)
    labels = values.index.map(data.settings)
    counts = labels.value_counts()
    seeds = values[[counts[label] >= MIN_SEEDS for label in labels]]
    means = values.groupby(labels).mean()
    return pd.concat(
        [
            _answers(data, Question.SEEDS, seeds, [data.settings[run] for run in seeds.index], share, seed),
            _answers(data, Question.SETTINGS, means, ["all"] * len(means), share, seed),
        ],
        ignore_index=True,
    )


def values_of_runs(data: MetricTable, share: float) -> pd.DataFrame:
    """Return a row per run: loss at its end, `now` and `earlier`, covariates and metrics at a share; without a gap."""
    columns, rows = [*data.given, *data.metrics], {}
    for run, of_run in data.rows.groupby("run"):
        values = of_run.set_index(STEP)[list(dict.fromkeys([data.target, *columns]))].ffill()
        until = [values[values.index <= part * share * values.index[-1] + 1e-6] for part in (EARLIER, 1)]
        if all(map(len, until)):
            losses = {"end": values[data.target].iloc[-1], "now": until[1][data.target].iloc[-1]}
            read = {f"at {name}": until[1][name].iloc[-1] for name in columns}
            rows[str(run)] = losses | {"earlier": until[0][data.target].iloc[-1]} | read
    return pd.DataFrame.from_dict(rows, orient="index")


def _answers(
    data: MetricTable, question: Question, values: pd.DataFrame, labels: Sequence[str], share: float, seed: int
) -> pd.DataFrame:
    """Answer a question from a row of values per run, compared within its label."""
    reasons = {name: untestable(data, name, by_run=False) for name in data.metrics}
    shared = {"question": question, "target": data.target, "given": given_words(data)}
    needed = ["end", "now", "earlier", *(f"at {name}" for name in data.given)]
    rows = []
    for name in data.metrics:
        row: dict[str, Any] = {"metric": name, **shared, "n_runs": 0, "p": np.nan, "reason": reasons[name]}
        if not reasons[name] and len(values):
            whole = values[[*needed, f"at {name}"]].notna().all(axis=1).to_numpy()
            kept = [label for label, is_whole in zip(labels, whole, strict=True) if is_whole]
            row |= _tested(values[whole], kept, f"at {name}", needed, list(reasons.values()).count(""), seed)
        if not row["reason"] and "estimate" not in row:
            row["reason"] = _missing(question, row["n_runs"], share)
        rows.append(row)
    return answered(pd.DataFrame(rows))


def _missing(question: Question, count: int, share: float) -> str:
    """Say what a comparison of runs takes."""
    if question is Question.SEEDS:
        return f"no setting has {MIN_SEEDS} runs with the metric and the loss at {share:.0%}, or they do not differ"
    noun = "setting" if question is Question.SETTINGS else "finished run"
    return f"{counted(count, noun)} with the metric and the loss at {share:.0%}; it takes {MIN_RUNS} that differ"


def _tested(
    values: pd.DataFrame, labels: Sequence[str], name: str, needed: Sequence[str], n_tested: int, seed: int
) -> dict[str, Any]:
    """Test a metric of runs: partial correlation with the end, p by permutation, power, placebos and gain."""
    if len(values) < MIN_RUNS:
        return {"n_runs": len(values)}
    table = values.assign(label=labels)
    square = (table["now"] - table.groupby("label")["now"].transform("mean")) ** 2
    controls = np.vstack([table[needed[1:]].to_numpy(np.float64).T, square])
    outcome, metric = table["end"].to_numpy(np.float64), table[name].to_numpy(np.float64)
    test = between_runs(metric, outcome, labels, controls, seed=seed)
    row: dict[str, Any] = {"n_runs": test.n_runs, "p": test.p[0], "estimate": test.correlation[0]}
    if not np.isfinite(test.p[0]):
        return {"n_runs": len(values)}
    spare = test.degrees_of_freedom - test.n_configurations
    half = HALF_WIDTH / np.sqrt(spare) if spare > 0 else np.inf
    middle = np.arctanh(np.clip(test.correlation[0], -1 + 1e-12, 1 - 1e-12))
    random = np.random.default_rng([seed, len(values)])
    effects = np.concatenate([np.repeat(EFFECTS, SIMULATIONS), np.zeros(PLACEBOS)])
    simulated = between_runs(
        _planted(metric, outcome, controls, labels, effects, random), outcome, labels, controls, draws=SIMULATED_DRAWS
    )
    found = (simulated.p <= LEVEL / n_tested)[:-PLACEBOS].reshape(len(EFFECTS), -1).mean(axis=1)
    limit = detectable_correlation(np.array(EFFECTS), found)
    control = np.nan
    if np.isfinite(limit):
        again = _planted(metric, outcome, controls, labels, np.full(CONTROLS_DRAWN, limit), random)
        again_p = between_runs(again, outcome, labels, controls, draws=SIMULATED_DRAWS).p
        control = float((again_p <= LEVEL / n_tested).mean())
    return row | {
        "low": np.tanh(middle - half),
        "high": np.tanh(middle + half),
        "detectable": limit,
        "positive_control": control,
        "false_positive_rate": float((simulated.p[-PLACEBOS:] <= LEVEL).mean()),
        "gain": gain(metric, outcome, controls, labels),
        "reason": "" if np.isfinite(limit) or test.p[0] <= LEVEL else "with so few runs no correlation would be found",
    }


def _planted(
    metric: Floats,
    outcome: Floats,
    controls: Floats,
    labels: Sequence[str],
    effects: Floats,
    random: np.random.Generator,
) -> Floats:
    """Return a simulated metric (S, R) for each partial correlation; one of 0 has the metric's own residuals, permuted."""
    simulated = np.zeros((len(effects), len(metric)))
    for runs in members_of(labels):
        fit = fit_of_configuration(metric[None], outcome[None], controls, runs)
        scale = np.sqrt((fit.residuals**2).sum() / max(fit.degrees_of_freedom, 1))
        signal = fit.residuals / scale if scale > 0 else fit.residuals
        own = np.tile(fit.features * np.sqrt(max(fit.degrees_of_freedom, 1)), (len(effects), 1))
        noise = np.where(effects[:, None] == 0, random.permuted(own, axis=1), random.standard_normal(own.shape))
        simulated[:, runs] = effects[:, None] * signal + np.sqrt(1 - effects[:, None] ** 2) * noise
    return simulated


def gain(metric: Floats, outcome: Floats, controls: Floats, labels: Sequence[str]) -> float:
    """Return by what share the metric reduces the error of the end of runs that the fit has not seen, one left out each."""
    errors = np.zeros(2)
    for runs in members_of(labels):
        fit = fit_of_configuration(metric[None], outcome[None], controls, runs)
        for place, design in enumerate((fit.design, np.vstack([fit.design, fit.features]))):
            basis = np.linalg.svd(design / np.linalg.norm(design, axis=1, keepdims=True), full_matrices=False)[2]
            leverage = (basis**2).sum(axis=0)
            residuals = outcome[runs] - basis.T @ (basis @ outcome[runs])
            errors[place] += ((residuals / np.maximum(1.0 - leverage, 1e-9)) ** 2).sum()
    return float(1.0 - np.sqrt(errors[1] / errors[0])) if errors[0] > 0 else float("nan")
