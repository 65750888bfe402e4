"""`make nulls`: how often each test finds what cannot be there, and how often it finds what is.

A real null: the features of one training against the losses of another one, with the same schedule and size, another
seed and another data order. Whatever is found there is a false discovery. Power: features made of the losses and noise.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from studies.nulls.runs import SEEDS, STEPS, WARMUPS, load, make, name
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.over_seeds import between_runs_table, run_permutation_table
from toposcale.analysis.partial_correlations import run_test
from toposcale.analysis.pooled import pooled_test
from toposcale.analysis.series import aligned_series, whole_model
from toposcale.analysis.simulated_features import SimulatedFeatures
from toposcale.statistics.between_runs import between_runs
from toposcale.statistics.innovations import innovations, lagged, with_squares
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.run_permutation import run_permutation

LEVEL = 0.05
SINGLE_LIMIT, DISCOVERY_LIMIT = 0.07, 0.10
EFFECTS = (0.3, 0.5)
POOL, CELL = 5, 8
METRIC = "validation_loss"


class Runs:
    """The trained runs: whole-model features and validation losses, by warm-up."""

    def __init__(self, folder: Path, seeds: int) -> None:
        features, metrics = load(folder)
        self.features = whole_model(features)
        self.metrics = metrics[metrics["metric"] == METRIC]
        self.names = {warmup: [name(warmup, seed) for seed in range(seeds)] for warmup in WARMUPS}
        self._features = dict(list(self.features.groupby("model")))
        self._metrics = dict(list(self.metrics.groupby("model")))

    def tables(
        self, pairs: list[tuple[str, str]], warmup: int, cell: str = ""
    ) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Features of the first of each pair beside the losses of the second, under one name."""
        features = pd.concat(
            [self._features[one].assign(model=f"run-{k:02d}") for k, (one, _) in enumerate(pairs)]
        )
        metrics = pd.concat(
            [self._metrics[two].assign(model=f"run-{k:02d}") for k, (_, two) in enumerate(pairs)]
        )
        names = [f"run-{k:02d}" for k in range(len(pairs))]
        models = {"model": names, "cell": [cell or one for one in names]}
        return features, metrics, pd.DataFrame(models | {"warmup_steps": float(warmup), "final_step": STEPS})


def single_level(
    runs: Runs, warmup: int, start: int, control: str, pairs: int, rng: np.random.Generator
) -> np.ndarray:
    """Of each pair of runs: the share of features with p of at most 5%, and whether any has such a q."""
    found = []
    for _ in range(pairs):
        one, two = rng.choice(runs.names[warmup], 2, replace=False)
        features, metrics, _ = runs.tables([(one, two)], start)
        p = np.concatenate(
            [
                test.p.ravel()
                for group in aligned_series(features, metrics, CONTROLS[control])
                if (test := run_test(group, {"run-00": start})[0]) is not None
            ]
        )
        p = p[np.isfinite(p)]
        found.append([(p <= LEVEL).mean(), (benjamini_hochberg(p) <= LEVEL).any()])
    return np.array(found)


def table_level(
    runs: Runs,
    warmup: int,
    size: int,
    draws: int,
    rng: np.random.Generator,
    p_of: Callable[..., np.ndarray],
    cell: str = "",
) -> np.ndarray:
    """The same of `draws` sets of `size` runs' features beside the losses of as many others."""
    found = []
    for _ in range(draws):
        chosen = rng.choice(runs.names[warmup], 2 * size, replace=False)
        p = p_of(*runs.tables(list(zip(chosen[:size], chosen[size:], strict=True)), warmup, cell))
        p = p[np.isfinite(p)]
        found.append([(p <= LEVEL).mean(), (benjamini_hochberg(p) <= LEVEL).any()])
    return np.array(found)


