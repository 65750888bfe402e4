"""`make nulls ONLY=metrics`: how often `toposcale.test_metric` is wrong, and whether it finds what its power promises.

    python -m studies.nulls.metrics [RUN ...]

Simulated runs: losses and metrics are autoregressions and random walks, around trends or not; unrelated, or with a planted
correlation of the size that the test says it finds in 80% of cases. Real runs: the metrics are the features of runs of
study 1 and the losses those of others of the same configuration, given the step alone. RUN: a run of the workflow, whose
features have placebos that are tested. Writes studies/nulls/metrics.csv, a row for each case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import lfilter

import toposcale
from studies import small_tables
from studies.nulls.__main__ import LEVEL, PRIMARY, TOGETHER
from studies.nulls.configurations import RUNS, Configuration, configurations_of
from toposcale.analysis.metric_answers import least_points, pooled_interval, z_variance
from toposcale.features.feature import WEIGHT_NORM
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import between_runs
from toposcale.statistics.prewhitening import ResidualTest, SharedFlips, residual_test, sign_flip_p_value, with_squares

TABLE = Path("studies/nulls/metrics.csv")
KINDS = {
    "AR(1) 0.5": (0.5, 0.0),
    "AR(1) 0.9": (0.9, 0.0),
    "random walk": (1.0, 0.0),
    "random walk with trend": (1.0, 1.0),
}
"""Coefficient of the autoregression, and size of the trend."""
N_RUNS, N_POINTS, N_COVARIATES = (1, 8), (20, 35, 52, 100, 400), (0, 1, 2)
LEADS = {0: "within runs", 1: "ahead"}
METRICS, BURN_IN = 50, 100
REPEATS = {20: 30, 35: 30, 52: 24, 100: 16, 400: 8}
PLANTED_KINDS = ("AR(1) 0.9", "random walk with trend")
PLANTED_IN = ((35, 0), (52, 0), (100, 1), (400, 0))
"""Checkpoints and covariates of the planted metrics."""
POWER_REPEATS, PLANTED = 2, 200
BETWEEN_RUNS, BETWEEN_REPEATS = (12, 24, 60), 30
GUARD_DRAWS = 400


class Case(NamedTuple):
    """One case: kind of series, runs, checkpoints of each, covariates, and by how many checkpoints the loss leads."""

    kind: str
    runs: int
    points: int
    covariates: int
    lead: int = 0

    @property
    def is_tested(self) -> bool:
        """Whether `test_metric` answers; the loss so far is a covariate of what lies ahead."""
        return self.points - self.lead >= least_points(["x"] * (self.covariates + (self.lead > 0)), self.lead)


def series(shocks: Floats, kind: str) -> Floats:
    """Return series (S, n) of a kind with shocks (S, BURN_IN + n)."""
    coefficient, trend = KINDS[kind]
    values = lfilter([1.0], [1.0, -coefficient], shocks, axis=1)[:, BURN_IN:]
    time = np.arange(values.shape[1])
    return values - trend * (4 * np.log1p(time) + np.sqrt(time) + 3 * np.cos(np.pi * time / len(time)))


def tested(case: Case, correlation: float, random: np.random.Generator, metrics: int) -> tuple[Floats, ...]:
    """Return p, and the bounds of the interval, of metrics whose shocks have a correlation with those of the loss."""
    pool, tests = SharedFlips(metrics, np.arange(case.points)), []
    for _ in range(case.runs):
        shocks = random.standard_normal((1 + case.covariates + metrics, case.points + case.lead + BURN_IN))
        leading = np.roll(shocks[:1], -case.lead, axis=1)
        shocks[1 + case.covariates :] *= np.sqrt(1 - correlation**2)
        shocks[1 + case.covariates :] += correlation * leading
        rows = series(shocks, case.kind)
        test = test_of(rows[1 + case.covariates :], rows[:1], rows[1 : 1 + case.covariates], case.lead)
        tests.append(test)
        pool.add(test, np.arange(case.points))
    estimates, variances = (
        np.hstack([part(test) for test in tests]) for part in (lambda test: test.correlation, z_variance)
    )
    return pool.p_values(), *pooled_interval(estimates, variances)[1:]


def test_of(metrics: Floats, loss: Floats, covariates: Floats, lead: int) -> ResidualTest:
    """Test metrics (S, n + lead) as `test_metric` does."""
    if lead == 0:
        return residual_test(metrics, loss, with_squares(covariates) if len(covariates) else None)
    now = np.vstack([loss, covariates])[:, :-lead]
    return residual_test(metrics[:, :-lead], loss[:, lead:], with_squares(now), own_past_of_y=False)


def coverage(low: Floats, high: Floats, truth: float) -> float:
    """Return the share of intervals that hold the truth; NaN where there is none."""
    is_there = np.isfinite(low)
    return float(((low < truth) & (high > truth))[is_there].mean()) if is_there.any() else float("nan")


def unrelated(case: Case) -> dict[str, Any]:
    """The false-positive rate of a case, with its standard error over losses, and the coverage of the interval of 0."""
    rates, covered = [], []
    for repeat in range(REPEATS[case.points]):
        p, low, high = tested(case, 0.0, np.random.default_rng([repeat, case.points, case.lead]), METRICS)
        rates.append((p <= LEVEL).mean())
        covered.append(coverage(low, high, 0.0))
    error = np.std(rates, ddof=1) / np.sqrt(len(rates))
    row = {"data": "simulated", **case._asdict(), "lead": LEADS[case.lead], "draws": METRICS * len(rates)}
    return row | {"found": np.mean(rates), "error": error, "coverage": np.mean(covered)}


def related(case: Case) -> list[dict[str, Any]]:
    """The correlations that the tests promise to find in 80% of cases, how often they are found, and coverage there."""
    cases = [one for one in (case, case._replace(lead=1)) if one.is_tested]
    rows = [{"data": "planted", **one._asdict(), "lead": LEADS[one.lead]} for one in cases]
    measured: list[list[tuple[float, ...]]] = [[] for _ in cases]
    for repeat in range(POWER_REPEATS):
        random = np.random.default_rng([repeat, case.points, 99])
        tables = []
        for run in range(case.runs):
            shocks = random.standard_normal((2 + case.covariates, case.points + BURN_IN))
            columns = dict(zip(["loss", "m", "weight_norm", "second"], series(shocks, case.kind), strict=False))
            tables.append(pd.DataFrame({"run": f"run {run}", "step": np.arange(case.points)} | columns))
        given = ["weight_norm", "second"][: case.covariates]
        test = toposcale.test_metric(pd.concat(tables), "m", given=given, warmup_steps=0, seed=repeat).to_frame()
        limits = test.set_index("question")["detectable"]
        for one, shares in zip(cases, measured, strict=True):
            if np.isfinite(limit := limits[LEADS[one.lead]]):
                p, low, high = tested(one, limit, random, PLANTED)
                rank = 6 / np.pi * np.arcsin(limit / 2)
                shares.append((limit, (p <= LEVEL).mean(), coverage(low, high, rank)))
    for row, shares in zip(rows, measured, strict=True):
        row["draws"] = PLANTED * len(shares)
        if shares:
            row |= dict(zip(["planted", "found", "coverage"], np.mean(shares, axis=0), strict=True))
    return rows


def between(n_runs: int, planted: float | None) -> dict[str, Any]:
    """The same between runs: the metric goes with the loss so far, the end has heavy tails."""
    rates, promised = [], []
    for repeat in range(BETWEEN_REPEATS if planted is None else POWER_REPEATS):
        random = np.random.default_rng([repeat, n_runs])
        now, norm = random.standard_normal((2, n_runs))
        earlier = now + 0.5 * random.standard_normal(n_runs)
        rest = random.standard_t(4, n_runs)
        effect, size = 0.0, METRICS
        if planted is not None:
            effect, size = detectable_between(now, earlier, norm, now + 0.5 * rest, repeat), PLANTED
            promised.append(effect)
            if np.isnan(effect):
                continue
        controls = np.vstack([now, earlier, norm, (now - now.mean()) ** 2])
        own = effect * rest / rest.std() + np.sqrt(1 - effect**2) * random.standard_normal((size, n_runs))
        p = between_runs(now + own, now + 0.5 * rest, ["all"] * n_runs, controls, draws=1_999, seed=repeat).p
        rates.append((p <= LEVEL).mean())
    data = "simulated" if planted is None else "planted"
    row = {"data": data, "kind": "heavy tails", "runs": n_runs, "covariates": 1, "lead": "between runs"}
    row |= {"draws": len(rates) * (METRICS if planted is None else PLANTED)}
    if rates:
        row |= {"found": np.mean(rates), "error": np.std(rates, ddof=1) / np.sqrt(len(rates))}
    return row | ({} if planted is None else {"planted": np.mean(promised)})


def detectable_between(now: Floats, earlier: Floats, norm: Floats, end: Floats, seed: int) -> float:
    """Return the correlation that `test_metric` promises to find between runs of three checkpoints."""
    random = np.random.default_rng([seed, 7])
    table = pd.DataFrame(
        {
            "run": np.repeat([f"run {run:03d}" for run in range(len(now))], 3),
            "step": np.tile([200, 300, 1000], len(now)),
            "loss": np.column_stack([earlier, now, end]).ravel(),
            "weight_norm": np.repeat(norm, 3),
            "m": np.repeat(random.standard_normal(len(now)), 3),
        }
    )
    test = toposcale.test_metric(table, "m", given="weight_norm", warmup_steps=0, seed=seed).to_frame()
    return float(test.set_index("question").loc["between runs", "detectable"])


def real(configuration: Configuration) -> list[dict[str, Any]]:
    """The rates given the step alone, in one run and in several together, these also as far as the runs' course allows."""
    names = [name for name in PRIMARY if name in configuration.series and name != WEIGHT_NORM.feature]
    size = len(configuration.losses)
    tests = [
        residual_test([configuration.series[name][run] for name in names], configuration.losses) for run in range(size)
    ]
    products = np.array([test.products for test in tests])  # (run of the features, features, run of the losses, m)
    statistics = np.array([test.statistic for test in tests])

    def significant(features: NDArray[np.int64], losses: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of draws of runs (D, k), by feature."""
        sums = (values[features, :, losses].sum(axis=1) for values in (statistics, products))
        return sign_flip_p_value(*sums) <= LEVEL

    one_run = significant(*np.array(np.nonzero(~np.eye(size, dtype=bool)))[:, :, None])
    runs = np.random.default_rng(0).permuted(np.tile(np.arange(size), (GUARD_DRAWS, 1)), axis=1)
    features, losses = runs[:, :TOGETHER], runs[:, TOGETHER : 2 * TOGETHER]
    together = significant(features, losses)
    shifts = [significant(features, np.roll(losses, -shift, axis=1)) for shift in range(1, TOGETHER)]
    kept = together & (np.mean(shifts, axis=0) < 0.5)
    rows = []
    for count, words, found in ((1, "", one_run), (TOGETHER, "", together), (TOGETHER, ", as answered", kept)):
        for name, share in zip(names, found.mean(axis=0), strict=True):
            row = {
                "data": f"real runs{words}",
                "kind": f"{configuration.name} {name}",
                "runs": count,
                "draws": len(found),
            }
            row |= {"points": configuration.losses.shape[1], "covariates": 0, "lead": "within runs", "found": share}
            rows.append(row)
    return rows


def placebos(folder: Path) -> list[dict[str, Any]]:
    """The rates of the placebos of the features of a run of the workflow, given the norm of the weights."""
    features, metrics, models = small_tables.read(folder)
    whole = features[features["layer"] == "all"]
    wide = whole.assign(name=whole["source"] + "." + whole["feature"]).pivot(
        index=["model", "step"], columns="name", values="value"
    )
    table = wide.join(
        metrics.pivot(index=["model", "step"], columns="metric", values="value"), how="inner"
    ).reset_index()
    norm, warmup = f"weights.{WEIGHT_NORM.feature}", float(models["warmup_steps"].max())
    names = [name for name in wide.columns if name != norm]
    rows = toposcale.test_metric(table, names, given=norm, warmup_steps=warmup).to_frame()
    rows = rows.dropna(subset=["false_positive_rate"])
    return [
        {"data": f"placebos of {folder.name}", "kind": "median of features", "runs": of.n_runs.max(), "covariates": 1}
        | {"points": of.n_points.max(), "lead": question, "draws": len(of), "found": of.false_positive_rate.median()}
        for question, of in rows.groupby("question")
    ]


def jobs() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Yield what is measured, as functions with their arguments."""
    for kind, runs, points, covariates in product(KINDS, N_RUNS, N_POINTS, N_COVARIATES):
        cases = [Case(kind, runs, points, covariates, lead) for lead in LEADS]
        yield from ((unrelated, (case,)) for case in cases if case.is_tested)
        if (points, covariates) in PLANTED_IN and kind in PLANTED_KINDS:
            yield related, (cases[0],)
    yield from ((between, (count, planted)) for count in BETWEEN_RUNS for planted in (None, 0.8))
    yield from ((real, (configuration,)) for configuration in configurations_of(RUNS / "study-1"))


def rate_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rates of simulated runs in %, and what is found of what is promised at 80%."""
    parts = []
    for (lead, points), of in rows[rows["points"].notna() & rows["lead"].isin(LEADS.values())].groupby(
        ["lead", "points"]
    ):
        row = {"question": lead, "checkpoints": f"{points:.0f}"}
        for runs, words in ((1, "1 run"), (8, "8 runs")):
            share = 100 * of[(of["data"] == "simulated") & (of["runs"] == runs)]["found"]
            found = 100 * of[(of["data"] == "planted") & (of["runs"] == runs)]["found"].dropna()
            row[words] = f"{share.mean():.1f} ({share.min():.1f} to {share.max():.1f})" if len(share) else ""
            row[f"found, {words}"] = f"{found.mean():.0f}" if len(found) else ""
        if row["1 run"]:
            parts.append(row)
    return pd.DataFrame(parts)


def main(folders: list[Path]) -> None:
    """Write the rates."""
    with ProcessPoolExecutor() as pool:
        results = [job.result() for job in [pool.submit(function, *values) for function, values in jobs()]]
    rows = [row for result in results for row in (result if isinstance(result, list) else [result])]
    rows += [row for folder in folders for row in placebos(folder)]
    small_tables.write(pd.DataFrame(rows), TABLE)
    print(small_tables.markdown(rate_table(pd.read_csv(TABLE))))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
