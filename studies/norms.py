"""The norms that the studies between runs hold fixed, two of which the registry of features does not have."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from toposcale.features.feature import WEIGHT_NORM

MEAN_LAYER_NORM, MEAN_ROW_NORM = "mean_layer_norm", "mean_row_norm"
"""The mean over layers, and over the rows of all layers."""
NORMS = (WEIGHT_NORM.feature, MEAN_LAYER_NORM, MEAN_ROW_NORM)
"""What the test between runs holds fixed besides the losses."""


def mean_row_norm(matrices: Iterable[np.ndarray]) -> float:
    """The mean norm over the rows of all matrices."""
    norms = [np.sqrt(np.square(matrix.astype(np.float64)).sum(axis=1)) for matrix in matrices]
    return float(np.concatenate(norms).mean())
