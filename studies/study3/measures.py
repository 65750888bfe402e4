"""What the third study measures of a model beside the registered features: the controls of its sixth primary test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from studies.norms import MEAN_LAYER_NORM, MEAN_ROW_NORM, mean_row_norm
from toposcale.features import spectra
from toposcale.features.feature import WEIGHT_NORM
from toposcale.features.matrix_features import Features
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import Floats

NUCLEAR, NEAREST = "nuclear_norm", "nearest_neighbour_mean"
PLAIN_RANK, CENTRED_RANK, SPECTRAL_NORM = "effective_rank_plain", "effective_rank_centred", "spectral_norm"
BY_LAYER = (NUCLEAR, NEAREST, WEIGHT_NORM.feature, "h0_total")
"""The features of which `early` holds every layer too, in columns named feature/layer."""


def of_model(matrices: Mapping[str, np.ndarray], features: Mapping[str, Features]) -> Features:
    """The norms that the registry does not have, and the mean over the matrices of three measures of the spectrum.

    `effective_rank_plain` and `effective_rank_centred`: exp(-sum p ln p), p = sigma / sum sigma, of a matrix as it is and
    without the mean of its rows; `spectral_norm`: its largest singular value, in weight units.
    """
    ordered = [matrices[name] for name in sorted(matrices)]
    values = [spectra.singular_values(matrix) for matrix in ordered]
    norms = [features[name][WEIGHT_NORM.feature] for name in sorted(matrices)]
    return {
        MEAN_LAYER_NORM: float(np.mean(norms)),
        MEAN_ROW_NORM: mean_row_norm(ordered),
        PLAIN_RANK: float(np.mean([rank_of(one) for one in values])),
        CENTRED_RANK: float(np.mean([spectra.effective_rank(matrix) for matrix in ordered])),
        SPECTRAL_NORM: float(np.mean([one[0] for one in values])),
    }


def rank_of(singular_values: Floats) -> float:
    """The effective rank of a spectrum (k,): between 1 and k."""
    shares = singular_values[singular_values > 0] / singular_values.sum()
    return float(np.exp(-(shares @ np.log(shares))))


def by_layer(features: Mapping[str, Features]) -> Features:
    """Some features of every layer, under feature/layer."""
    return {
        f"{name}/{layer}": features[layer][name]
        for name in BY_LAYER
        for layer in sorted(features)
        if layer != ALL_LAYERS
    }
