"""`make nulls`: the false-positive rate of each test, and its power, in every configuration of the studies.

    python -m studies.nulls [FOLDER ...] [--draws 4000]

The tests over checkpoints: features of one run against the losses of another run of its configuration, with the same
schedule and size, another seed and another data order. The norms go with the features. Between runs: the final losses
are drawn, from what the controls of the configuration tell and permuted residuals, so that features and controls stay
together. Whatever is found is a false positive. FOLDER: the tables of a study, or a run in results/ with configurations
of at least 10 seeds.

Writes studies/nulls/false_positive_rates.csv, a row for each configuration, test and feature, power.csv, a row for each
configuration, and results.md from both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from studies import small_tables
from studies.nulls.configurations import RUNS, Configuration, configurations_of
from studies.nulls.crossed import CrossedResiduals, Tested, rates, run_permutations
from studies.over_seeds import early_values
from toposcale.analysis.controls import CONTROLS, NUCLEAR_NORM, Control
from toposcale.analysis.sensitivity import SimulatedFeatures
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.io.errors import UserError
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration

FOLDERS = tuple(RUNS / study for study in ("study-1", "study-2", "study-3"))
RATES, POWER = (Path("studies/nulls") / f"{name}.csv" for name in ("false_positive_rates", "power"))
PRIMARY = ("h0_total", "h0_mean", "h0_total_scaled", NEURAL_PERSISTENCE.feature, NUCLEAR_NORM)
"""What the studies test; of each configuration, those that its committed tables have."""
LEVEL, LIMIT = 0.05, 0.07
"""Significance level, and the false-positive rate up to which a test is taken to keep it."""
GIVEN = {
    "given norm": CONTROLS["weight_norm"],
    "given norm and spectrum": CONTROLS["weight_norm_and_spectrum"],
    "given norm and variance": CONTROLS["weight_norm_and_variance"],
}
TOGETHER, SEEDS = 5, 8
"""Runs that are tested together over their checkpoints, and seeds of a configuration in the run permutation."""
DRAWS, SLOW_SHARE = 4_000, 10
"""Draws of runs together; of the tests by permutation one in so many, since each takes so much longer."""
PERMUTATIONS = 999
EFFECTS = (0.3, 0.5)


def false_positive_rates(configuration: Configuration, draws: int) -> list[dict[str, Any]]:
    """A row for each test and feature: the share of draws with p of at most `LEVEL`, with its standard error."""
    rows: list[dict[str, Any]] = []
    for words, control in GIVEN.items():
        features = tested_features(configuration, control)
        if features:
            crossed = CrossedResiduals(configuration, features, control)
            rows += _rows(configuration, f"{words}, one run", features, crossed.every_pair())
            if len(configuration.models) >= 2 * TOGETHER:
                several = crossed.together(TOGETHER, draws)
                rows += _rows(configuration, f"{words}, {TOGETHER} runs together", features, several)
    norm = GIVEN["given norm"]
    features = tested_features(configuration, norm)
    if features and len(configuration.models) >= 2 * SEEDS:
        permuted = run_permutations(configuration, features, norm, SEEDS, draws // SLOW_SHARE)
        rows += _rows(configuration, f"run permutation, {SEEDS} seeds", features, permuted)
    return rows + between_rows(configuration.name, [configuration], draws // SLOW_SHARE)


def tested_features(configuration: Configuration, control: Control) -> list[str]:
    """The features of `PRIMARY` that a configuration has, and that are not held fixed; none where what is held fixed is
    missing."""
    covariates = {*control.of_model, *control.of_layer}
    features = control.asked_of or PRIMARY
    return [
        name
        for name in features
        if name in configuration.series and name not in covariates and covariates <= set(configuration.series)
    ]


def _rows(configuration: Configuration, test: str, features: Sequence[str], tested: Tested) -> Iterator[dict[str, Any]]:
    shares, errors = rates(tested.p <= LEVEL, tested.runs, len(configuration.models))
    for feature, share, error in zip(features, shares, errors, strict=True):
        row = {
            "configuration": configuration.name,
            "n_runs": len(configuration.models),
            "test": test,
            "feature": feature,
        }
        yield row | {"draws": len(tested.p), "found": share, "error": error}


def between_rows(name: str, configurations: Sequence[Configuration], draws: int) -> list[dict[str, Any]]:
    """The same of the test between runs, of some configurations together, with outcomes drawn."""
    features, metrics, models = (
        pd.concat(tables) for tables in zip(*(configuration.whole for configuration in configurations), strict=True)
    )
    read = early_values(features, metrics, models, configurations[0].metric, [WEIGHT_NORM.feature])
    if read is None:
        return []
    primary = read.features[read.features.index.get_level_values("feature").isin(PRIMARY)]
    values, labels = primary.to_numpy(np.float64), np.array(read.configurations)
    fits = {}
    for label in dict.fromkeys(read.configurations):
        runs = np.flatnonzero(labels == label)
        fits[label] = runs, fit_of_configuration(values, read.outcome[None], read.controls, runs).residuals
    random, p = np.random.default_rng(0), []
    for draw in range(draws):
        outcome = read.outcome.copy()
        for runs, residuals in fits.values():
            outcome[runs] += random.permutation(residuals) - residuals
        test = between_runs(values, outcome, read.configurations, read.controls, draws=PERMUTATIONS, seed=draw)
        p.append(test.p)
    significant = np.array(p) <= LEVEL
    return [
        {"configuration": name, "n_runs": len(models), "test": "between runs", "feature": feature, "draws": draws}
        | {"found": share, "error": np.sqrt(share * (1 - share) / draws)}
        for feature, share in zip(primary.index.get_level_values("feature"), significant.mean(axis=0), strict=True)
    ]


def powers(configuration: Configuration) -> dict[str, list[float]]:
    """Share of planted features that one run and 5 runs together find, given the norm, at each of `EFFECTS`."""
    names, planted = list(configuration.features), np.repeat(np.linspace(0.05, 0.95, 19), 50)
    power = {}
    for size, words in ((1, "one run"), (TOGETHER, f"{TOGETHER} runs together")):
        chosen = np.random.default_rng(size).choice(names, size, replace=False).tolist()
        tables = configuration.crossed(chosen, chosen, one_configuration=False)
        measured, p = SimulatedFeatures(*tables, control=CONTROLS["weight_norm"]).test(planted, 1, 0)
        curve = pd.DataFrame({"r": measured, "found": p <= LEVEL, "planted": planted})
        curve = curve.groupby("planted").mean()
        power[words] = [float(np.interp(r, curve["r"], curve["found"])) for r in EFFECTS]
    return power


def is_kept(rows: pd.DataFrame) -> pd.Series:
    """Return whether each false-positive rate is not above the limit by more than two standard errors."""
    return rows["found"] - 2 * rows["error"] <= LIMIT


def rate_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one test, a row a configuration and a column a feature: rates with their standard errors in percent."""
    words = [
        f"{100 * found:.1f} ± {100 * error:.1f}{'' if kept else ' !'}"
        for found, error, kept in zip(rows["found"], rows["error"], is_kept(rows), strict=True)
    ]
    table = rows.assign(words=words).pivot(index="configuration", columns="feature", values="words")
    table = table.reindex(index=rows["configuration"].unique(), columns=[one for one in PRIMARY if one in table])
    return table.fillna("").reset_index()


