"""Partial correlations from plain ones (closed forms), for any broadcastable shapes."""

from __future__ import annotations

import numpy as np

from toposcale.statistics.correlation import Floats

COLLINEAR = 1e-9
"""1 - r^2 below this: the two series are one, and nothing is left of either once the other is given."""


def partial_correlation(xy: Floats, xz: Floats, yz: Floats) -> Floats:
    """Correlation of x and y given z: (xy - xz yz) / sqrt((1 - xz^2)(1 - yz^2)).

    Of rank correlations this is the partial Spearman correlation. NaN where x or y is a copy of z.
    """
    left = np.asarray((1.0 - xz * xz) * np.ones_like(yz))
    right = np.asarray((1.0 - yz * yz) * np.ones_like(xz))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (xy - xz * yz) / np.sqrt(left * right)
    return np.clip(np.where((left > COLLINEAR) & (right > COLLINEAR), value, np.nan), -1.0, 1.0)


def partial_correlation_given_two(
    xy: Floats, xz: Floats, yz: Floats, xw: Floats, yw: Floats, zw: Floats
) -> Floats:
    """Correlation of x and y given z and w, by applying the one-variable form twice.

    Where z and w are copies of each other, w adds nothing and the value is that given z alone.
    """
    given_z = partial_correlation(xy, xz, yz)
    given_both = partial_correlation(
        given_z, partial_correlation(xw, xz, zw), partial_correlation(yw, yz, zw)
    )
    return np.where(1.0 - zw * zw > COLLINEAR, given_both, given_z)
