"""The fourth study looked at afterwards (post hoc): mixtures, correlations within modes, pooling and equivalence.

`PYTHONPATH=workflow python -m studies.study4.afterwards FOLDER` reads the runs in FOLDER, and writes `mixtures.csv`,
`modes.csv` and `pooled.csv` beside them. None of it was planned: no p here is a finding.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import chi2, norm, t

from studies import small_tables
from studies.over_seeds import fisher_interval
from studies.study4.configurations import TABLE, loss_column
from studies.study4.questions import (
    BEYOND_NUCLEAR,
    BEYOND_SURROGATES,
    HIGH_RATE,
    LOW_RATE,
    PRIMARY,
    Question,
    read_of,
    tables_of,
)
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import fitted_configurations

FINAL_LOSS = loss_column(1.0)
MIN_BIC_DIFFERENCE, MIN_SEPARATION = 10.0, 2.0
"""What is called bimodal: strong evidence for two Gaussians (Kass and Raftery 1995), and an Ashman's D (1994) above 2."""
MARGINS = {BEYOND_SURROGATES.name: 0.08, BEYOND_NUCLEAR.name: 0.10}
"""Margins of equivalence: what `h0_mean` would keep, were H0 alone the cause of what study 3 found; named in the plan."""


@dataclass(frozen=True)
class Mixture:
    """Maximum-likelihood mixture of two Gaussians, the lower one first.

    weights, means, deviations: (2,); high: (n,), the probability that a value belongs to the higher one;
    bic_difference: BIC of one Gaussian less that of the mixture, so that positive numbers favour the mixture.
    """

    weights: Floats
    means: Floats
    deviations: Floats
    high: Floats
    bic_difference: float

    @property
    def separation(self) -> float:
        """Ashman's D: the distance of the means over the root mean square of the standard deviations."""
        return float((self.means[1] - self.means[0]) / np.sqrt((self.deviations**2).mean()))

    @property
    def is_bimodal(self) -> bool:
        """Whether the mixture is better by its BIC, and its two parts lie apart."""
        return self.bic_difference > MIN_BIC_DIFFERENCE and self.separation > MIN_SEPARATION


def two_gaussians(values: ArrayLike) -> Mixture:
    """Fit a mixture of two Gaussians to values (n,) by expectation-maximization, from halves cut at five quantiles.

    A variance below a thousandth of that of all values is raised to it, since the likelihood is unbounded where a part
    collapses on a single value.
    """
    x = np.asarray(values, dtype=np.float64)
    likelihood, weights, means, variances, high = max(
        (_expectation_maximization(x, share) for share in (0.2, 0.35, 0.5, 0.65, 0.8)), key=lambda fit: fit[0]
    )
    order = np.argsort(means)
    single = -0.5 * len(x) * (np.log(2 * np.pi * x.var()) + 1)
    # Five parameters instead of two.
    bic_difference = 2 * (likelihood - single) - 3 * np.log(len(x))
    return Mixture(weights[order], means[order], np.sqrt(variances[order]), high[:, order[1]], float(bic_difference))


def _expectation_maximization(x: Floats, share: float) -> tuple[float, Floats, Floats, Floats, Floats]:
    """Return log likelihood, weights, means, variances (2,) and responsibilities (n, 2)."""
    probabilities = np.column_stack([x <= np.quantile(x, share), x > np.quantile(x, share)]).astype(np.float64)
    likelihood = -np.inf
    while True:
        counts = probabilities.sum(axis=0)
        weights, means = counts / len(x), x @ probabilities / counts
        variances = np.maximum(((x[:, None] - means) ** 2 * probabilities).sum(axis=0) / counts, 1e-3 * x.var())
        densities = np.log(weights) - 0.5 * (np.log(2 * np.pi * variances) + (x[:, None] - means) ** 2 / variances)
        totals = logsumexp(densities, axis=1)
        probabilities = np.exp(densities - totals[:, None])
        if totals.sum() - likelihood < 1e-7 * len(x):
            return float(totals.sum()), weights, means, variances, probabilities
        likelihood = totals.sum()


def mixture_table(models: pd.DataFrame) -> pd.DataFrame:
    """Return for each configuration the mixture of two Gaussians of its final losses."""
    rows = []
    for configuration, runs in models.groupby("configuration"):
        mixture = two_gaussians(runs[FINAL_LOSS])
        row = {"configuration": configuration, "bic_difference": mixture.bic_difference}
        row |= {"separation": mixture.separation, "bimodal": mixture.is_bimodal}
        for place, name in enumerate(("low", "high")):
            row |= {f"{name}_mean": mixture.means[place], f"{name}_sd": mixture.deviations[place]}
        rows.append(row | {"high_weight": mixture.weights[1]})
    return pd.DataFrame(rows)


