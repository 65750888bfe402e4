"""Error rates of tests for a relation between two short series with memory and drift: why the test is what it
is.

    python -m studies.nulls.surrogates [--pairs 1000] [--points 51]

Writes surrogates.csv: for unrelated pairs of many kinds of process, the share that each method rejects at 5% (it should
be 5); for related pairs, the share that it finds. Prints how often bootstrap intervals hold the true correlation. Chosen:
`sign flips`, which is `toposcale.statistics.prewhitening`; the rest are the usual alternatives, kept here only
to be measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtr
from scipy.stats import rankdata

from studies import small_tables
from toposcale.statistics.prewhitening import prewhiten, sign_flip_p_value
from toposcale.statistics.resampling import (
    bootstrap_spearman,
    independent_counts,
    moving_block_counts,
    percentile_interval,
)

SURROGATES = 199
Array = np.ndarray
Kind = tuple[str | None, str]
"""A drift, or none, and a noise."""


# Processes: (generator, pairs, points) -> (pairs, points).


def autoregression(noise: Array, memory: float) -> Array:
    series = noise.copy()
    series[:, 0] /= np.sqrt(1.0 - memory**2)
    for t in range(1, series.shape[1]):
        series[:, t] += memory * series[:, t - 1]
    return series


def second_order(noise: Array) -> Array:
    series = noise.copy()
    for t in range(2, series.shape[1]):
        series[:, t] += 1.5 * series[:, t - 1] - 0.6 * series[:, t - 2]
    return series


def sizes(rng: np.random.Generator, pairs: int, low: float, high: float) -> Array:
    return np.exp(rng.uniform(np.log(low), np.log(high), (pairs, 1)))


def drift(kind: str, rng: np.random.Generator, pairs: int, points: int) -> Array:
    """A smooth course of range about 1, up or down, of random rate."""
    time = np.linspace(0.0, 1.0, points)
    sign = rng.choice([-1.0, 1.0], (pairs, 1))
    if kind == "line":
        return sign * time
    if kind == "curve":
        return sign * time ** rng.uniform(0.5, 2.0, (pairs, 1))
    if kind == "exponential":
        return sign * np.exp(-time / sizes(rng, pairs, 0.05, 1.0))
    if kind == "sigmoid":
        middle, width = rng.uniform(0.1, 0.6, (pairs, 1)), sizes(rng, pairs, 0.02, 0.2)
        return sign / (1.0 + np.exp(-(time - middle) / width))
    course = (np.arange(points) + sizes(rng, pairs, 0.2, 3.0)) ** -rng.uniform(0.2, 1.0, (pairs, 1))
    return sign * course / np.ptp(course, axis=1, keepdims=True)


def noises(kind: str, noise: Array) -> Array:
    """Independent noise made into a process of this kind."""
    fading = 0.03 + np.cos(np.linspace(0.0, np.pi / 2, noise.shape[1]))
    return {
        "white": lambda: noise,
        "AR(1) 0.5": lambda: autoregression(noise, 0.5),
        "AR(1) 0.6": lambda: autoregression(noise, 0.6),
        "AR(1) 0.8": lambda: autoregression(noise, 0.8),
        "AR(1) 0.95": lambda: autoregression(noise, 0.95),
        "AR(2)": lambda: second_order(noise),
        "random walk": lambda: noise.cumsum(axis=1),
        "walk with drift": lambda: (noise + 0.5).cumsum(axis=1),
        "sum of AR(1)": lambda: autoregression(noise, 0.6).cumsum(axis=1),
        "fading white": lambda: fading * noise,
        "fading walk": lambda: (fading**1.5 * noise).cumsum(axis=1),
    }[kind]()


NOISES = ["white", "AR(1) 0.5", "AR(1) 0.8", "AR(1) 0.95", "AR(2)"]
NOISES += ["random walk", "walk with drift", "sum of AR(1)", "fading walk"]
DRIFTING = [("line", "white"), ("line", "AR(1) 0.6"), ("curve", "white"), ("exponential", "white")]
DRIFTING += [("exponential", "AR(1) 0.6"), ("power law", "white"), ("power law", "AR(1) 0.6")]
DRIFTING += [("power law", "random walk"), ("power law", "fading white"), ("sigmoid", "white")]
PROCESSES: list[Kind] = [(None, noise) for noise in NOISES] + [*DRIFTING]
RELATED: list[Kind] = [(None, "white"), (None, "AR(1) 0.8"), (None, "random walk"), ("line", "AR(1) 0.6")]
RELATED += [("power law", "white"), ("exponential", "AR(1) 0.6"), ("power law", "fading white")]


def pair(kind: Kind, rng: np.random.Generator, shape: tuple[int, int], shared: float) -> list[Array]:
    """Two sets of series whose noises correlate by `shared` and whose drifts have nothing to do with each
    other."""
    common = rng.standard_normal(shape)
    both = []
    for _ in range(2):
        own = rng.standard_normal(shape)
        series = noises(kind[1], np.sqrt(shared) * common + np.sqrt(1.0 - shared) * own)
        if kind[0] is not None:
            # From noise that hides the drift to noise of a thousandth of it: checkpoints of a loss curve are
            # the latter.
            series = drift(kind[0], rng, *shape) + sizes(rng, shape[0], 0.001, 0.3) * series
        both.append(series)
    return both


# Methods: (x, y, generator) -> p-values (pairs,).


def centred_ranks(series: Array) -> Array:
    ranks = rankdata(series, axis=-1)
    return ranks - ranks.mean(axis=-1, keepdims=True)


def spearman(x: Array, y: Array) -> Array:
    x, y = centred_ranks(x), centred_ranks(y)
    return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))


def student(r: Array, degrees_of_freedom: Array | float) -> Array:
    return 2.0 * stdtr(degrees_of_freedom, -np.abs(r) * np.sqrt(degrees_of_freedom / np.maximum(1.0 - r * r, 1e-15)))


def naive(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return student(spearman(x, y), x.shape[1] - 2)


def differences(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return student(spearman(np.diff(x), np.diff(y)), x.shape[1] - 3)


def against(x: Array, y: Array, surrogates: Array) -> Array:
    """Two-sided about the middle of the surrogates' distribution, which a drift moves away from 0."""
    observed, drawn = spearman(x, y)[:, None], spearman(x[:, None, :], surrogates)
    tails = [(drawn >= observed - 1e-12).sum(axis=1), (drawn <= observed + 1e-12).sum(axis=1)]
    return np.minimum(1.0, 2.0 * (1.0 + np.minimum(*tails)) / (1.0 + surrogates.shape[1]))


