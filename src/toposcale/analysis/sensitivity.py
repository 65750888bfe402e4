"""Sensitivity of a run: a positive control, and the power of the tests of all runs together.

The positive control is the metric with noise that leaves a correlation of about 0.9. If it is not found, "no" means
nothing.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.aligned import Aligned, aligned_series, warmups_of
from toposcale.analysis.controls import FEW_CHECKPOINTS, FEW_OF_EACH, LEVEL, NO, NOT_TESTED, YES, Control, questions
from toposcale.analysis.correlations import run_weights
from toposcale.analysis.series import whole_model
from toposcale.io import schemas
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.prewhitening import (
    MIN_FOR_TEST,
    Prewhitened,
    SharedFlips,
    prewhiten,
    residual_test,
    with_squares,
)

CONTROL_CORRELATION = 0.9
POWER_WANTED = 0.8
SIMULATIONS = 200
EFFECTS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Correlations of prewhitened residuals that are simulated."""
CONTROL = 0
POWER = 1
"""Purposes of random numbers: each has its own stream."""

SIZE_RANGE = (2_936, 300_808)
"""Parameters of the smallest and the largest model of which false-positive rates were measured (docs/statistics.md)."""
MAX_RUNS_TOGETHER = 5
"""Most runs that were tested together there."""
MEASURED = f"measured at {SIZE_RANGE[0]:,} to {SIZE_RANGE[1]:,} parameters, up to {MAX_RUNS_TOGETHER} runs together"


def sensitivity_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, verdicts: pd.DataFrame, *, seed: int
) -> dict[str, pd.DataFrame]:
    """Make the tables sensitivity and power; verdicts over all runs: the number of tests sets the corrected threshold."""
    rows, curves = [], []
    for control in questions():
        if not control.is_tested:
            continue
        answers = verdicts[verdicts["question"] == control.question]
        p_values = answers["p"].to_numpy(np.float64)
        n_tested = int(np.isfinite(p_values).sum())
        simulated = SimulatedFeatures(features, metrics, models, control=control)
        row: dict[str, Any] = {"question": control.question, "control": control.name, "n_tested": n_tested}
        row |= {"n_runs": len(simulated.names), "outside": unmeasured_settings(models, simulated.names)}
        if not simulated.names or not n_tested:
            of_weights = answers[answers["source"] == "weights"]  # they have every checkpoint
            reason = (
                most_common_reason(of_weights["reason"])
                or most_common_reason(answers["reason"])
                or "nothing was measured"
            )
            reason += few_checkpoints_clause(whole_model(features))
            rows.append(row | {"found": NOT_TESTED, "reason": reason})
            continue
        (correlation,), (p,) = simulated.test(np.array([CONTROL_CORRELATION]), seed, CONTROL)
        q = float(benjamini_hochberg(np.append(p_values, p))[-1])
        effects = np.repeat(EFFECTS, SIMULATIONS)
        measured_correlations, simulated_p = simulated.test(effects, seed, POWER)
        curve = pd.DataFrame(
            {"planted": effects, "measured": measured_correlations, "found": simulated_p <= LEVEL / n_tested}
        )
        curve = curve.groupby("planted").mean().reset_index()
        curves.append(curve.assign(question=control.question, simulations=SIMULATIONS))
        row |= {"n_points": simulated.n_points, "correlation": correlation, "p": p, "q": q}
        limit = detectable_correlation(curve["measured"].to_numpy(), curve["found"].to_numpy())
        rows.append(row | {"found": YES if q <= LEVEL else NO, "detectable": limit})
    power = pd.concat(curves, ignore_index=True) if curves else pd.DataFrame()
    return {"sensitivity": schemas.TABLES["sensitivity"].frame(rows), "power": schemas.TABLES["power"].frame(power)}


