"""Adapter to gudhi's float64 build of Ripser, the one module that uses its private name.

The ripser package computes in float32, and gudhi's public wrapper (`gudhi.sklearn`) imports scikit-learn, two seconds
in every job. pyproject.toml pins gudhi 3.13, and a test fails if another version is installed.
"""

import numpy as np
from gudhi._ripser_ext import _full
from numpy.typing import NDArray


def ripser_float64(distances: NDArray[np.float64], *, maxdim: int, threshold: float) -> list[NDArray[np.float64]]:
    """Return the diagrams (k, 2) of H0 to H`maxdim` of distances (n, n) up to `threshold`, over two elements."""
    diagrams = _full(distances, max_dimension=maxdim, max_edge_length=threshold, homology_coeff_field=2)
    # Ripser stops at the dimension of the complex.
    return diagrams + [np.empty((0, 2))] * (maxdim + 1 - len(diagrams))
