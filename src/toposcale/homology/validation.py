"""Checks of array arguments; each raises a `ValueError` that names the argument."""

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def as_matrix(values: ArrayLike, name: str) -> NDArray:
    """Return `values` as a non-empty real 2-D array, not checked for NaN; floats keep their dtype."""
    matrix = np.asarray(values)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a 2-D array, got {matrix.ndim}-D of shape {matrix.shape}")
    if matrix.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {matrix.shape}")
    if matrix.dtype.kind in "iub" or matrix.dtype == np.longdouble:
        return matrix.astype(np.float64)
    # ml_dtypes registers bfloat16 with kind "V"; its name is the only mark that numpy sees.
    if matrix.dtype.kind != "f" and matrix.dtype.name != "bfloat16":
        raise ValueError(f"{name} must hold real numbers, got dtype {matrix.dtype}")
    return matrix


def as_finite(values: ArrayLike, name: str, dtype: type[np.floating] | None = None) -> NDArray:
    """Return `values` as a non-empty finite 2-D array of floats (C order), of its own precision or of `dtype`."""
    matrix = np.ascontiguousarray(as_matrix(values, name), dtype)
    refuse_not_finite(matrix, name)
    return matrix


def refuse_not_finite(values: ArrayLike, name: str) -> None:
    """Raise a ValueError if a value is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")


def as_diagram(values: ArrayLike, name: str) -> Floats:
    """Return `values` as a (k, 2) float64 persistence diagram without NaN; k may be 0."""
    diagram = np.asarray(values, dtype=np.float64)
    if diagram.size == 0 and diagram.ndim <= 2:
        return np.empty((0, 2))
    if diagram.ndim != 2 or diagram.shape[1] != 2:
        raise ValueError(f"{name} must have shape (k, 2), got {diagram.shape}")
    if np.isnan(diagram).any():
        raise ValueError(f"{name} must not hold NaN")
    return diagram


def undefined(reason: str) -> float:
    """Return NaN for an undefined quantity, with a RuntimeWarning at the caller's caller."""
    warnings.warn(reason, RuntimeWarning, stacklevel=3)
    return math.nan