def circular_shift(x: Array, y: Array, rng: np.random.Generator) -> Array:
    return against(x, y, np.stack([np.roll(y, lag, axis=1) for lag in range(1, y.shape[1])], axis=1))


def detrended(series: Array) -> Array:
    time = np.linspace(-1.0, 1.0, series.shape[1])
    centred = series - series.mean(axis=1, keepdims=True)
    return centred - (centred @ time / (time @ time))[:, None] * time


def random_phases(x: Array, y: Array, rng: np.random.Generator) -> Array:
    x, y = detrended(x), detrended(y)
    spectrum = np.fft.rfft(y)
    phases = np.exp(2j * np.pi * rng.random((len(y), SURROGATES, spectrum.shape[1])))
    phases[..., 0] = 1.0
    return against(x, y, np.fft.irfft(spectrum[:, None, :] * phases, y.shape[1]))


def autoregressive_sieve(x: Array, y: Array, rng: np.random.Generator) -> Array:
    """Surrogates of y from an AR(2) around a line, started where y starts; the statistic is the plain
    correlation."""
    y = (y - y.mean(axis=1, keepdims=True)) / y.std(axis=1, keepdims=True)
    pairs, points = y.shape
    time = np.broadcast_to(np.linspace(-1.0, 1.0, points)[2:], (pairs, points - 2))
    design = np.stack([np.ones_like(time), time, y[:, 1:-1], y[:, :-2]], axis=-1)
    gram = np.einsum("rtk,rtl->rkl", design, design) + 1e-9 * np.eye(4)
    fit = np.linalg.solve(gram, np.einsum("rtk,rt->rk", design, y[:, 2:])[..., None])[..., 0]
    residuals = y[:, 2:] - np.einsum("rtk,rk->rt", design, fit)
    drawn = rng.integers(0, points - 2, (pairs, SURROGATES, points - 2))
    shocks = np.take_along_axis(np.broadcast_to(residuals[:, None], drawn.shape), drawn, axis=2)
    surrogates = np.empty((pairs, SURROGATES, points))
    surrogates[..., :2] = y[:, None, :2]
    fit = fit[:, None, :]
    for t in range(2, points):
        foretold = fit[..., 0] + fit[..., 1] * time[:, t - 2, None]
        foretold = foretold + fit[..., 2] * surrogates[..., t - 1] + fit[..., 3] * surrogates[..., t - 2]
        surrogates[..., t] = np.clip(foretold + shocks[..., t - 2], -1e6, 1e6)
    return against(x, y, surrogates)


