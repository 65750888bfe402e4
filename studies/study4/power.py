"""What the fourth study can find: `python -m studies.study4.power 50` simulates so many studies of each kind.

The runs are drawn from a model of what was measured before: the shares below. Each simulated study goes through the primary
tests, Holm's correction and the verdict of `studies.study4.questions`, with 499 permutations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from studies import small_tables
from studies.nulls.configurations import RUNS, table_of
from studies.study4.configurations import LOSS_SHARES, NUMBERS, loss_column, surrogate, surrogate_error
from studies.study4.questions import (
    BEYOND_H0,
    BEYOND_NUCLEAR,
    HIGH_RATE,
    LEVEL,
    LOW_RATE,
    MEAN,
    PRIMARY,
    SQUARES,
    Verdict,
    answers_of,
    primary_table,
    shares_left,
    verdict,
)
from toposcale.statistics.coefficients import Floats

N_RUNS = 400
LEFT_BY_NUCLEAR, LEFT_BY_SURROGATES = 0.55, 0.27
"""Shares of the variance of `h0_mean`, given the losses so far and the norms, that the nuclear norm and the mean over
surrogates leave: the first in the third study, the second in runs with other seeds (studies/study4/README.md)."""
TOTAL_LEFT_BY_NUCLEAR = 0.35
SURROGATE_NOISE = 0.03
"""Share of the variance of the mean over surrogates, given the same, that is noise of its 20 draws."""
DRAWS = 499


class Effects(NamedTuple):
    """Correlations of the final loss, given the losses so far and the norms, with three independent parts of a run.

    own: what H0 has beyond the singular values; nuclear: the nuclear norm; evenness: what H0 has of the singular values
    beyond the nuclear norm. opposite: whether the first has the other sign in the larger model.
    """

    own: float = 0.0
    nuclear: float = 0.0
    evenness: float = 0.0
    opposite: bool = False


def of_h0_alone(correlation: float) -> Effects:
    """Return the effects where the loss goes with `h0_mean` itself, and with the parts of it alone."""
    parts = np.sqrt(np.array([LEFT_BY_SURROGATES, 1 - LEFT_BY_NUCLEAR, LEFT_BY_NUCLEAR - LEFT_BY_SURROGATES]))
    return Effects(*(correlation * parts).tolist())


SPECTRUM = Effects(nuclear=-0.2)
KINDS: Mapping[str, Mapping[float, Effects]] = {
    "nothing": {LOW_RATE: Effects(), HIGH_RATE: Effects()},
    "nuclear norm -.20 at both rates": {LOW_RATE: SPECTRUM, HIGH_RATE: SPECTRUM},
    **{
        f"nuclear norm -.20 at .003, H0's own -{abs(own):.2f} at .01".replace("-0.", "-."): {
            LOW_RATE: SPECTRUM,
            HIGH_RATE: Effects(own=own),
        }
        for own in (-0.09, -0.12, -0.15)
    },
    "h0_mean itself -.15 at both rates": {LOW_RATE: of_h0_alone(-0.15), HIGH_RATE: of_h0_alone(-0.15)},
    "H0's own .12 in one model, -.12 in the other": {
        rate: Effects(own=0.12, opposite=True) for rate in (LOW_RATE, HIGH_RATE)
    },
}


def simulated(kind: Mapping[float, Effects], random: np.random.Generator, runs: int = N_RUNS) -> pd.DataFrame:
    """Return the table of a study with effects, of so many runs in each configuration."""
    plans = product((2936, 7408), kind.items(), (0.0, 0.1))
    parts = [_configuration(count, rate, decay, effects, random, runs) for count, (rate, effects), decay in plans]
    return pd.concat(parts, ignore_index=True)


def _configuration(
    count: int, rate: float, decay: float, effects: Effects, random: np.random.Generator, runs: int
) -> pd.DataFrame:
    own, nuclear, evenness, rest, total, *noise = random.normal(size=(9, runs))
    norms = random.normal(size=(3, runs))
    norms[1:] = 0.9 * norms[0] + 0.4 * norms[1:]
    so_far = random.normal(size=(2, runs))
    sign = -1 if effects.opposite and count > 5000 else 1
    planted = np.array([sign * effects.own, effects.nuclear, effects.evenness])
    told = planted @ np.stack([own, nuclear, evenness]) + np.sqrt(1 - planted @ planted) * rest
    own_share, other_share = np.sqrt(LEFT_BY_SURROGATES), np.sqrt(LEFT_BY_NUCLEAR - LEFT_BY_SURROGATES)
    spectral = np.sqrt(1 - LEFT_BY_NUCLEAR) * nuclear + other_share * evenness
    beyond = (other_share * evenness + own_share * own) / np.sqrt(LEFT_BY_NUCLEAR)
    of_nuclear, left = np.sqrt([1 - TOTAL_LEFT_BY_NUCLEAR, TOTAL_LEFT_BY_NUCLEAR])
    spectral_total = of_nuclear * nuclear + left * evenness * other_share
    losses = np.cumsum([so_far[0], so_far[1], 0.7 * told + 0.3 * noise[0], 0.3 * (told - noise[0])], axis=0)
    values = {
        "frobenius_norm": norms[0],
        "mean_layer_norm": norms[1],
        "mean_row_norm": norms[2],
        "nuclear_norm": 3 * norms[0] + nuclear,
        "h0_mean": 3 * norms[0] + spectral + own_share * own,
        "h0_total": 3 * norms[0] + of_nuclear * nuclear + left * np.sqrt(0.5) * (beyond + total),
        "h0_surrogate_z": own,
        surrogate("h0_mean"): 3 * norms[0] + spectral + _noise(spectral, noise[1]),
        surrogate("h0_total"): 3 * norms[0] + spectral_total + _noise(spectral_total, noise[2]),
        **{surrogate_error(name): np.full(runs, 0.1) for name in ("h0_mean", "h0_total")},
        **{loss_column(share): 3 - share + 0.01 * loss for share, loss in zip(LOSS_SHARES, losses, strict=True)},
    }
    name = f"{count}.lr{rate}.wd{decay:g}"
    models = [f"{name}.seed{number:03d}" for number in range(runs)]
    facts = {
        "configuration": name,
        "final_step": 600,
        "learning_rate": rate,
        "weight_decay": decay,
        "n_parameters": count,
    }
    return pd.DataFrame({"model": models} | facts | {column: values[column] for column in NUMBERS})


def _noise(values: Floats, draws: Floats) -> Floats:
    return np.asarray(draws * values.std() * np.sqrt(SURROGATE_NOISE))


def primary_tests(name: str, kind: Mapping[float, Effects], studies: int) -> Iterator[pd.DataFrame]:
    """Yield the primary tests of so many simulated studies of a kind."""
    random = np.random.default_rng([42, *name.encode()])
    for _ in range(studies):
        yield primary_table(simulated(kind, random), DRAWS, int(random.integers(2**31)))


def found_rows(name: str, primary: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield for each rate: the mean estimate of each question, and how often the mean and the sum of squares were found."""
    for rate, of_rate in primary.groupby("rate"):
        row: dict[str, object] = {"planted": name, "rate": rate}
        for question in PRIMARY:
            own = of_rate[of_rate["question"] == question.name]
            mean, squares = (own[own["statistic"] == statistic] for statistic in (MEAN, SQUARES))
            found = " and ".join(f"{(one['q'] <= LEVEL).mean():.0%}" for one in (mean, squares))
            row[question.name] = f"{mean['estimate'].mean():+.3f}: {found}"
        yield row


