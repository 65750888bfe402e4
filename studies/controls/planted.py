"""A positive control that is topological: `PYTHONPATH=workflow python -m studies.controls.planted TABLES WORK RUN`.

Question 1 of the plan: at which size do the tests of study 4 and of the report find an effect of topology that is planted
in the loss? WORK has the weights of the replication, RUN is the folder of the default run; the parts whose input is not
there are left out. It writes `planted.csv` and `planted_summary.csv`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta, norm

from studies import small_tables
from studies.controls.study_4 import POWER, SCORE_BEYOND, runs_of_study_4
from studies.controls.train import TOKEN_EMBEDDING, weights_file
from studies.norms import MEAN_ROW_NORM, NORMS, mean_row_norm
from studies.over_seeds import EarlyValues
from studies.study4.configurations import H0, NUCLEAR, SCORE, surrogate
from studies.study4.questions import (
    BEYOND_NUCLEAR,
    BEYOND_SURROGATES,
    HIGH_RATE,
    LEVEL,
    LOW_RATE,
    MEAN,
    SQUARES,
    Question,
    read_of,
    tables_of,
)
from toposcale import homology
from toposcale.analysis.controls import CONTROLS
from toposcale.features import weights
from toposcale.io import tensor_files
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import Floats, is_constant, orthogonal_to, unit_rows
from toposcale.statistics.freedman_lane import fit_of_configuration, permuted_correlations
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.prewhitening import (
    prewhiten,
    residual_test,
    sign_flip_p_value,
    testable_segment,
    with_squares,
)

SIMULATIONS = 1000
DRAWS = 999
EFFECTS = (0.0, 0.03, 0.06, 0.09, 0.12, 0.16, 0.20, 0.30)
REPORT_EFFECTS = (0.0, 0.3, 0.5, 0.7, 0.9)
REPORT_SIMULATIONS = 100
AMOUNTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Amounts of rotation between which a checkpoint of the report's control is drawn."""
ROTATIONS = 4
"""Rotations of each run of the replication."""
MAX_LEVEL = 0.10
"""Share of cases that may be found without an effect."""
EVERYTHING = (*NORMS, NUCLEAR, surrogate("h0_mean"))
"""What the planted direction is orthogonal to, beside the losses so far."""


def left_rotation(amount: float, size: int, *, seed: Sequence[int | str]) -> Floats:
    """Return an orthogonal matrix (size, size): the Cayley transform of a random skew-symmetric matrix times `amount`."""
    drawn = homology.seeded_generator(seed).standard_normal((size, size)) / np.sqrt(size)
    skew = amount * (drawn - drawn.T) / np.sqrt(2)
    return np.linalg.solve(np.eye(size) - skew, np.eye(size) + skew)


class FixedTest:
    """The two statistics of a question of study 4 for any outcome of the same runs.

    Their null distribution, of the permuted residuals of the real outcome, is drawn once: it hardly depends on which of
    the simulated outcomes is permuted.
    """

    def __init__(self, question: Question, read: EarlyValues, draws: int, seed: int = 42) -> None:
        values = read.features.xs(question.feature, level="feature").to_numpy(np.float64)
        labels = np.array(read.configurations)
        self.members = [np.flatnonzero(labels == name) for name in dict.fromkeys(read.configurations)]
        self.fits = [fit_of_configuration(values, read.outcome[None], read.controls, runs) for runs in self.members]
        self.degrees = np.array([fit.degrees_of_freedom for fit in self.fits])
        self.bases = [np.linalg.qr(fit.design.T)[0] for fit in self.fits]
        blocks = permuted_correlations(self.fits, draws=draws, seed=seed)
        null = np.concatenate([np.hstack(correlations) for correlations, _ in blocks])[1:]
        self.null = {MEAN: self._mean(null), SQUARES: null**2 @ self.degrees}

    def _mean(self, correlations: Floats) -> Floats:
        return np.asarray(correlations @ self.degrees / self.degrees.sum())

    def correlations(self, outcome: Floats) -> Floats:
        """Return the partial correlation of each setting (S,) with an outcome (R,)."""
        found = []
        for fit, basis, runs in zip(self.fits, self.bases, self.members, strict=True):
            rest = outcome[runs] - basis @ (basis.T @ outcome[runs])
            found.append(float(fit.features[0] @ rest / np.linalg.norm(rest)))
        return np.array(found)

    def p(self, outcome: Floats) -> dict[str, float]:
        """Return the p-value of each statistic."""
        found, centre = self.correlations(outcome), self.null[MEAN].mean()
        extreme = np.abs(self.null[MEAN] - centre) >= abs(self._mean(found) - centre)
        larger = self.null[SQUARES] >= found**2 @ self.degrees
        return {name: (1 + float(hits.sum())) / (1 + len(hits)) for name, hits in ((MEAN, extreme), (SQUARES, larger))}


