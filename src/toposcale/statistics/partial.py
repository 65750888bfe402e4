"""Partial correlations from plain ones, for any number of controls and any broadcastable shapes."""

from __future__ import annotations

import numpy as np

from toposcale.statistics.correlation import Floats

COLLINEAR = 1e-9
"""1 - R^2 below this: a series is spanned by the controls, and nothing is left of it once they are given."""


def partial_correlation(xy: Floats, xz: Floats, yz: Floats, zz: Floats) -> Floats:
    """Correlation of x and y given controls z from xy (..., S, M), xz (..., S, C), yz (..., M, C), zz (..., C, C).

    (xy - xz zz^-1 zy) / sqrt((1 - xz zz^-1 zx)(1 - yz zz^-1 zy)). Of rank correlations this is the partial Spearman
    correlation. A control that the others span adds nothing. NaN where the controls span x or y, or one is constant.
    """
    unknown = np.asarray(np.isnan(zz).any(axis=(-2, -1)))[..., None, None]
    strength, vectors = np.linalg.eigh(np.where(unknown, np.eye(zz.shape[-1]), zz))
    kept = strength > COLLINEAR
    basis = vectors * np.where(kept, 1.0 / np.sqrt(np.where(kept, strength, 1.0)), 0.0)[..., None, :]
    first, second = (np.einsum("...sc,...cd->...sd", part, basis) for part in (xz, yz))
    left = 1.0 - (first * first).sum(axis=-1)[..., :, None]
    right = 1.0 - (second * second).sum(axis=-1)[..., None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (xy - np.einsum("...sc,...mc->...sm", first, second)) / np.sqrt(left * right)
    defined = (left > COLLINEAR) & (right > COLLINEAR) & ~unknown
    return np.clip(np.where(defined, value, np.nan), -1.0, 1.0)
