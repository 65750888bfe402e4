"""Pool what was never pooled: `PYTHONPATH=workflow python -m studies.controls.pooling TABLES` (question 4 of the plan).

It writes `seeds.csv` and `seeds_summary.csv`, the eight seeds of the paper tested together, and `modes.csv`, study 4 over
modes and over settings. Nothing is trained.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import norm, t

from studies import small_tables
from studies.controls.study_4 import POWER, STUDY_4, runs_of_study_4
from studies.over_seeds import fisher_interval
from studies.paper_seeds.seeds import GIVEN, CrossedSeeds, configurations_of_seeds
from studies.study4 import afterwards
from studies.study4.questions import LEVEL, PRIMARY
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.prewhitening import sign_flip_p_value

PAPER = Path("studies/paper_seeds/tables")
MODES = {"four modes": ("low", "high"), "low modes": ("low",), "high modes": ("high",)}


def heterogeneity(z: Floats, variance: Floats) -> float:
    """Return I^2, the share of the variance between effects z (k,) beyond their own variances (k,) (Higgins 2002)."""
    weight = 1 / variance
    q = float(weight @ (z - np.average(z, weights=weight)) ** 2)
    return max(0.0, (q - len(z) + 1) / q) if q > 0 else 0.0


def pooled_effect(correlations: ArrayLike, weights: ArrayLike) -> dict[str, float]:
    """Return the common-effect mean of correlations (k,) with variances 1 / weights of z, I^2, and random effects."""
    z, weight = np.arctanh(np.asarray(correlations, np.float64)), np.asarray(weights, np.float64)
    mean = np.tanh(np.average(z, weights=weight))
    low, high = fisher_interval(mean, weight.sum())
    random = afterwards.pooled(correlations, weights)
    row = {"estimate": float(mean), "low": float(low), "high": float(high)}
    row |= {"p": float(2 * norm.sf(abs(np.arctanh(mean)) * np.sqrt(weight.sum())))}
    row |= {"i_squared": heterogeneity(z, 1 / weight), "p_of_q": random["p_of_q"], "tau": random["tau"]}
    return row | {f"random_{name}": random[name] for name in ("estimate", "low", "high")}


def seeds_together(crossed: CrossedSeeds, shift: int = 0) -> Floats:
    """Return p (F,) of the features of each seed with the losses of the seed `shift` places on, all seeds together."""
    first, second = _pairs(len(crossed.seeds), shift)
    products = crossed.products[first, second]  # (R, F, m)
    flat = products.transpose(1, 0, 2).reshape(products.shape[1], -1)
    return sign_flip_p_value(crossed.statistics[first, second].sum(axis=0), flat)


def _pairs(count: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    first = np.arange(count)
    return first, (first + shift) % count


def seed_effects(crossed: CrossedSeeds, n_sizes: int) -> pd.DataFrame:
    """Return of each feature the mean correlation over seeds with a t interval, I^2, p and q."""
    own, _ = _pairs(len(crossed.seeds), 0)
    correlations = crossed.correlation[own, own]  # (R, F)
    products, statistics = crossed.products[own, own], crossed.statistics[own, own]
    points = products.shape[-1]
    # The statistic is the correlation times sqrt(degrees of freedom / points).
    degrees = points * (statistics / products.sum(axis=-1)) ** 2
    z = np.arctanh(correlations)
    half = t.ppf(0.975, len(z) - 1) * z.std(axis=0, ddof=1) / np.sqrt(len(z))
    p = seeds_together(crossed)
    error = np.sqrt((products**2).sum(axis=(0, 2))) / (len(z) * n_sizes)
    return pd.DataFrame(
        {
            "feature": crossed.features,
            "estimate": np.tanh(z.mean(axis=0)),
            "low": np.tanh(z.mean(axis=0) - half),
            "high": np.tanh(z.mean(axis=0) + half),
            "i_squared": [
                heterogeneity(z[:, k], 1 / (n_sizes * np.maximum(degrees[:, k] - 3, 1))) for k in range(z.shape[1])
            ],
            "detectable": error * (norm.isf(LEVEL / (2 * len(p))) + norm.ppf(POWER)),
            "p": p,
            "q": benjamini_hochberg(p),
        }
    )


def seed_tables(tables: Sequence[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return `seeds`, a row for each control and feature, and `seeds_summary`, a row for each control."""
    configurations = configurations_of_seeds(tables)
    parts, summary = [], []
    for control in GIVEN:
        crossed = CrossedSeeds(configurations, control)
        effects = seed_effects(crossed, len(configurations))
        null = np.array([seeds_together(crossed, shift) for shift in range(1, len(crossed.seeds))])
        parts.append(effects.assign(control=control))
        row: dict[str, Any] = {"control": control, "runs": len(configurations) * len(crossed.seeds)}
        row |= {"features": len(effects), "found": int((effects["q"] <= LEVEL).sum()), "lowest_q": effects["q"].min()}
        row |= {"p_below_level": int((effects["p"] <= LEVEL).sum()), "largest": effects["estimate"].abs().max()}
        row |= {"detectable": effects["detectable"].median(), "median_i_squared": effects["i_squared"].median()}
        summary.append(row | {"false_positive_rate": float((null <= LEVEL).mean()), "shifts": len(null)})
    return {"seeds": pd.concat(parts, ignore_index=True), "seeds_summary": pd.DataFrame(summary)}


def mode_table(modes: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """Return the pooled correlations of study 4 over modes, and over its settings."""
    half = np.arctanh(modes["high"]) - np.arctanh(modes["low"])
    weighed = modes.assign(weight=(2 * norm.ppf(0.975) / half) ** 2)
    rows = []
    for question in PRIMARY:
        own = weighed[weighed["question"] == question.name]
        for name, chosen in MODES.items():
            part = own[own["mode"].isin(chosen)]
            rows.append({"over": name, "question": question.name, "k": len(part)})
            rows[-1] |= pooled_effect(part["estimate"], part["weight"])
        settings = afterwards.partial_correlations(question, models)
        rows.append({"over": "settings", "question": question.name, "k": len(settings)})
        rows[-1] |= pooled_effect(settings["estimate"], settings["weight"])
    return pd.DataFrame(rows)


def main(folder: Path) -> None:
    """Write and print the tables."""
    results = seed_tables([pd.read_csv(path) for path in sorted(PAPER.glob("seed-*.csv.gz"))])
    results["modes"] = mode_table(pd.read_csv(STUDY_4 / "modes.csv"), runs_of_study_4())
    print(small_tables.sections(results, folder, "##"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
