"""`make nulls`: how often each test finds what cannot be there, in every cell of the studies, and what is there.

    python -m studies.nulls [FOLDER ...] [--draws 50]

The tests over checkpoints: features of one run against the losses of another run of its cell, with the same schedule and
size, another seed and another data order. The norms go with the features. Between runs: the final losses are drawn, from
what the controls of the cell tell and permuted residuals, so that features and controls stay together. Whatever is found
is a false discovery. FOLDER: the tables of a study, or a run in results/ with cells of at least 10 seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from studies import small_tables
from studies.nulls.cells import Cell, cells_of
from toposcale.analysis.controls import CONTROLS, Control
from toposcale.analysis.over_seeds import early_values, run_permutation_table
from toposcale.analysis.pooled import joint_test
from toposcale.analysis.simulated_features import SimulatedFeatures
from toposcale.features.registry import WEIGHT_NORM
from toposcale.io.errors import UserError
from toposcale.statistics.between_runs import between_runs, fit_of_cell
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg

STUDY, SECOND = Path("studies/study/tables/study"), Path("studies/study2/tables")
LEVEL = 0.05
SINGLE_LIMIT, DISCOVERY_LIMIT = 0.07, 0.10
TOGETHER = (1, 5)
SEEDS = 8
"""Seeds of a cell in the run permutation."""
PERMUTATIONS = 999
EFFECTS = (0.3, 0.5)
WITHDRAWN = "withdrawn: "
GIVEN = {
    "given norm": CONTROLS["weight_norm"],
    "given norm and variance": CONTROLS["weight_norm_and_variance"],
    f"{WITHDRAWN}given step": Control("step", step=True),
}
Found = list[tuple[float, float]]
"""Of each draw: the share of tests with p of at most `LEVEL`, and whether any has such a q."""


def levels(cell: Cell, draws: int, given: Mapping[str, Control], *, over_seeds: bool) -> dict[str, Found]:
    """What every test finds in crossed runs of a cell. over_seeds: whether the tests over seeds are measured too."""
    found: dict[str, Found] = {}
    held = set.union(*({*own["feature"]} for own in cell.features.values()))
    for words, control in given.items():
        if not {*control.of_model, *control.of_layer} <= held:
            continue
        for size in TOGETHER:
            if 2 * size <= len(cell.models):
                label = f"{words}, {_runs(size)}"
                found[label] = _crossed(cell, size, draws, partial(_pooled_p, control=control))
    if over_seeds and len(cell.models) >= 2 * SEEDS:
        permuted = _crossed(cell, SEEDS, draws, partial(_permuted_p, metric=cell.metric), True)
        found[f"run permutation, {SEEDS} seeds"] = permuted
    if over_seeds:
        found["between runs"] = _between([cell], draws)
    return found


def _runs(size: int) -> str:
    return "one run" if size == 1 else f"{size} runs together"


def _crossed(cell: Cell, size: int, draws: int, p_of: Callable[..., Floats], one_cell: bool = False) -> Found:
    random, names = np.random.default_rng(size), list(cell.features)
    found = []
    for _ in range(draws):
        chosen = random.choice(names, 2 * size, replace=False).tolist()
        found.append(_rates(p_of(*cell.crossed(chosen[:size], chosen[size:], one_cell=one_cell))))
    return found


def _rates(p: Floats) -> tuple[float, float]:
    p = p[np.isfinite(p)]
    return float((p <= LEVEL).mean()), float((benjamini_hochberg(p) <= LEVEL).any())


def _pooled_p(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, control: Control
) -> Floats:
    return joint_test(features, metrics, models, control)["p"].to_numpy()


def _permuted_p(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, metric: str) -> Floats:
    table = run_permutation_table(features, metrics, models, metric=metric, seed=0)
    return table["p"].to_numpy(np.float64)


def _between(cells: list[Cell], draws: int) -> Found:
    """The test between runs of all cells together, with outcomes drawn."""
    features, metrics, models = (
        pd.concat(tables) for tables in zip(*(cell.whole for cell in cells), strict=True)
    )
    read = early_values(features, metrics, models, cells[0].metric, [WEIGHT_NORM.feature])
    if read is None:
        return []
    values, labels = read.features.to_numpy(np.float64), np.array(read.cells)
    fits = {}
    for label in dict.fromkeys(read.cells):
        own = np.flatnonzero(labels == label)
        fits[label] = own, fit_of_cell(values, read.outcome[None], read.controls, own).residuals
    random, found = np.random.default_rng(0), []
    for draw in range(draws):
        outcome = read.outcome.copy()
        for own, residuals in fits.values():
            outcome[own] += random.permutation(residuals) - residuals
        test = between_runs(values, outcome, read.cells, read.controls, draws=PERMUTATIONS, seed=draw)
        found.append(_rates(test.p))
    return found


def powers(cell: Cell) -> dict[str, list[float]]:
    """Share of planted features that one run and 5 runs together find, given the norm, at each of `EFFECTS`."""
    names, planted = list(cell.features), np.repeat(np.linspace(0.05, 0.95, 19), 50)
    found = {}
    for size in TOGETHER:
        chosen = np.random.default_rng(size).choice(names, size, replace=False).tolist()
        tables = cell.crossed(chosen, chosen, one_cell=False)
        measured, p = SimulatedFeatures(*tables, control=CONTROLS["weight_norm"]).test(planted, 1, 0)
        curve = pd.DataFrame({"r": measured, "found": p <= LEVEL, "planted": planted})
        curve = curve.groupby("planted").mean()
        found[_runs(size)] = [float(np.interp(r, curve["r"], curve["found"])) for r in EFFECTS]
    return found


def level_table(found: Mapping[str, Mapping[str, Found]], place: int) -> tuple[pd.DataFrame, bool]:
    """Rates with their standard errors in percent, a row a cell and a column a test, and whether every used test keeps it.

    found: by cell and test. place: 0 for single tests, 1 for any discovery.
    """
    limit, rows = (SINGLE_LIMIT, DISCOVERY_LIMIT)[place], []
    kept: dict[str, bool] = {}
    tests = list(dict.fromkeys(test for own in found.values() for test in own))
    for cell, own in found.items():
        row = {"cell": cell}
        for test in tests:
            rates = np.array(own.get(test, []), dtype=np.float64).reshape(-1, 2)[:, place]
            if len(rates):
                mean, error = rates.mean(), rates.std(ddof=1) / np.sqrt(len(rates))
                mark = "" if mean - 2 * error <= limit else " !"
                row[test] = f"{100 * mean:.1f} ± {100 * error:.1f}{mark}"
                kept[test] = kept.get(test, True) and not mark
        rows.append(row)
    rows.append(
        {"cell": "**kept**"} | {test: "yes" if kept[test] else "NO" for test in tests if test in kept}
    )
    used = [kept[test] for test in kept if not test.startswith(WITHDRAWN)]
    return pd.DataFrame(rows).fillna(""), all(used)


def measured(cell: Cell, draws: int, second: bool) -> tuple[dict[str, Found], dict[str, list[float]]]:
    """Levels and powers of one cell; of the second study's what the tables of the first cannot tell."""
    given = {words: c for words, c in GIVEN.items() if c.asked_of} if second else GIVEN
    return levels(cell, draws, given, over_seeds=not second), {} if second else powers(cell)