def left_in_third_study() -> pd.DataFrame:
    """Return what the nuclear norm leaves of `h0_mean`, and H0 of the nuclear norm, in the third study."""
    models, series, early = (table_of(RUNS / "study-3", name) for name in ("models", "series", "early"))
    models = models[models["entry"].isin(["tiny-3k-third", "small-7k-third"])]
    own = (table[table["model"].isin(models["model"])] for table in (series, early))
    return shares_left((*small_tables.long_tables(*own), models), [BEYOND_NUCLEAR, BEYOND_H0])


def main(studies: int) -> None:
    """Print what was left in the third study, how often each test finds what, and how often each verdict is given."""
    left = left_in_third_study()
    print(f"{small_tables.markdown(left)}\n\nmeans: {left.drop(columns='configuration').mean().round(2).to_dict()}\n")
    found: list[dict[str, object]] = []
    verdicts = []
    for name, kind in KINDS.items():
        primary = list(primary_tests(name, kind, studies))
        said = [verdict(answers_of(one)) for one in primary]
        verdicts.append({"planted": name, **{one.name.lower(): f"{said.count(one) / studies:.0%}" for one in Verdict}})
        found += found_rows(name, pd.concat(primary))
    print(f"{small_tables.markdown(pd.DataFrame(found))}\n\n{small_tables.markdown(pd.DataFrame(verdicts))}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
