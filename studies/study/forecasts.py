"""Does topology improve the forecast of the final loss? Grouped cross-validation over many runs; exploratory.

Every model reads what is known at `SHARE` of the training: the losses so far, the plan and the size; beside them norms and
spectra, or topology too. Whole configurations, or whole sizes, are left out, forecast from the others, and compared run
by run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from toposcale.analysis.over_seeds import EARLY, SHARE, value_at_share
from toposcale.forecasting.laws.ridge import is_topological
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats

PLAN = ("learning_rate", "weight_decay", "data_fraction")
PERMUTATIONS = 99
Predict = Callable[[Floats, Floats, Floats], Floats]


def forecast_table(
    series: pd.DataFrame, early: pd.DataFrame, models: pd.DataFrame, *, seed: int = 42, permutations: int = PERMUTATIONS
) -> pd.DataFrame:
    """Mean absolute errors of the three sets of predictors, by what is left out and by method, and what topology adds.

    gain: error with norms and spectra less error with topology too, the mean over configurations; its 95% interval is
    Student's over configurations where configurations are left out, and is empty where sizes are, of which there are
    too few. p: share of `permutations` of the topology within the configurations with as large a gain; ridge alone,
    whose fits are cheap.
    """
    sets, target, runs = predictors(series, early, models)
    rows = []
    for left_out, column in (("configurations", "configuration"), ("sizes", "n_parameters")):
        groups = runs[column].to_numpy()
        for method, predict in (("ridge", _ridge), ("gradient boosting", _boosting)):
            errors = {name: _errors(table, target, groups, predict) for name, table in sets.items()}
            gain, half = _gain(errors, runs["configuration"].to_numpy())
            half = half if left_out == "configurations" else np.nan
            p = np.nan
            if method == "ridge":
                p = _chance(sets, target, groups, runs["configuration"].to_numpy(), errors, seed, permutations)
            rows.append(
                {
                    "left_out": left_out,
                    "method": method,
                    "n_models": len(target),
                    **{f"error_{name}": float(values.mean()) for name, values in errors.items()},
                    "gain": gain,
                    "gain_low": gain - half,
                    "gain_high": gain + half,
                    "p": p,
                }
            )
    return pd.DataFrame(rows)


def gain_row(
    sets: dict[str, Floats], target: Floats, groups: NDArray[Any], configurations: NDArray[Any]
) -> tuple[float, float, float]:
    """What topology adds to ridge regression where groups of runs are left out: its gain and the 95% interval."""
    errors = {name: _errors(sets[name], target, groups, _ridge) for name in ("plain", "topology")}
    gain, half = _gain(errors, configurations)
    return gain, gain - half, gain + half


def _gain(errors: dict[str, Floats], configurations: NDArray[Any]) -> tuple[float, float]:
    """The gain of topology, mean over configurations, and half of its 95% interval."""
    gain = pd.Series(errors["plain"] - errors["topology"]).groupby(configurations).mean()
    return float(gain.mean()), float(stdtrit(len(gain) - 1, 0.975) * gain.std(ddof=1) / np.sqrt(len(gain)))


def predictors(
    series: pd.DataFrame, early: pd.DataFrame, models: pd.DataFrame, *, products: bool = False
) -> tuple[dict[str, Floats], Floats, pd.DataFrame]:
    """The predictors (runs, p) of each set, the final losses (runs,), and the runs, in one order.

    products: whether those of loss, rate and size are among them.
    """
    runs = models.sort_values("model", ignore_index=True)
    names = runs["model"]
    ends = dict(zip(names, runs["final_step"].astype(float), strict=True))
    losses = series[["model", "step"]].assign(metric=VALIDATION_LOSS, value=series[VALIDATION_LOSS])
    before, now, final = (
        value_at_share(losses, ["metric"], share, ends).reindex(columns=names).to_numpy()[0]
        for share in (EARLY, SHARE, 1.0)
    )
    plan = runs[[key for key in PLAN if key in runs]].to_numpy(np.float64)
    base = np.column_stack([before, now, now**2, plan, np.log(runs["n_parameters"].to_numpy(np.float64))])
    if products:
        size, rate = base[:, -1], np.log(runs["learning_rate"].to_numpy(np.float64))
        base = np.column_stack([base, now * rate, now * size, rate * size, now * rate * size])
    values = early.set_index("model").drop(columns="step").reindex(names)
    values = values.loc[:, np.isfinite(values.to_numpy()).all(axis=0)]
    topological = np.array([is_topological(feature) for feature in values.columns], dtype=bool)
    plain = np.column_stack([base, values.to_numpy()[:, ~topological]])
    topology = np.column_stack([plain, values.to_numpy()[:, topological]])
    return {"loss": base, "plain": plain, "topology": topology}, final, runs


def _errors(table: Floats, target: Floats, groups: NDArray[Any], predict: Predict) -> Floats:
    """Absolute error of every run, forecast from the runs of the other groups."""
    errors = np.empty(len(target))
    for group in np.unique(groups):
        held = groups == group
        errors[held] = np.abs(predict(table[~held], target[~held], table[held]) - target[held])
    return errors


def _chance(
    sets: dict[str, Floats],
    target: Floats,
    groups: NDArray[Any],
    configurations: NDArray[Any],
    errors: dict[str, Floats],
    seed: int,
    permutations: int,
) -> float:
    """Share of permutations in which topology helps as much.

    Permuted among the runs of each configuration is the part of topology that the other predictors and the
    configuration do not explain.
    """
    random, plain = np.random.default_rng(seed), sets["plain"]
    own = np.column_stack([plain, *(configurations == configuration for configuration in np.unique(configurations))])
    own = own / np.maximum(np.abs(own).max(axis=0), 1e-300)
    topology = sets["topology"][:, plain.shape[1] :]
    fitted = own @ np.linalg.lstsq(own, topology, rcond=None)[0]
    observed, as_good = errors["topology"].mean(), 1
    for _ in range(permutations):
        order = np.arange(len(target))
        for configuration in np.unique(configurations):
            order[configurations == configuration] = random.permutation(order[configurations == configuration])
        table = np.column_stack([plain, fitted + (topology - fitted)[order]])
        as_good += _errors(table, target, groups, _ridge).mean() <= observed
    return as_good / (permutations + 1)


def _ridge(design: Floats, target: Floats, rows: Floats) -> Floats:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 7)))
    return np.asarray(model.fit(design, target).predict(rows))


def _boosting(design: Floats, target: Floats, rows: Floats) -> Floats:
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(max_depth=3, subsample=0.8, learning_rate=0.05, random_state=0)
    return np.asarray(model.fit(design, target).predict(rows))
