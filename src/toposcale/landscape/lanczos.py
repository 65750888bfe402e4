"""Lanczos with full reorthogonalisation, for a symmetric operator known by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]

# A new basis vector shorter than this share of the operator's scale is rounding: the space is invariant.
_BREAKDOWN = 1e-13
# Residuals above this share of the value are never accepted, however wide the gap beside it seems.
_LOOSEST = 3e-4


class LanczosBasis:
    """An orthonormal basis grown by Lanczos steps, with the operator's images of it and its projection on it.

    Every step takes the product of the newest vector and makes the next one from it, orthogonal to all
    before. Where the space is invariant, or when asked to, the chain goes on from a fresh random vector
    orthogonal to all before, so that it reaches what the first vector does not see. `chain` is the step at
    which the present chain began.
    """

    def __init__(self, product: Product, size: int, rng: np.random.Generator) -> None:
        self.product, self.size, self.rng = product, size, rng
        self.steps = self.chain = 0
        self.invariant = False
        self._vectors = np.empty((16, size))
        self._images = np.empty((16, size))
        self._projection = np.empty((0, 0))
        self._solved: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._vectors[0] = self._fresh()

    @property
    def exhausted(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.steps == self.size

    def step(self) -> None:
        """Take one product and make the next basis vector."""
        newest = self.steps
        image = self.product(self._vectors[newest])
        self._images[newest] = image
        self.steps += 1
        column = self._vectors[: self.steps] @ image
        grown = np.empty((self.steps, self.steps))
        grown[:newest, :newest] = self._projection
        grown[newest], grown[:, newest] = column, column
        self._projection = grown
        self._solved.clear()
        if self.exhausted:
            return
        rest = self._orthogonal(image)
        length = float(np.linalg.norm(rest))
        if self.steps == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.empty_like(self._vectors)])
            self._images = np.concatenate([self._images, np.empty_like(self._images)])
        scale = max(float(np.linalg.norm(image)), float(np.abs(grown).max()))
        self.invariant = length <= _BREAKDOWN * scale
        self._vectors[self.steps] = self._fresh() if self.invariant else rest / length

    def restart(self) -> None:
        """Begin a new chain from a random vector orthogonal to the basis."""
        self.chain = self.steps
        self._vectors[self.steps] = self._fresh()

    def ritz(self, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Ritz values of the basis from step `first` on, by falling |value|; coordinates as columns."""
        if first not in self._solved:
            values, coordinates = np.linalg.eigh(self._projection[first:, first:])
            order = falling(values)
            self._solved[first] = values[order], coordinates[:, order]
        return self._solved[first]

    def residuals(self, count: int) -> np.ndarray:
        """Norms |A x - value x| of the leading `count` Ritz pairs."""
        values, coordinates = self.ritz()
        chosen = coordinates[:, :count].T
        images = chosen @ self._images[: self.steps]
        vectors = chosen @ self._vectors[: self.steps]
        return np.linalg.norm(images - values[:count, None] * vectors, axis=1)

    def leading_of_chain(self) -> tuple[float, float]:
        """Leading |Ritz value| of the operator compressed to what the chain adds; its residual there."""
        values, coordinates = self.ritz(self.chain)
        image = coordinates[:, 0] @ self._images[self.chain : self.steps]
        own = coordinates[:, 0] @ self._vectors[self.chain : self.steps]
        outside = self._orthogonal(image - values[0] * own)
        return abs(values[0]), float(np.linalg.norm(outside))

    def leading(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The Ritz pairs of largest |value|: values (count,) and unit vectors (count, n)."""
        values, coordinates = self.ritz()
        return values[:count], coordinates[:, :count].T @ self._vectors[: self.steps]

    def _orthogonal(self, vector: np.ndarray) -> np.ndarray:
        basis = self._vectors[: self.steps]
        for _ in range(2):  # once leaves the rounding of what was taken away; twice is enough (Parlett)
            vector = vector - basis.T @ (basis @ vector)
        return vector

    def _fresh(self) -> np.ndarray:
        vector = self._orthogonal(self.rng.standard_normal(self.size))
        return vector / np.linalg.norm(vector)


def top_eigenpairs(
    product: Product,
    size: int,
    k: int,
    rng: np.random.Generator,
    *,
    rounding: float,
    max_products: int,
    tolerance: float = 1e-6,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The k eigenpairs of largest |value|: values (k,), vectors (k, size), and whether all converged.

    A pair has converged when its error bound r^2 / gap (Kato and Temple; r its residual norm, gap the
    distance to the nearest Ritz value further away than r) is at most max(tolerance |value|, rounding
    |largest value|), and r itself at most 3e-4 |largest value|. `rounding` is the relative rounding error of
    a product.

    Lanczos from one vector sees one vector of every eigenspace only. What it misses is orthogonal to the
    whole basis, so a second chain is started there, and grown until its leading value is clearly below the
    k-th found or has joined the k: repeated eigenvalues come with their multiplicity. A twin of the k-th
    value that hardly stands out of a dense spectrum can still escape; it did in 2 of 1,500 trials with random
    spectra. k <= max_products.
    """
    basis = LanczosBasis(product, size, rng)

    def allowed(values: np.ndarray) -> np.ndarray:
        return np.maximum(tolerance * np.abs(values[:k]), rounding * abs(values[0]))

    def converged() -> bool:
        if basis.steps < k:
            return False
        (values, _), residual = basis.ritz(), basis.residuals(k)
        distance = np.abs(values[:k, None] - values)
        # Values closer than the residual are one cluster, whose bound is that of the whole: its gap is to the
        # others.
        distance[distance <= residual[:, None]] = np.inf
        bound = residual**2 / distance.min(axis=1)
        return bool((bound <= allowed(values)).all() and (residual <= _LOOSEST * abs(values[0])).all())

    def nothing_missed(smallest: float) -> bool:
        if basis.steps == basis.chain:
            return False
        value, residual = basis.leading_of_chain()
        below = value + residual <= smallest and residual <= 0.1 * value
        return below or (residual <= _LOOSEST * value and converged())

    def grow(until: Callable[[], bool]) -> bool:
        while not (basis.exhausted or until()):
            if basis.steps == max_products:
                return False
            basis.step()
        return True

    settled = grow(converged)
    while settled and not basis.exhausted:
        before = basis.ritz()[0][:k]
        smallest = abs(before[-1]) - basis.residuals(k)[-1]
        basis.restart()
        settled = grow(lambda: nothing_missed(smallest))  # noqa: B023
        now = basis.ritz()[0][:k]
        if (np.abs(np.abs(now) - np.abs(before)) <= 2 * allowed(now)).all():
            break
    return *basis.leading(k), settled


def falling(values: np.ndarray) -> np.ndarray:
    """Order by falling |value|; of two opposite values the positive one first."""
    return np.lexsort((-values, -np.abs(values)))
