"""Features and losses of four models with planted answers: what follows the loss, and what says more than the norm."""

import numpy as np
import pandas as pd

N = 51
STEPS = 100 * np.arange(N)
SIZES = {"s": 2936, "m": 7408, "l": 20640, "x": 46368}


def rows(model, feature, values, *, layer="all"):
    return pd.DataFrame(
        {
            "model": model,
            "step": STEPS[: len(values)],
            "source": "weights",
            "layer": layer,
            "feature": feature,
            "value": np.asarray(values, dtype=float),
        }
    )


def four_models():
    """Four models. All drift; h0_total is the norm in disguise; neural_persistence feels the loss's
    fluctuations.

    Also: stable_rank drifts by itself, effective_rank is noise, h1_count is constant, h1_total is short,
    powerlaw_alpha has a hole.
    """
    rng = np.random.default_rng(0)
    features, metrics = [], []
    time = np.arange(N)
    for model, size in SIZES.items():
        shock = 0.03 * rng.standard_normal(N)
        loss = 1 + 20 * size**-0.3 + 2 * (time + 1) ** -0.5 + shock
        norm = 2 + np.log1p(time) + 0.05 * rng.standard_normal(N).cumsum()
        alpha = 3 - 0.02 * time + 0.05 * rng.standard_normal(N)
        alpha[7] = np.nan
        features += [
            rows(model, "frobenius_norm", norm),
            rows(model, "h0_total", 3 * norm + 0.02 * rng.standard_normal(N)),
            rows(model, "neural_persistence", 0.5 * np.log1p(time) - shock + 0.015 * rng.standard_normal(N)),
            rows(model, "stable_rank", 5 - np.sqrt(time) + 0.1 * rng.standard_normal(N)),
            rows(model, "effective_rank", rng.standard_normal(N)),
            rows(model, "h1_count", np.full(N, 3.0)),
            rows(model, "h1_total", [1.0, 2.0, 3.0]),
            rows(model, "powerlaw_alpha", alpha),
        ]
        metrics.append(pd.DataFrame({"model": model, "step": STEPS, "metric": "validation_loss", "value": loss}))
    models = pd.DataFrame({"model": list(SIZES), "n_parameters": list(SIZES.values()), "warmup_steps": 0.0})
    return pd.concat(features), pd.concat(metrics), models


def one(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]
