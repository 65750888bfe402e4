"""What the study can find: `python -m studies.study.power` prints its power, and the coverage of its intervals.

Simulated are 12 configurations of 40 runs, the shape of config/study.yaml, and what the study does with them: the built
tests, with 999 permutations instead of 10,000. A test finds an effect where p is at most 0.05, and, the strictest that
Holm asks for among four, 0.0125.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from studies.over_seeds import own_surplus
from toposcale.statistics.freedman_lane import between_runs
from toposcale.statistics.run_permutation import pair_correlations, permute_pairs

CONFIGURATIONS, SEEDS, POINTS = 12, 40, 38
LABELS = [str(configuration) for configuration in range(CONFIGURATIONS) for _ in range(SEEDS)]
LEVELS = (0.05, 0.0125)
Z = 1.959964
Found = tuple[float, bool]


def between(effect: float, random: np.random.Generator) -> Found:
    """One study of question A with a partial correlation: its p-value, and whether the interval holds the truth."""
    controls, feature, noise = random.normal(size=(4, 480)), random.normal(size=480), random.normal(size=480)
    shift = np.repeat(random.normal(size=CONFIGURATIONS) * 5, SEEDS)
    feature = feature + controls.sum(axis=0)
    rest = feature - controls.sum(axis=0)
    outcome = effect * rest + np.sqrt(1 - effect**2) * noise + controls.sum(axis=0) + shift
    test = between_runs(feature, outcome, LABELS, controls, draws=999, seed=int(random.integers(2**31)))
    middle, half = np.arctanh(test.correlation[0]), Z / np.sqrt(test.degrees_of_freedom - 1)
    return float(test.p[0]), bool(abs(middle - np.arctanh(effect)) <= half)


def within(effect: float, random: np.random.Generator) -> Found:
    """One study of question B: prewhitened residuals that share a shock in their configuration, and have an own
    correlation."""
    shared = random.normal(size=(2, CONFIGURATIONS, 1, POINTS))
    own = random.normal(size=(2, CONFIGURATIONS, SEEDS, POINTS))
    feature = shared[0] + own[0]
    loss = 0.5 * shared[0] + shared[1] + effect * own[0] + np.sqrt(1 - effect**2) * own[1]
    table = np.full((480, 480), np.nan)
    for configuration in range(CONFIGURATIONS):
        block = slice(configuration * SEEDS, (configuration + 1) * SEEDS)
        table[block, block] = pair_correlations(feature[configuration][:, None], loss[configuration][:, None])[0, 0]
    test = permute_pairs(table, LABELS, draws=999, seed=int(random.integers(2**31)))
    surplus = own_surplus(np.nan_to_num(table), LABELS)
    # What the statistic estimates under this effect is not the effect itself: its coverage is looked at where it is 0.
    holds = abs(surplus.mean()) <= Z * surplus.std(ddof=1) / np.sqrt(len(surplus))
    return float(test.p), bool(holds)


def table(name: str, study: Callable[[float, np.random.Generator], Found], effects: list[float], studies: int) -> None:
    """Power by effect, and coverage."""
    print(
        f"\n{name}, {studies} simulated studies an effect\n\n| effect | p <= 0.05 | p <= 0.0125 | interval holds it |"
    )
    print("| --- | --- | --- | --- |")
    for effect in effects:
        random = np.random.default_rng([42, int(1000 * effect)])
        found = [study(effect, random) for _ in range(studies)]
        p_values = np.array([p for p, _ in found])
        power = [f"{np.mean(p_values <= level):.0%}" for level in LEVELS]
        coverage = np.mean([holds for _, holds in found])
        shown = f"{coverage:.0%}" if study is between or effect == 0 else ""
        print(f"| {effect:g} | {power[0]} | {power[1]} | {shown} |", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    table("A, between runs", between, [0.0, 0.10, 0.15, 0.20, 0.30], count)
    table("B, within runs", within, [0.0, 0.01, 0.02, 0.03, 0.05], count)