def between_level(runs: Runs, warmup: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The same between all runs of one warm-up, each beside the losses of another."""
    found = []
    names = runs.names[warmup]
    for draw in range(draws):
        tables = runs.tables(list(zip(names, rng.permutation(names), strict=True)), warmup, "one")
        p = between_runs_table(*tables, metric=METRIC, seed=draw)["p"].dropna().to_numpy()
        found.append([(p <= LEVEL).mean(), (benjamini_hochberg(p) <= LEVEL).any()])
    return np.array(found)


def powers(runs: Runs, warmup: int, rng: np.random.Generator) -> Iterator[tuple[str, list[float]]]:
    """Share of planted features with p of at most 5%, at each of `EFFECTS`."""
    names, draws = runs.names[warmup], 200
    for control in ("step", "weight_norm"):
        for label, size in (("one run", 1), (f"{POOL} runs together", POOL)):
            effects, shares = np.repeat(np.linspace(0.05, 0.95, 19), draws), []
            chosen = rng.choice(names, size, replace=False)
            tables = runs.tables([(one, one) for one in chosen], warmup)
            measured, p = SimulatedFeatures(*tables, control=CONTROLS[control]).test(effects, 1, 0)
            curve = (
                pd.DataFrame({"r": measured, "found": p <= LEVEL, "planted": effects})
                .groupby("planted")
                .mean()
            )
            shares = [float(np.interp(r, curve["r"], curve["found"])) for r in EFFECTS]
            yield f"{label}, given {control.replace('_', ' ')}", shares
    tables = runs.tables([(one, one) for one in names[:CELL]], warmup)
    own = SimulatedFeatures(*tables, control=CONTROLS["weight_norm"]).runs
    controls = [with_squares(run.controls) for run in own]
    y = np.stack(
        [innovations(run.targets, control).values for run, control in zip(own, controls, strict=True)]
    )
    yield (
        "run permutation",
        [_found(_planted(y, r, draws, rng), y, [lagged(c) for c in controls]) for r in EFFECTS],
    )
    rows = runs.metrics[runs.metrics["model"].isin(names)].pivot(
        index="model", columns="step", values="value"
    )
    final, before = rows[STEPS].to_numpy(), rows[[120, 180]].to_numpy().T
    design = np.vstack([np.ones(len(final)), before])
    rest = final - design.T @ np.linalg.lstsq(design.T, final, rcond=None)[0]
    rest = rest[None, None] / rest.std()
    shares = []
    for r in EFFECTS:
        x = _planted(rest, r, draws, rng)[0]
        shares.append(float((between_runs(x, final, ["one"] * len(final), before).p <= LEVEL).mean()))
    yield f"between {len(final)} runs", shares


def _planted(y: np.ndarray, r: float, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Features (R, draws, m) whose innovations correlate r with those of the metric (R, 1, m)."""
    noise = rng.standard_normal((len(y), draws, y.shape[2]))
    return r * y / y.std(axis=2, keepdims=True) + np.sqrt(1 - r * r) * noise


def _found(x: np.ndarray, y: np.ndarray, controls: list[np.ndarray]) -> float:
    return float((run_permutation(x, y, ["one"] * len(x), controls).p <= LEVEL).mean())


def _kept(means: np.ndarray, errors: np.ndarray) -> str:
    """Whether both levels are kept: yes, within two standard errors, or NO."""
    limits = np.array([SINGLE_LIMIT, DISCOVERY_LIMIT])
    if (means <= limits).all():
        return "yes"
    return "within its error" if (means - 2 * errors <= limits).all() else "NO"


def main(folder: Path, seeds: int, draws: int) -> None:
    """Print the levels and the powers as the tables of docs/statistics.md."""
    runs = Runs(folder, seeds)
    print(
        f"{seeds} seeds of tiny-3k, warm-ups {' and '.join(map(str, WARMUPS))} of {STEPS} steps, 51 checkpoints\n"
    )
    print("| test | warm-up | p of at most 0.05, % | any q of at most 0.05, % of draws | kept |")
    print("| --- | --- | --- | --- | --- |")
    missed = False
    for warmup in WARMUPS:
        rng = np.random.default_rng(warmup)
        rows: list[tuple[str, np.ndarray, bool]] = []
        for control in ("step", "weight_norm"):
            given = control.removeprefix("weight_")
            rows.append(
                (f"one run, given {given}", single_level(runs, warmup, warmup, control, draws, rng), True)
            )
            pooled = table_level(
                runs, warmup, POOL, draws, rng,
                lambda f, m, t, norm=control != "step": pooled_test(f, m, t, given_norm=norm)["p"].to_numpy(),
            )  # fmt: skip
            rows.append((f"{POOL} runs together, given {given}", pooled, True))
        permuted = table_level(
            runs, warmup, CELL, draws, rng,
            lambda f, m, t: run_permutation_table(f, m, t, metric=METRIC, seed=0)["p"].to_numpy(), "one",
        )  # fmt: skip
        rows.append((f"run permutation, {CELL} seeds", permuted, True))
        rows.append((f"between {seeds} runs", between_level(runs, warmup, draws, rng), True))
        for control in ("step", "weight_norm"):
            given = control.removeprefix("weight_")
            whole = single_level(runs, warmup, 0, control, draws, rng)
            rows.append((f"not used: one run with the warm-up in, given {given}", whole, False))
        for label, found, used in rows:
            (p, q), errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
            kept = _kept(found.mean(axis=0), errors) if used else ""
            missed |= kept == "NO"
            print(
                f"| {label} | {warmup} | {100 * p:.1f} ± {100 * errors[0]:.1f} | {100 * q:.0f} ± {100 * errors[1]:.0f} "
                f"| {kept} |",
                flush=True,
            )
    print("\n| test | warm-up | " + " | ".join(f"found at r = {r}, %" for r in EFFECTS) + " |")
    print("| --- | --- |" + " --- |" * len(EFFECTS))
    for warmup in WARMUPS:
        for label, shares in powers(runs, warmup, np.random.default_rng(1000 + warmup)):
            print(
                f"| {label} | {warmup} | " + " | ".join(f"{100 * share:.0f}" for share in shares) + " |",
                flush=True,
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/nulls"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    make(options.folder, options.seeds, options.workers or 1)
    main(options.folder, options.seeds, options.draws)