def mode_table(models: pd.DataFrame, questions: Sequence[Question] = PRIMARY) -> pd.DataFrame:
    """Return the partial correlations of the bimodal configurations: within each mode, and with the mode itself.

    A run belongs to the mode that is more probable. For the mode itself the outcome is 1 in the high mode, else 0.
    """
    parts = []
    for _, runs in models.groupby("configuration"):
        mixture = two_gaussians(runs[FINAL_LOSS])
        if mixture.is_bimodal:
            high = mixture.high > 0.5
            subsets = {
                "low": runs[~high],
                "high": runs[high],
                "which mode": runs.assign(**{FINAL_LOSS: high.astype(float)}),
            }
            for mode, subset in subsets.items():
                for question in questions:
                    rows = partial_correlations(question, subset).assign(question=question.name, mode=mode)
                    parts.append(rows.assign(n_models=len(subset)))
    table = pd.concat(parts, ignore_index=True)
    table["low"], table["high"] = fisher_interval(*table[["estimate", "weight"]].to_numpy().T)
    return table[["configuration", "question", "mode", "n_models", "estimate", "low", "high"]]


def partial_correlations(question: Question, models: pd.DataFrame) -> pd.DataFrame:
    """Return the partial correlation of a question in each configuration, and the weight of its Fisher z: 1 / variance."""
    read = read_of(question, tables_of(models))
    values = read.features.xs(question.feature, level="feature").to_numpy(np.float64)
    rows = [
        {"estimate": fit.correlations(fit.residuals[None])[0, 0], "weight": fit.degrees_of_freedom - 1}
        for fit in fitted_configurations(values, read.outcome[None], read.controls, read.configurations)
    ]
    return pd.DataFrame(rows).assign(configuration=list(dict.fromkeys(read.configurations)))


def pooled_table(models: pd.DataFrame) -> pd.DataFrame:
    """Return what `pooled` says of each question, at each rate and at both."""
    rows = []
    for rates in ([LOW_RATE], [HIGH_RATE], [LOW_RATE, HIGH_RATE]):
        for question in PRIMARY:
            parts = partial_correlations(question, models[models["learning_rate"].isin(rates)])
            row = {"rates": " and ".join(map(str, rates)), "question": question.name}
            rows.append(row | pooled(parts["estimate"], parts["weight"], MARGINS.get(question.name)))
    return pd.DataFrame(rows)


def pooled(correlations: ArrayLike, weights: ArrayLike, margin: float | None = None) -> dict[str, float]:
    """Pool correlations (k,) with Fisher z of variance 1 / weights (k,).

    Q and its p are Cochran's; tau is the standard deviation between configurations after DerSimonian and Laird (1986); the
    interval of the random-effects mean is that of Hartung and Knapp (2001), never narrower than that without their factor.
    With a margin: p of two one-sided tests (TOST, Schuirmann 1987) that the mean lies within it, with a common
    correlation and with random effects.
    """
    z, weight = np.arctanh(np.asarray(correlations, np.float64)), np.asarray(weights, np.float64)
    degrees = len(z) - 1
    common = np.average(z, weights=weight)
    q = float(weight @ (z - common) ** 2)
    tau_squared = max(0.0, (q - degrees) / (weight.sum() - weight @ weight / weight.sum()))
    random_weight = 1 / (1 / weight + tau_squared)
    mean = np.average(z, weights=random_weight)
    factor = max(1.0, float(random_weight @ (z - mean) ** 2 / degrees))
    error = np.sqrt(factor / random_weight.sum())
    half = t.ppf(0.975, degrees) * error
    row = {"q": q, "p_of_q": float(chi2.sf(q, degrees)), "tau": float(np.sqrt(tau_squared))}
    row |= {"estimate": float(np.tanh(mean)), "low": float(np.tanh(mean - half)), "high": float(np.tanh(mean + half))}
    if margin is not None:
        bound = np.arctanh(margin)
        row |= {"margin": margin, "p_equivalent": float(norm.sf((bound - abs(common)) * np.sqrt(weight.sum())))}
        row |= {"p_equivalent_random": float(t.sf((bound - abs(mean)) / error, degrees))}
    return row


def main(folder: Path) -> None:
    """Write the tables into `folder` and print them."""
    [models] = small_tables.read_configurations(folder, [TABLE], "`make study-4` trains them")
    results = {"mixtures": mixture_table(models), "modes": mode_table(models), "pooled": pooled_table(models)}
    print(small_tables.sections(results, folder, "##"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