@dataclass(frozen=True)
class Planted:
    """Runs of some settings whose final loss can be given an effect of a direction.

    reads: what each question compares; fitted (R,): the losses that all controls fit; residuals and direction (R,): what
    they leave of the loss and of the direction, of one length in each setting; members: the runs of each setting.
    """

    reads: Mapping[Question, EarlyValues]
    fitted: Floats
    residuals: Floats
    direction: Floats
    members: list[np.ndarray]

    def outcome(self, effect: float, random: np.random.Generator) -> Floats:
        """Return losses (R,) that have the partial correlation `effect` with the direction, in expectation."""
        noise = np.concatenate([random.permutation(self.residuals[runs]) for runs in self.members])
        order = np.concatenate(self.members)
        planted = np.empty_like(noise)
        planted[order] = np.sqrt(1 - effect**2) * noise + effect * self.direction[order]
        return self.fitted + planted


def plant(models: pd.DataFrame, direction: str, questions: Sequence[Question], *, spectrum: bool = True) -> Planted:
    """Prepare runs, a row each, for an effect of the column `direction`.

    spectrum: the losses keep what they owe to the nuclear norm and to the surrogates; False, to the losses so far and the
    norms alone.
    """
    tables = tables_of(models)
    reads = {question: read_of(question, tables) for question in questions}
    everything = Question("everything", SCORE, BEYOND_NUCLEAR.outcome, EVERYTHING)
    read = read_of(everything, tables)
    fitted_read = read if spectrum else read_of(everything._replace(given=NORMS), tables)
    values = models.set_index("model").sort_index()[direction].to_numpy(np.float64)
    labels = np.array(read.configurations)
    members = [np.flatnonzero(labels == name) for name in dict.fromkeys(read.configurations)]
    fitted, residuals, left = (np.empty(len(labels)) for _ in range(3))
    for runs in members:
        fit = fit_of_configuration(values[None], read.outcome[None], read.controls, runs)
        rest, _ = orthogonal_to(values[None, runs], fit.design)
        kept = fit_of_configuration(values[None], read.outcome[None], fitted_read.controls, runs)
        residuals[runs], fitted[runs] = fit.residuals, read.outcome[runs] - kept.residuals
        left[runs] = unit_rows(rest)[0] * np.linalg.norm(fit.residuals)
    return Planted(reads, fitted, residuals, left, members)


