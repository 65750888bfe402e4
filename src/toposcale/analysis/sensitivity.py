"""What a run could have shown: a positive control, and the power of the pooled innovation test on runs of this shape.

The positive control is the metric itself, with noise that leaves the test a correlation of about 0.9. It goes through the
same test as one more feature of the same family. Where it is not found, a "no" of the run means nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.partial_correlations import run_test
from toposcale.analysis.pooled import run_weights
from toposcale.analysis.series import Aligned, aligned_series, cells_of, warmups_of, whole_model
from toposcale.io import schemas
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.innovations import innovation_products, innovations, with_squares
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.shared_flips import SharedFlips

LEVEL = 0.05
CONTROL_CORRELATION = 0.9
POWER_WANTED = 0.8
SIMULATIONS = 200
EFFECTS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Correlations of innovations that are simulated."""
CONTROL, POWER = range(2)


def sensitivity_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, verdicts: pd.DataFrame, *, seed: int
) -> dict[str, pd.DataFrame]:
    """The tables sensitivity and power.

    verdicts: the rows of one family, with a p-value each: how many they are sets how strong one feature must be alone.
    """
    rows, curves = [], []
    for question, given in (("beyond_the_norm", "weight_norm"), ("beyond_the_step", "step")):
        runs = testable_runs(features, metrics, models, given)
        family = verdicts[f"{question}_p"].to_numpy(np.float64)
        n_tested = int(np.isfinite(family).sum())
        row = {"question": question, "given": given, "n_tested": n_tested, "n_runs": len(runs)}
        if not runs or not n_tested:
            rows.append(row | {"found": "not tested", "reason": _why_not(verdicts, f"{question}_reason")})
            continue
        weights = run_weights({run.model for run in runs}, cells_of(models))
        control = simulated(runs, weights, given, np.array([CONTROL_CORRELATION]), seed, CONTROL)
        p_value = float(control[1][0])
        q_value = float(benjamini_hochberg(np.append(family, p_value))[-1])
        effects = np.repeat(EFFECTS, SIMULATIONS)
        measured, p_values = simulated(runs, weights, given, effects, seed, POWER)
        curve = pd.DataFrame(
            {"planted": effects, "measured": measured, "found": p_values <= LEVEL / n_tested}
        )
        curve = curve.groupby("planted").mean().reset_index()
        curves.append(curve.assign(question=question, simulations=SIMULATIONS))
        rows.append(
            row
            | {
                "n_points": int(np.median([run.n for run in runs])),
                "control_correlation": float(control[0][0]),
                "control_p": p_value,
                "control_q": q_value,
                "found": "yes" if q_value <= LEVEL else "no",
                "detectable": detectable(curve["measured"].to_numpy(), curve["found"].to_numpy()),
            }
        )
    power = pd.concat(curves, ignore_index=True) if curves else pd.DataFrame()
    return {
        "sensitivity": schemas.TABLES["sensitivity"].frame(rows),
        "power": schemas.TABLES["power"].frame(power),
    }


def _why_not(verdicts: pd.DataFrame, column: str) -> str:
    """The reason that most features of the weights give, which have every checkpoint; without any, most features."""
    of_weights = verdicts.loc[verdicts["source"] == "weights", column]
    return most_common(of_weights) or most_common(verdicts[column]) or "nothing was measured"


def most_common(reasons: pd.Series) -> str:
    """The reason that most rows give."""
    common = reasons[reasons != ""].mode()
    return str(common.iloc[0]) if len(common) else ""


def detectable(correlations: Floats, found: Floats) -> float:
    """The correlation from which on at least `POWER_WANTED` of the simulated features are found; NaN where none is."""
    enough = found >= POWER_WANTED
    if not enough[-1]:
        return float("nan")
    if enough.all():
        return float(correlations[0])
    last = int(np.flatnonzero(~enough)[-1])
    share = (POWER_WANTED - found[last]) / (found[last + 1] - found[last])
    return float(correlations[last] + share * (correlations[last + 1] - correlations[last]))


def testable_runs(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, given: str
) -> list[Aligned]:
    """The testable stretch of each run, by the group of features that has the most points."""
    warmups = warmups_of(models)
    best: dict[str, Aligned] = {}
    for group in aligned_series(whole_model(features), metrics):
        test, cut, _ = run_test(group, warmups, given_norm=given != "step", alone=False)
        if test is None or np.isnan(innovations(cut.targets, _controls(cut, given)).values).any():
            continue
        if group.model not in best or cut.n > best[group.model].n:
            best[group.model] = cut
    return [best[model] for model in sorted(best)]


def _controls(run: Aligned, given: str) -> Floats | None:
    return None if given == "step" or run.norms is None else with_squares(run.norms)


def simulated(
    runs: list[Aligned], weights: dict[str, float], given: str, effects: Floats, seed: int, purpose: int
) -> tuple[Floats, Floats]:
    """Features that are the metric and noise, one for each of `effects`: their mean correlation over runs, and p-values."""
    pool = SharedFlips(len(effects), np.concatenate([run.steps for run in runs]))
    measured, total = np.zeros(len(effects)), 0.0
    for place, run in enumerate(runs):
        controls = _controls(run, given)
        new = innovations(run.targets, controls)
        size = np.sqrt((new.values**2).sum(axis=1) / (new.values.shape[1] - new.n_fitted))[:, None]
        random = np.random.default_rng([seed, purpose, place])
        scale = run.targets.std() * size * np.sqrt(1.0 / effects[:, None] ** 2 - 1.0)
        noisy = run.targets + scale * random.standard_normal((len(effects), run.n))
        test = innovation_products(noisy, run.targets, controls)
        pool.add(test, run.steps, weight=weights[run.model])
        measured += weights[run.model] * np.nan_to_num(test.correlation[:, 0])
        total += weights[run.model]
    return measured / total, pool.p_values()
