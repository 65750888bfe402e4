"""The third study looked at afterwards: rates, heterogeneity, other controls, and the yardstick of its second test.

`python -m studies.study3.afterwards` prints from the small tables what docs/study-3.md says under "Looked at afterwards".
None of it was planned. The z of a partial correlation has the variance 1 / (degrees of freedom - 1) (Fisher 1921).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from studies import small_tables
from studies.norms import NORMS
from studies.study3.measures import NUCLEAR, SPECTRAL_NORM
from studies.study3.questions import PRIMARY, STRICTEST, Question, Tables, read_of, tables_of
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import orthogonal_to
from toposcale.statistics.freedman_lane import fit_of_configuration

TABLES = Path(__file__).parent / "tables"
RATES = ("0.003", "0.01")


def read(folder: Path = TABLES) -> Tables:
    """Read features, metrics and models of all configurations."""
    paths = {kind: sorted((folder / kind).glob("*.csv.gz")) for kind in ("models", "series", "early", "gaps")}
    return tables_of(*(pd.concat(map(pd.read_csv, paths[kind]), ignore_index=True) for kind in paths))


def by_configuration(feature: str, given: Sequence[str], tables: Tables) -> pd.DataFrame:
    """Return for each configuration the partial correlation with the final loss, its z, the weight of z, and the VIF."""
    values = read_of(Question("", feature, VALIDATION_LOSS, tuple(given)), tables)
    x = values.features.xs(feature, level="feature").to_numpy(np.float64)
    rows = {}
    for name in dict.fromkeys(values.configurations):
        runs = np.flatnonzero(np.array(values.configurations) == name)
        fit = fit_of_configuration(x, values.outcome[None], values.controls, runs)
        correlation = float(fit.correlations(fit.residuals[None])[0, 0])
        own = x[:, runs] - x[:, runs].mean()
        left = float(np.sum(orthogonal_to(own, fit.design)[0] ** 2))
        vif = float(np.sum(own**2)) / left
        rows[name] = {"r": correlation, "z": np.arctanh(correlation), "weight": fit.degrees_of_freedom - 1, "vif": vif}
    return pd.DataFrame.from_dict(rows, orient="index")


def mean(fits: pd.DataFrame, column: str = "r") -> float:
    """Return the mean over configurations, weighted by degrees of freedom."""
    return float(np.average(fits[column], weights=fits["weight"] + 1))


def deviance(fits: pd.DataFrame) -> float:
    """Return twice the log likelihood ratio of one common z to z = 0."""
    return float(np.sum(fits["weight"] * fits["z"]) ** 2 / fits["weight"].sum())


def at_rate(fits: pd.DataFrame, rate: str) -> pd.DataFrame:
    """Return the configurations of a learning rate."""
    return fits[fits.index.str.contains(f".lr{rate}.", regex=False)]


def of_tests(tables: Tables) -> pd.DataFrame:
    """Return for each test of the final loss its estimate by rate, the p of their difference, and Q of heterogeneity."""
    rows = []
    for question in PRIMARY[:4]:
        fits = by_configuration(question.feature, question.given, tables)
        parts = [at_rate(fits, rate) for rate in RATES]
        means = [np.average(part["z"], weights=part["weight"]) for part in parts]
        error = np.sqrt(sum(1 / part["weight"].sum() for part in parts))
        spread = np.sum(fits["weight"] * (fits["z"] - np.average(fits["z"], weights=fits["weight"])) ** 2)
        row: dict[str, object] = {"test": question.name, "feature": question.feature}
        row |= {f"rate {rate}": mean(part) for rate, part in zip(RATES, parts, strict=True)}
        row |= {"p_of_difference": 2 * ndtr(-abs(means[0] - means[1]) / error)}
        rows.append(row | {"q_of_heterogeneity": spread, "p": chi2.sf(spread, len(fits) - 1)})
    return pd.DataFrame(rows)


def likelihood_ratios(tables: Tables) -> pd.DataFrame:
    """Return the likelihood ratio of the nuclear norm to each H0, given the norms alone, at each rate."""
    nuclear, *others = (by_configuration(feature, NORMS, tables) for feature in (NUCLEAR, "h0_total", "h0_mean"))
    ratios = {
        rate: [np.exp((deviance(at_rate(nuclear, rate)) - deviance(at_rate(h0, rate))) / 2) for h0 in others]
        for rate in RATES
    }
    columns = ["nuclear norm : h0_total", "nuclear norm : h0_mean"]
    return pd.DataFrame.from_dict(ratios, orient="index", columns=columns).rename_axis("rate").reset_index()


def given_more(tables: Tables) -> pd.DataFrame:
    """Return the estimate of the nuclear norm given the norms and one more measure of the spectrum."""
    more = ("stable_rank", SPECTRAL_NORM)
    return pd.DataFrame(
        {"given, beside the norms": name, "estimate": mean(by_configuration(NUCLEAR, (*NORMS, name), tables))}
        for name in more
    )


def yardstick(tables: Tables) -> dict[str, float]:
    """Return what the second test would find if `h0_total` alone were the cause, and how probably it would find it."""
    alone = by_configuration("h0_total", NORMS, tables)
    given = by_configuration("h0_total", (*NORMS, NUCLEAR), tables)
    expected = mean(alone) * float(np.average(np.sqrt(alone["vif"] / given["vif"]), weights=given["weight"] + 1))
    power = ndtr(abs(np.arctanh(expected)) * np.sqrt(given["weight"].sum()) - ndtri(1 - STRICTEST / 2))
    return {"vif": float(given["vif"].median()), "expected": expected, "power": float(power)}


if __name__ == "__main__":
    everything = read()
    for table in (of_tests, likelihood_ratios, given_more):
        print(small_tables.markdown(table(everything)), end="\n\n")
    print(small_tables.markdown(pd.DataFrame([yardstick(everything)])))