def power_rows(part: str, group: str, planted: Planted, simulations: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield for each question, statistic and effect in how many simulations it is found."""
    tests = {question.name: FixedTest(question, read, draws) for question, read in planted.reads.items()}
    degrees = int(min(test.degrees.sum() for test in tests.values()))
    for effect in EFFECTS:
        random = np.random.default_rng([42, *f"{part} {group} {effect}".encode()])
        p: dict[tuple[str, str], list[float]] = {}
        for _ in range(simulations):
            outcome = planted.outcome(effect, random)
            for name, test in tests.items():
                for statistic, value in test.p(outcome).items():
                    p.setdefault((name, statistic), []).append(value)
        for (name, statistic), values in p.items():
            key = {"part": part, "group": group, "test": name, "statistic": statistic, "effect": effect}
            yield key | found_of(np.array(values)) | {"ideal": ideal_power(effect, degrees)}


def found_of(p: Floats) -> dict[str, float]:
    """Return the share of p-values of at most `LEVEL` with its 95% Clopper-Pearson interval."""
    n, found = len(p), int((p <= LEVEL).sum())
    low = beta.ppf(0.025, found, n - found + 1) if found else 0.0
    high = beta.ppf(0.975, found + 1, n - found) if found < n else 1.0
    return {"simulations": n, "found": found / n, "low": float(low), "high": float(high)}


def ideal_power(effect: float, degrees_of_freedom: int) -> float:
    """Return the power of a test of a correlation that knows the planted direction, by Fisher's z."""
    critical, mean = norm.ppf(1 - LEVEL / 2), np.arctanh(effect) * np.sqrt(degrees_of_freedom)
    return float(norm.sf(critical - mean) + norm.cdf(-critical - mean))


def natural(simulations: int, draws: int, *, spectrum: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the rows of 1a: the runs of study 4, the effect planted along the score among surrogates."""
    models = runs_of_study_4()
    for rate in (LOW_RATE, HIGH_RATE):
        own = models[models["learning_rate"] == rate]
        planted = plant(own, SCORE, (BEYOND_SURROGATES, BEYOND_NUCLEAR, SCORE_BEYOND), spectrum=spectrum)
        part = "natural" if spectrum else "no spectral effect"
        yield from power_rows(part, f"rate {rate}", planted, simulations, draws)


def rotated_runs(replication: pd.DataFrame, work: Path) -> pd.DataFrame:
    """Return the runs of 3K of the replication with rotated token embeddings, and the amount of each rotation."""
    settings = weights.WeightSettings(features=("topology", "norms"), max_dimension=0)
    rows = []
    for run in replication.to_dict("records"):
        matrices, _ = tensor_files.read(weights_file(work, run["model"]))
        for rotation in range(ROTATIONS):
            seed = (str(run["model"]), rotation)
            amount = float(homology.seeded_generator((*seed, "amount")).uniform())
            turned = left_rotation(amount, len(matrices[TOKEN_EMBEDDING]), seed=seed) @ matrices[TOKEN_EMBEDDING]
            own = matrices | {TOKEN_EMBEDDING: turned}
            features, _ = weights.compute_features(own.items(), settings)
            measured = {name: features[ALL_LAYERS][name] for name in (*H0, "frobenius_norm")}
            name = {"model": f"{run['model']}.{rotation}", "amount": amount}
            rows.append(run | measured | {MEAN_ROW_NORM: mean_row_norm(own.values())} | name)
    return pd.DataFrame(rows)


def seen_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean partial correlation over settings of the amount of a rotation with H0 and with the mean row norm,
    given the other controls, with and without that norm."""
    others = tuple(name for name in EVERYTHING if name != MEAN_ROW_NORM)
    rows = []
    for feature, given in (("h0_mean", EVERYTHING), ("h0_mean", others), (MEAN_ROW_NORM, others)):
        question = Question("seen", feature, BEYOND_NUCLEAR.outcome, given)
        read = read_of(question, tables_of(runs))
        amount = runs.set_index("model").sort_index()["amount"].to_numpy(np.float64)
        test = FixedTest(question, read, draws=1)
        correlation = float(test.correlations(amount) @ test.degrees / test.degrees.sum())
        rows.append({"feature": feature, "row_norm_given": MEAN_ROW_NORM in given, "correlation": correlation})
    return pd.DataFrame(rows)


def rotations(folder: Path, work: Path, simulations: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of 1b: rotated token embeddings, the effect planted along the amount of the rotation."""
    replication = pd.read_csv(folder / "replication.csv.gz")
    replication = replication[[weights_file(work, name).exists() for name in replication["model"]]]
    runs = rotated_runs(replication[replication["entry"] == "tiny-3k-fifth"], work)
    small_tables.write(
        runs[["model", "configuration", "amount", *H0, surrogate("h0_mean"), *EVERYTHING]], folder / "rotated.csv.gz"
    )
    small_tables.write(seen_table(runs), folder / "rotations_seen.csv")
    planted = plant(runs, "amount", (BEYOND_SURROGATES, BEYOND_NUCLEAR))
    yield from power_rows(
        "rotated", f"{len(runs)} matrices of {len(runs) // ROTATIONS} runs", planted, simulations, draws
    )


@dataclass(frozen=True)
class ReportRun:
    """A model of the default run on its testable checkpoints (T,): features (F, T), covariates by name, the loss, and how
    the features differ after each amount of rotation (A, F, T)."""

    names: list[str]
    values: Floats
    covariates: Mapping[str, Floats]
    loss: Floats
    changes: Floats
    variance_changes: Floats


ROTATED_FEATURES = ("h0_total", "h0_mean", "neural_persistence")


def report_run(model: str, run: Path, features: pd.DataFrame, losses: pd.DataFrame, warmup: float) -> ReportRun:
    """Read a model of a run, and rotate its token embedding at every testable checkpoint."""
    series = losses[losses["model"] == model].sort_values("step")
    segment = testable_segment(series["step"], warmup)
    steps = series["step"].to_numpy()[segment.start : segment.stop]
    own = features[(features["model"] == model) & (features["source"] == "weights")]
    whole: pd.DataFrame = (
        own[own["layer"] == ALL_LAYERS].pivot(index="feature", columns="step", values="value").reindex(columns=steps)
    )
    whole = whole[np.isfinite(whole.to_numpy(np.float64)).all(axis=1)]
    values = whole.to_numpy(np.float64)
    kept = ~is_constant(values)
    names, n_layers = [name for name, keep in zip(whole.index, kept, strict=True) if keep], own["layer"].nunique() - 1
    changes = np.zeros((len(AMOUNTS), len(names), len(steps)))
    variance_changes = np.zeros((len(AMOUNTS), len(steps)))
    for place, step in enumerate(steps):
        arrays, _ = tensor_files.read(run / f"checkpoints/{model}/step-{step:08d}.safetensors")
        embedding = np.asarray(arrays[TOKEN_EMBEDDING], np.float64)
        own_values = _of_embedding(embedding)
        for index, amount in enumerate(AMOUNTS):
            turned = left_rotation(amount, len(embedding), seed=(model, int(step))) @ embedding
            after = _of_embedding(turned)
            for name in ROTATED_FEATURES:
                share = 1 if name == "h0_total" else n_layers
                changes[index, names.index(name), place] = (after[name] - own_values[name]) / share
            variance_changes[index, place] = (after["weight_variance"] - own_values["weight_variance"]) / n_layers
    covariates = {
        name: whole.loc[name].to_numpy(np.float64)
        for control in CONTROLS.values()
        for name in (*control.of_model, *control.of_layer)
    }
    loss = series["value"].to_numpy(np.float64)[segment.start : segment.stop]
    return ReportRun(names, values[kept], covariates, loss, changes, variance_changes)


def _of_embedding(matrix: Floats) -> dict[str, float]:
    lifetimes = homology.h0_lifetimes(matrix)
    return {
        "h0_total": float(lifetimes.sum()),
        "h0_mean": float(lifetimes.mean()),
        "neural_persistence": homology.neural_persistence(matrix),
        "weight_variance": homology.weight_variance(matrix),
    }


REPORT_TESTS = {
    "weight_norm": ("h0_total", "h0_mean"),
    "weight_norm_and_spectrum": ("h0_total", "h0_mean"),
    "weight_norm_and_variance": ("neural_persistence",),
}


def report_simulation(
    runs: Mapping[str, ReportRun], effect: float, random: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Yield p and q of the tests of one simulated report: of each run, and of all runs together."""
    drawn = {model: random.integers(len(AMOUNTS), size=len(run.loss)) for model, run in runs.items()}
    common = sorted(set.intersection(*(set(run.names) for run in runs.values())))
    for name, tested in REPORT_TESTS.items():
        control, products, statistics = CONTROLS[name], [], []
        for model, run in runs.items():
            chosen, at = drawn[model], np.arange(len(run.loss))
            values = run.values + run.changes[chosen, :, at].T
            held = {key: run.covariates[key] for key in (*control.of_model, *control.of_layer)}
            if "weight_variance" in held:
                held["weight_variance"] = held["weight_variance"] + run.variance_changes[chosen, at]
            covariates = with_squares(np.array(list(held.values())))
            asked = [
                run.names.index(feature) for feature in common if not control.asked_of or feature in control.asked_of
            ]
            asked = [index for index in asked if run.names[index] not in control.of_model]
            loss = run.loss + effect_on(run.loss, np.array(AMOUNTS)[chosen], covariates, effect)
            # Those that no rotation changes are prewhitened once.
            asked.sort(key=lambda index: run.names[index] in ROTATED_FEATURES)
            n_stable = sum(run.names[index] not in ROTATED_FEATURES for index in asked)
            parts = [part for part in (values[asked[:n_stable]], values[asked[n_stable:]]) if len(part)]
            tests = [residual_test(part, loss, covariates) for part in parts]
            products.append(np.concatenate([test.products[:, 0] for test in tests]))
            statistics.append(np.concatenate([test.statistic[:, 0] for test in tests]))
            p = np.concatenate([test.p[:, 0] for test in tests])
            yield from _answers(model, name, [run.names[index] for index in asked], tested, p)
        p = sign_flip_p_value(np.sum(statistics, axis=0), np.sum(products, axis=0))
        yield from _answers("all runs together", name, [run.names[index] for index in asked], tested, p)


def effect_on(loss: Floats, amount: Floats, covariates: Floats, effect: float) -> Floats:
    """Return what gives the amounts (T,) the correlation `effect` with the innovations of the loss (T,)."""
    innovations = prewhiten(loss[None], covariates, half_cosine=True).values[0].std() * loss.std()
    return effect / np.sqrt(1 - effect**2) * innovations * (amount - amount.mean()) / amount.std()


def _answers(
    model: str, control: str, names: Sequence[str], tested: Sequence[str], p: Floats
) -> Iterator[dict[str, Any]]:
    q = benjamini_hochberg(p)
    for feature in tested:
        index = list(names).index(feature)
        for statistic, value in (("p", p[index]), ("q", q[index])):
            yield {
                "group": model,
                "test": f"{feature} {CONTROLS[control].title}",
                "statistic": statistic,
                "value": value,
            }


def report(run: Path, simulations: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of 1c: the tests of the report, in the models of the default run."""
    features, metrics, models = small_tables.read(run)
    losses = metrics[metrics["metric"] == "validation_loss"]
    sizes = models.sort_values("n_parameters")
    runs = {
        model: report_run(model, run, features, losses, warmup)
        for model, warmup in zip(sizes["model"], sizes["warmup_steps"], strict=True)
    }
    for effect in REPORT_EFFECTS:
        random = np.random.default_rng([42, *f"report {effect}".encode()])
        rows = [row for _ in range(simulations) for row in report_simulation(runs, effect, random)]
        for (group, test, statistic), part in pd.DataFrame(rows).groupby(["group", "test", "statistic"], sort=False):
            key = {"part": "report", "group": group, "test": test, "statistic": statistic, "effect": effect}
            yield key | found_of(part["value"].to_numpy(np.float64))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each test the smallest effect that is found in `POWER` of cases, by interpolation.

    NaN where none is, or where more than `MAX_LEVEL` is found without an effect.
    """
    rows = []
    for (part, group, test, statistic), own in table.groupby(["part", "group", "test", "statistic"], sort=False):
        own = own.sort_values("effect")
        found, effects = np.maximum.accumulate(own["found"].to_numpy()), own["effect"].to_numpy()
        enough = np.flatnonzero(found >= POWER)
        needed = float("nan")
        keeps_level = bool(found[0] <= MAX_LEVEL)
        if len(enough) and keeps_level:
            after = enough[0]
            before = max(after - 1, 0)
            needed = float(np.interp(POWER, found[before : after + 1], effects[before : after + 1]))
        rows.append(
            {"part": part, "group": group, "test": test, "statistic": statistic, "found_at_80": needed}
            | {
                "level": own["found"].iloc[0],
                "power_at_most": own["found"].max(),
                "passes": keeps_level and bool(len(enough)),
            }
        )
    return pd.DataFrame(rows)


def main(folder: Path, work: Path, run: Path, simulations: int = SIMULATIONS, draws: int = DRAWS) -> None:
    """Write and print the tables of every part whose input is there; parts that are in the table stay."""
    path = folder / "planted.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["part"])
    parts = {
        "natural": (True, lambda: natural(simulations, draws)),
        "no spectral effect": (True, lambda: natural(simulations, draws, spectrum=False)),
        "rotated": ((folder / "replication.csv.gz").exists(), lambda: rotations(folder, work, simulations, draws)),
        "report": (
            (run / "tables/features.parquet").exists(),
            lambda: report(run, min(simulations, REPORT_SIMULATIONS)),
        ),
    }
    for name, (is_there, rows) in parts.items():
        if is_there and name not in set(done["part"]):
            done = pd.concat([done, pd.DataFrame(rows())], ignore_index=True)
            small_tables.write(done, path)
    results = summary(done)
    small_tables.write(results, folder / "planted_summary.csv")
    print(small_tables.markdown(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
