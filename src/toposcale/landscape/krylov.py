"""Lanczos method with thick restarts: an orthonormal basis of the Krylov space of a symmetric matrix."""

from collections.abc import Callable

import numpy as np

_INVARIANT = 1e-13  # a new vector shorter than this share of the image is rounding


class KrylovBasis:
    """Orthonormal basis of the Krylov space of a symmetric matrix and a random vector; one product adds one vector.

    Parameters
    ----------
    rng : Generator
        Draws the start vector, and the next one where the space has ended.
    max_vectors : int
        Largest number m of vectors.
    size : int
        Length n of a vector.

    Attributes
    ----------
    vectors : ndarray of shape (m, n)
        The basis as rows, of which the first `count` are filled.
    projected : ndarray of shape (m, m)
        The symmetric matrix in the coordinates of the basis, tridiagonal until a restart.
    count : int
        Number of vectors so far.
    residual_norm : float
        Norm of the part of the last vector's image outside of the basis; 0 if the space has ended.

    References
    ----------
    Wu and Simon, SIAM Journal on Matrix Analysis and Applications 22(2), 2000.

    Examples
    --------
    >>> basis = KrylovBasis(np.random.default_rng(0), 2, 2)
    >>> for _ in range(2):
    ...     basis.grow(lambda vector: np.array([3.0, 1.0]) * vector)
    >>> basis.ritz_pairs()[0].round(12).tolist()
    [1.0, 3.0]
    """

    def __init__(self, rng: np.random.Generator, max_vectors: int, size: int) -> None:
        self.rng = rng
        self.vectors, self.projected = np.empty((max_vectors, size)), np.zeros((max_vectors, max_vectors))
        self.count = 0
        self._outside = rng.standard_normal(size)
        self.residual_norm = float(np.linalg.norm(self._outside))

    def grow(self, product: Callable[[np.ndarray], np.ndarray]) -> None:
        """Add the next vector; one at random if the space has ended."""
        vector = self._outside
        if not self.residual_norm:
            vector, _ = self._split(self.rng.standard_normal(len(vector)))
        self.vectors[self.count] = vector / np.linalg.norm(vector)
        image = product(self.vectors[self.count])
        self.count += 1
        self._outside, coordinates = self._split(image)
        self.projected[: self.count, self.count - 1] = self.projected[self.count - 1, : self.count] = coordinates
        self.residual_norm = float(np.linalg.norm(self._outside))
        if self.residual_norm <= _INVARIANT * np.linalg.norm(image):
            self.residual_norm = 0.0

    def _split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of a vector outside of the basis, and the coordinates of the part in it."""
        basis, coordinates = self.vectors[: self.count], np.zeros(self.count)
        for _ in range(2):  # one pass leaves rounding errors of the size of the projection; two are enough (Parlett)
            part = basis @ vector
            vector = vector - part @ basis
            coordinates += part
        return vector, coordinates

    def ritz_pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Ritz values (m,), ascending, their vectors' coordinates in the basis (m, m), and residuals (m,)."""
        values, coordinates = np.linalg.eigh(self.projected[: self.count, : self.count])
        return values, coordinates, self.residual_norm * np.abs(coordinates[-1])

    def restart(self, indices: np.ndarray) -> None:
        """Keep only the Ritz vectors of these indices."""
        values, coordinates, _ = self.ritz_pairs()
        self.vectors[: len(indices)] = coordinates[:, indices].T @ self.vectors[: self.count]
        self.count = len(indices)
        self.projected[: self.count, : self.count] = np.diag(values[indices])
