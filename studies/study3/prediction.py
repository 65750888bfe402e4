"""How much better the outcome of a run that was left out is told with a feature than without it, in its own
configuration."""

from __future__ import annotations

import numpy as np

from toposcale.analysis.over_seeds import EarlyValues
from toposcale.statistics.coefficients import Floats, is_constant

RESAMPLES = 10_000


def prediction_row(read: EarlyValues, feature: str, seed: int, *, resamples: int = RESAMPLES) -> dict[str, float]:
    """The change of the root mean squared error, in percent, with its 95% interval; negative is better.

    Both fits have the controls, one the feature too; each run is told by least squares of the other runs of its
    configuration. Errors are in units of the configuration's error without the feature, so every configuration counts
    alike. The interval is a bootstrap over the runs of each configuration.
    """
    values = read.features.xs(feature, level="feature").to_numpy(np.float64)
    labels = np.array(read.configurations)
    squares = []
    for configuration in dict.fromkeys(read.configurations):
        own = np.flatnonzero(labels == configuration)
        without = left_out_errors(read.controls[:, own], read.outcome[own])
        beside = left_out_errors(np.vstack([read.controls[:, own], values[:, own]]), read.outcome[own])
        squares.append(np.stack([without, beside]) ** 2 / np.mean(without**2))
    random = np.random.default_rng(seed)
    draws = np.array([change(_resampled(squares, random)) for _ in range(resamples)])
    low, high = np.quantile(draws, (0.025, 0.975))
    return {"change_percent": change(squares), "low": float(low), "high": float(high)}


def left_out_errors(controls: Floats, outcome: Floats) -> Floats:
    """(n,) errors of least squares on a mean and controls (C, n), each run told from the n - 1 others.

    By the leverages of the fit of all n: leaving a run out divides its residual by 1 less its leverage.
    """
    varying = controls[~is_constant(controls)]
    centred = varying - varying.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).sum(axis=1, keepdims=True))
    basis = _orthonormal(np.vstack([np.full(len(outcome), len(outcome) ** -0.5), scaled]))
    residuals = outcome - basis.T @ (basis @ outcome)
    return np.asarray(residuals / (1 - (basis**2).sum(axis=0)))


def change(squares: list[Floats]) -> float:
    """Percent by which the root mean square of the second row of errors, squared (2, n) by configuration, differs from
    the first."""
    without, beside = np.concatenate(squares, axis=1).mean(axis=1)
    return float(100 * (np.sqrt(beside / without) - 1))


def _resampled(squares: list[Floats], random: np.random.Generator) -> list[Floats]:
    return [one[:, random.integers(one.shape[1], size=one.shape[1])] for one in squares]


def _orthonormal(rows: Floats) -> Floats:
    """An orthonormal basis (r, n) of the span of rows (k, n)."""
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(basis[sizes > 1e-9 * sizes[0]])
