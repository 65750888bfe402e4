"""Registry of features: those that are functions of one weight matrix, and what is known of every feature by its name.

A new one is one function under `@matrix_feature` in this module: tables, correlations, forecasts and figures follow. What
describes them is read where nothing is computed, so homology and spectra are imported by the functions.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from toposcale.features.descriptions import FEATURES, Descriptions
from toposcale.features.feature import FROBENIUS_NORM, NORM, OF_SOURCE, OF_ZEROS, SPECTRUM, UNREGISTERED, Feature

Features = dict[str, float]
MatrixFunction = Callable[[np.ndarray], Features]


class MatrixFeatures(NamedTuple):
    """A function of a matrix, and the features that it returns, all of one group."""

    function: MatrixFunction
    features: tuple[Feature, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the features."""
        return frozenset(feature.name for feature in self.features)


MATRIX_FEATURES: list[MatrixFeatures] = []
"""Functions that are computed for every matrix: all of this module."""


@cache
def registry() -> Descriptions:
    """Return every feature that this library computes, also those of functions at the end of this module."""
    return Descriptions([*(feature for one in MATRIX_FEATURES for feature in one.features), *FEATURES])


def lookup(name: str, source: str = "weights") -> Feature:
    """Return the feature of a name in the features table; see `Descriptions.lookup`."""
    return registry().lookup(name, source)


def group_of(name: str) -> str:
    """Return topology, spectrum, norm, curvature or other. LookupError: a name that is not registered."""
    group = lookup(name).group
    if group == UNREGISTERED:
        raise LookupError(f"{name}: no feature of this name is registered")
    return group


def matrix_feature(*features: Feature) -> Callable[[MatrixFunction], MatrixFunction]:
    """Describe the features that the function under this decorator computes from every weight matrix.

    The function maps a matrix (n_out, n_in) to a value for the name of each of `features`.
    """

    def add(function: MatrixFunction) -> MatrixFunction:
        MATRIX_FEATURES.append(MatrixFeatures(function, features))
        return function

    return add


@matrix_feature(Feature(FROBENIUS_NORM, "Frobenius norm", OF_SOURCE, NORM, over_layers="norm"))
def norms(weight: np.ndarray) -> Features:
    """Return the Frobenius norm, summed in float64 over blocks of rows so that no large copy is made."""
    blocks = np.array_split(weight, max(1, weight.size >> 20))
    squares = sum(np.square(block.astype(np.float64)).sum() for block in blocks)
    return {FROBENIUS_NORM: float(np.sqrt(squares))}


@matrix_feature(
    Feature("weight_variance", "variance of the relative weights", "dimensionless", NORM),
    Feature("spatial_concentration", "concentration of large weights", "Kendall's tau", NORM),
)
def baselines_of_neural_persistence(weight: np.ndarray) -> Features:
    """Return the two statistics that explain most of neural persistence (Girrbach et al. 2023)."""
    from toposcale import homology

    return {
        "weight_variance": homology.weight_variance(weight),
        "spatial_concentration": homology.spatial_concentration(weight),
    }


MAX_SINGULAR_VALUES = 1024
"""Shorter side up to which the nuclear norm is that of exact singular values. Beyond it, and where that is
within 1e-9, it is that of the roots of their squares, in a sixth of the time; those below 1e-6 of the largest count as
zero."""

MAX_ROWS = 4096
"""Rows up to which the mean distance to the nearest row is that of all rows."""
SAMPLED_ROWS = 1024
"""Evenly spaced rows whose mean it is beyond, with a relative standard error of about 1%."""


@matrix_feature(
    Feature("stable_rank", "stable rank", "dimensions", SPECTRUM, when_nan=OF_ZEROS),
    Feature("powerlaw_alpha", "ESD exponent α", "dimensionless", SPECTRUM),
    Feature("nuclear_norm", "nuclear norm", OF_SOURCE, SPECTRUM, over_layers="sum"),
)
def weight_spectra(weight: np.ndarray) -> Features:
    """Return stable rank, ESD exponent (unless the matrix is too small for one) and the sum of the singular values."""
    from toposcale.features import spectra

    eigenvalues, largest = spectra.weight_eigenvalues(weight)
    features = {"stable_rank": spectra.stable_rank(eigenvalues), "powerlaw_alpha": spectra.powerlaw_alpha(eigenvalues)}
    if min(weight.shape) < spectra.MIN_EIGENVALUES:
        del features["powerlaw_alpha"]
    if min(weight.shape) > MAX_SINGULAR_VALUES or spectra.have_exact_roots(eigenvalues, min(weight.shape)):
        return features | {"nuclear_norm": largest * float(np.sqrt(eigenvalues).sum())}
    return features | {"nuclear_norm": spectra.nuclear_norm(weight)}


@matrix_feature(Feature("nearest_neighbour_mean", "mean distance to the nearest row", OF_SOURCE, NORM))
def spread_of_the_rows(weight: np.ndarray) -> Features:
    """Return the mean distance to the nearest row: the baseline, without a filtration, of the mean persistence of H0."""
    from toposcale import homology

    most = SAMPLED_ROWS if len(weight) > MAX_ROWS else None
    return {"nearest_neighbour_mean": float(homology.nearest_distances(weight, most).mean())}
