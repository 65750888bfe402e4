"""The one place that calls Ripser: gudhi's build of it in float64, by a private name.

The ripser package computes in float32, and gudhi's public wrapper (`gudhi.sklearn`) imports scikit-learn, two seconds in
every job. So the compiled function is called itself. Its name is private to gudhi and may go: tested with gudhi 3.13,
which pyproject.toml pins; a test says so when another version is installed.
"""

import numpy as np
from gudhi._ripser_ext import _full
from numpy.typing import NDArray


def ripser_float64(distances: NDArray[np.float64], *, maxdim: int, threshold: float) -> list[NDArray[np.float64]]:
    """Diagrams (k, 2) of H0 .. H`maxdim` of a distance matrix (n, n) up to `threshold`, over the two-element field."""
    diagrams = _full(distances, max_dimension=maxdim, max_edge_length=threshold, homology_coeff_field=2)
    # Ripser stops at the dimension of the complex.
    return diagrams + [np.empty((0, 2))] * (maxdim + 1 - len(diagrams))