def few_checkpoints_clause(features: pd.DataFrame) -> str:
    """Return that the checkpoints are too few for power; "" if they are enough, or too few even for a test."""
    counts = features.groupby("model")["step"].nunique()
    most = int(counts.max()) if len(counts) else 0
    if MIN_FOR_TEST <= most < (FEW_CHECKPOINTS if len(counts) == 1 else FEW_OF_EACH):
        return f"; and {most} checkpoints are few: a correlation of 0.7 takes {FEW_CHECKPOINTS}"
    return ""


def unmeasured_settings(models: pd.DataFrame, tested: Collection[str]) -> str:
    """Describe where the false-positive rate was not measured, as "the sizes of 2 of 5 models"; "" if it was."""
    trainings = models[models["model"].isin(tested)]
    sizes = trainings["n_parameters"] if "n_parameters" in trainings else pd.Series(float("nan"), index=trainings.index)
    n_outside = int((~sizes.astype(float).between(*SIZE_RANGE)).sum())  # an unknown size lies outside
    differences = [f"the sizes of {n_outside} of {len(trainings)} models"] if n_outside else []
    if len(trainings) > MAX_RUNS_TOGETHER:
        differences.append(f"{len(trainings)} runs together")
    return " and ".join(differences)


def most_common_reason(reasons: pd.Series) -> str:
    """Return the most frequent reason."""
    common = reasons[reasons != ""].mode()
    return str(common.iloc[0]) if len(common) else ""


def detectable_correlation(correlations: Floats, shares: Floats) -> float:
    """Return the least correlation that is detected with a power of `POWER_WANTED` in the simulation; NaN without one."""
    enough = shares >= POWER_WANTED
    if not enough[-1]:
        return float("nan")
    if enough.all():
        return float(correlations[0])
    last = int(np.flatnonzero(~enough)[-1])
    share = (POWER_WANTED - shares[last]) / (shares[last + 1] - shares[last])
    return float(correlations[last] + share * (correlations[last + 1] - correlations[last]))


class SimulatedFeatures:
    """Simulated features for the test of prewhitened residuals; runs: the longest testable segment of each of `names`."""

    def __init__(
        self, features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, control: Control
    ) -> None:
        warmups = warmups_of(models)
        best: dict[str, Aligned] = {}
        for group in aligned_series(whole_model(features), metrics, control):
            segment, reason = group.testable(warmups)
            if reason or np.isnan(_prewhitened(segment).values).any():
                continue
            if group.model not in best or segment.n > best[group.model].n:
                best[group.model] = segment
        self.names = sorted(best)
        self.runs = [best[model] for model in self.names]
        self._weights = run_weights(set(best), models)

    @property
    def n_points(self) -> int:
        """Median number of checkpoints of a run."""
        return int(np.median([run.n for run in self.runs]))

    def test(self, effects: Floats, seed: int, purpose: int) -> tuple[Floats, Floats]:
        """Test one feature per correlation of residuals in `effects`; return measured correlations and p-values."""
        pool = SharedFlips(len(effects), np.concatenate([run.steps for run in self.runs]))
        correlations, total = np.zeros(len(effects)), 0.0
        for index, run in enumerate(self.runs):
            prewhitened = _prewhitened(run)
            residual_sd = np.sqrt(
                (prewhitened.values**2).sum(axis=1) / (prewhitened.values.shape[1] - prewhitened.n_fitted)
            )[:, None]
            random = np.random.default_rng([seed, purpose, index])
            scale = run.targets.std() * residual_sd * np.sqrt(1.0 / effects[:, None] ** 2 - 1.0)
            noisy = run.targets + scale * random.standard_normal((len(effects), run.n))
            test = residual_test(noisy, run.targets, with_squares(run.controls))
            weight = self._weights[run.model]
            pool.add(test, run.steps, weight=weight)
            correlations += weight * np.nan_to_num(test.correlation[:, 0])
            total += weight
        return correlations / total, pool.p_values()


def _prewhitened(run: Aligned) -> Prewhitened:
    """Prewhiten the metric as `residual_test` does."""
    return prewhiten(run.targets, with_squares(run.controls), half_cosine=True)