def overview(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each test and feature: configurations, the least, mean and largest rate in percent, and where it is not
    kept."""
    table = []
    for (test, feature), rates_of_test in rows.groupby(["test", "feature"], sort=False):
        above = rates_of_test.loc[~is_kept(rates_of_test), "configuration"]
        low, mean, high = (
            100 * value
            for value in (rates_of_test["found"].min(), rates_of_test["found"].mean(), rates_of_test["found"].max())
        )
        table.append(
            {"test": test, "feature": feature, "configurations": len(rates_of_test)}
            | {"lowest": f"{low:.1f}", "mean": f"{mean:.1f}", "highest": f"{high:.1f}"}
            | {"above the limit": ", ".join(above) or "none"}
        )
    return pd.DataFrame(table)


def measured(configuration: Configuration, draws: int) -> tuple[list[dict[str, Any]], Mapping[str, list[float]]]:
    """Return false-positive rates and powers of one configuration."""
    return false_positive_rates(configuration, draws), powers(configuration)


def main(folders: list[Path], draws: int) -> None:
    """Write the false-positive rates and the powers, and the page of both."""
    by_folder = {folder: list(configurations_of(folder)) for folder in folders}
    configurations = [configuration for own in by_folder.values() for configuration in own]
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(measured, configuration, draws) for configuration in configurations]
        results = [job.result() for job in jobs]
    rows = [row for own, _ in results for row in own]
    for folder, own in by_folder.items():
        if len(own) > 1:
            rows += between_rows(f"all {len(own)} configurations of {folder.name}", own, draws // SLOW_SHARE // 2)
    table = pd.DataFrame(rows)
    small_tables.write(table, RATES)
    power = [
        {"configuration": configuration.name}
        | {f"{who}, r = {r}": share for who, shares in found.items() for r, share in zip(EFFECTS, shares, strict=True)}
        for configuration, (_, found) in zip(configurations, results, strict=True)
    ]
    small_tables.write(pd.DataFrame(power), POWER)
    RATES.with_name("results.md").write_text(page(table, pd.DataFrame(power)))
    print(RATES.with_name("results.md"))


def page(rates: pd.DataFrame, power: pd.DataFrame) -> str:
    """Return the page of the results."""
    parts = ["# How often each test is wrong", "Written by `make nulls`; [what was done](../../docs/statistics.md)."]
    parts += [f"## All tests\n\n% of draws with p of at most {LEVEL}.", small_tables.markdown(overview(rates))]
    for test, of_test in rates.groupby("test", sort=False):
        parts += [
            f"## {str(test).capitalize()}\n\n± is one standard error; ! is above {LIMIT:.0%} by more than two of them."
        ]
        parts += [small_tables.markdown(rate_table(of_test))]
    percent = power.set_index("configuration").mul(100).round().astype(int).reset_index()
    parts += ["## Power\n\nHow often a planted correlation r of prewhitened residuals is found, given the norm, in %."]
    return "\n\n".join([*parts, small_tables.markdown(percent)]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args()
    try:
        main(options.folders, options.draws)
    except UserError as error:
        sys.exit(f"toposcale: {error}")
