"""What studies over seeds share: the run permutation as rows of results, intervals, and what must be found between runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtri

from toposcale.analysis.controls import CONTROLS, Control
from toposcale.analysis.over_seeds import paired_innovations, value_at_share
from toposcale.analysis.series import SERIES_KEY
from toposcale.features.names import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.permutations import DRAWS
from toposcale.statistics.run_permutation import pair_correlations, permute_pairs

LATER = 0.5
"""Share of the training at which the loss tells the final one so well that every test between runs must find it."""
_HALF = float(ndtri(0.975))


def within_rows(
    question: str,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    seed: int,
    *,
    control: Control = CONTROLS["weight_norm"],
    draws: int = DRAWS,
) -> pd.DataFrame:
    """A row for each feature: how much more its innovations go with the loss of its own run than with its sisters'.

    The estimate is that surplus, mean over runs; its 95% interval is normal; p is of the run permutation.
    """
    rows = []
    for paired in paired_innovations(features, metrics, models, metric=VALIDATION_LOSS, control=control):
        table = pair_correlations(paired.x, paired.y, paired.controls)[:, 0]
        test = permute_pairs(table, paired.cells, draws=draws, seed=seed)
        for place, key in enumerate(paired.keys):
            own = own_surplus(table[place], paired.cells)
            half = _HALF * own.std(ddof=1) / np.sqrt(len(own))
            rows.append(
                {
                    "question": question,
                    "feature": dict(zip(SERIES_KEY, key, strict=True))["feature"],
                    "n_models": len(own),
                    "n_cells": len(set(paired.cells)),
                    "estimate": own.mean(),
                    "low": own.mean() - half,
                    "high": own.mean() + half,
                    "p": float(test.p[place]),
                }
            )
    return pd.DataFrame(rows)


def own_surplus(correlations: Floats, cells: Sequence[object]) -> Floats:
    """(R,) of the correlations (R, R) of run i's feature with run j's loss: a run's own, less the mean over the pairs that
    it is in with its sisters."""
    labels = np.array(cells)
    sisters = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    with_others = np.where(sisters, (correlations + correlations.T) / 2, 0.0)
    return np.diag(correlations) - with_others.sum(axis=1) / sisters.sum(axis=1)


def fisher_interval(correlation: Floats, freedom: float) -> tuple[Floats, Floats]:
    """Bounds of the 95% interval of correlations whose z has the variance 1 / freedom (Fisher 1921)."""
    with np.errstate(divide="ignore"):
        middle = np.arctanh(correlation)
    half = _HALF / np.sqrt(freedom)
    return np.tanh(middle - half), np.tanh(middle + half)


def later_loss(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, norms: Sequence[str]
) -> pd.DataFrame:
    """The norms, and the loss at `LATER` in the place of a feature: it tells the final loss, so it must be found."""
    losses = metrics[metrics["metric"] == VALIDATION_LOSS]
    ends = dict(zip(models["model"], models["final_step"], strict=True))
    later = value_at_share(losses, ["metric"], LATER, ends).T.reset_index()
    later = later.rename(columns={VALIDATION_LOSS: "value"})
    control = later.assign(feature=f"loss_at_{LATER:.0%}", step=0, source="weights", layer="all")
    return pd.concat([features[features["feature"].isin(norms)], control])