def main(folders: list[Path], draws: int) -> None:
    """Print the levels of every cell, and the power, as the tables of docs/statistics.md."""
    cells = [(cell, folder == SECOND) for folder in folders for cell in cells_of(folder)]
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(measured, cell, draws, second) for cell, second in cells]
        results = [job.result() for job in jobs]
    found = {cell.name: own for (cell, _), (own, _) in zip(cells, results, strict=True)}
    whole = [cell for cell, second in cells if not second]
    if len(whole) > 1:
        found[f"all {len(whole)} cells"] = {"between runs": _between(whole, draws)}
    print(f"{sum(len(cell.models) for cell, _ in cells)} runs in {len(cells)} cells, {draws} draws")
    kept = True
    for place, words in enumerate(("p of at most 0.05, % of tests", "any q of at most 0.05, % of draws")):
        table, own = level_table(found, place)
        kept &= own
        print(f"\n{words}\n\n{small_tables.markdown(table)}", flush=True)
    rows = [
        {"cell": cell.name}
        | {
            f"{who}, r = {r}": f"{100 * share:.0f}"
            for who, all_of in power.items()
            for r, share in zip(EFFECTS, all_of, strict=True)
        }
        for (cell, _), (_, power) in zip(cells, results, strict=True)
        if power
    ]
    if rows:
        print(f"\nfound at p of at most 0.05 given norm, %\n\n{small_tables.markdown(pd.DataFrame(rows))}")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[STUDY, SECOND])
    parser.add_argument("--draws", type=int, default=50)
    options = parser.parse_args()
    try:
        main(options.folders, options.draws)
    except UserError as error:
        sys.exit(f"toposcale: {error}")