def of_residuals(x: Array, y: Array) -> tuple[Array, Array]:
    """Products of unit ranks of prewhitened residuals per point, and the degrees of freedom left."""
    new = [prewhiten(series, half_cosine=True) for series in (x, y)]
    ranks = [centred_ranks(one.values) for one in new]
    units = [one / np.sqrt((one * one).sum(axis=1, keepdims=True)) for one in ranks]
    return units[0] * units[1], x.shape[1] - new[0].start - np.maximum(new[0].n_fitted, new[1].n_fitted)


def residuals_student(x: Array, y: Array, rng: np.random.Generator) -> Array:
    products, degrees_of_freedom = of_residuals(x, y)
    return student(products.sum(axis=1), np.maximum(degrees_of_freedom - 1, 1))


def sign_flips(x: Array, y: Array, rng: np.random.Generator) -> Array:
    products, degrees_of_freedom = of_residuals(x, y)
    return sign_flip_p_value(products.sum(axis=1) * np.sqrt(degrees_of_freedom / products.shape[1]), products)


METHODS: dict[str, Callable[[Array, Array, np.random.Generator], Array]] = {
    "naive": naive,
    "differences": differences,
    "circ. shift": circular_shift,
    "phases": random_phases,
    "AR sieve": autoregressive_sieve,
    "residual t": residuals_student,
    "sign flips": sign_flips,
}


def rejections(pairs: int, points: int) -> pd.DataFrame:
    """Percent of pairs that each method rejects at 5%, a row for each kind; shared: squared correlation of their noises."""
    rows = []
    for shared, kinds in ((0.0, PROCESSES), (0.8, RELATED)):
        for drift, noise in kinds:
            rng = np.random.default_rng(1)
            x, y = pair((drift, noise), rng, (pairs, points), shared)
            row = {"points": points, "shared": shared, "process": f"{drift} + {noise}" if drift else noise}
            rows.append(
                row | {name: 100.0 * float((method(x, y, rng) <= 0.05).mean()) for name, method in METHODS.items()}
            )
    return pd.DataFrame(rows)


def print_coverage(pairs: int, points: int) -> None:
    """How often 95% bootstrap intervals of a Spearman correlation of two AR(1) series hold the true value."""
    print(f"\ncoverage of 95% intervals, true normal correlation 0.5, {points} points, {pairs} pairs")
    lengths = [3, int(np.ceil(points ** (1 / 3))), int(np.ceil(np.sqrt(points))), points // 4]
    print(f"{'memory':10}{'independent':>13}" + "".join(f"{f'blocks of {length}':>15}" for length in lengths))
    truth = 6 / np.pi * np.arcsin(0.25)  # Spearman's rho of a normal pair that correlates 0.5
    for memory in (0.0, 0.5, 0.8):
        rng = np.random.default_rng(2)
        both = [autoregression(series, memory) for series in pair((None, "white"), rng, (pairs, points), 0.5)]
        held = []
        for length in [None, *lengths]:
            counts = (
                independent_counts(points, 400, rng)
                if length is None
                else moving_block_counts(points, 400, rng, length)
            )
            inside = []
            for x, y in zip(*both, strict=True):
                low, high = percentile_interval(bootstrap_spearman(x, y, counts))
                inside.append(low[0, 0] <= truth <= high[0, 0])
            held.append(100.0 * np.mean(inside))
        print(f"{memory:<10}{held[0]:13.1f}" + "".join(f"{rate:15.1f}" for rate in held[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--points", type=int, nargs="+", default=[51])
    arguments = parser.parse_args()
    table = pd.concat([rejections(arguments.pairs, points) for points in arguments.points])
    small_tables.write(table, Path(__file__).with_name("surrogates.csv"))
    print_coverage(min(arguments.pairs, 400), arguments.points[-1])


if __name__ == "__main__":
    main()
