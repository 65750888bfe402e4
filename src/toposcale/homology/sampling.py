"""Random draws that depend on names, not on order: subsampled rows, and null models of a weight matrix."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import Floats, as_finite_float64, undefined

SeedPart = int | str
_ROUNDING = 1e-12


def seeded_generator(seed: Sequence[SeedPart]) -> np.random.Generator:
    """A generator that is a function of all parts of `seed`, for example (42, "xl-97k", "blocks.0")."""
    digest = hashlib.sha256(json.dumps(list(seed)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def seeded_number(seed: Sequence[SeedPart]) -> int:
    """One integer below 2**62 that is a function of all parts of `seed`, for what takes a number as its seed."""
    return int(seeded_generator(seed).integers(1 << 62))


def subsample_rows(n_rows: int, max_points: int, *, seed: Sequence[SeedPart]) -> NDArray[np.intp]:
    """Ascending indices of at most `max_points` of `n_rows` rows, drawn without replacement.

    Seed with (seed, model, layer) and not the step, so that every checkpoint keeps the same rows.
    ValueError: `n_rows` or `max_points` less than 1.
    """
    for name, number in (("n_rows", n_rows), ("max_points", max_points)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more, got {number}")
    if n_rows <= max_points:
        return np.arange(n_rows)
    return np.sort(seeded_generator(seed).choice(n_rows, max_points, replace=False))


def spectrum_surrogate(weight: ArrayLike, *, seed: Sequence[SeedPart]) -> Floats:
    """Return a random matrix with the singular values and the right singular vectors of another one.

    It is ``Q @ R``: `R` from the QR decomposition of `weight`, and `Q` with orthonormal columns, uniformly distributed
    (Haar measure). So ``R.T @ R``, the Gram matrix of the columns, is that of `weight`, while the left singular vectors,
    which place the rows, are random.

    Parameters
    ----------
    weight : array_like of shape (n_out, n_in)
        The matrix, finite, in weight units.
    seed : sequence of int or str
        All that the draw depends on, for example (42, "xl-97k", "blocks.0", 3).

    Returns
    -------
    ndarray of shape (n_out, n_in)
        The surrogate, float64, in weight units.

    Raises
    ------
    ValueError
        If `weight` is not 2-D, is empty, or has a NaN or an infinity.

    References
    ----------
    Mezzadri, "How to generate random matrices from the classical compact groups", Notices of the AMS 54, 2007.

    Examples
    --------
    >>> weight = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    >>> surrogate = spectrum_surrogate(weight, seed=(42, "layer", 0))
    >>> np.allclose(surrogate.T @ surrogate, np.diag([9.0, 16.0]))
    True
    """
    matrix = as_finite_float64(weight, "weight")
    triangle = np.linalg.qr(matrix, mode="r")
    left, signed = np.linalg.qr(seeded_generator(seed).standard_normal((len(matrix), len(triangle))))
    return np.asarray((left * np.sign(np.diag(signed))) @ triangle)


def z_score(value: float, drawn: ArrayLike) -> float:
    """Return (value - mean) / standard deviation (divisor n - 1) of n draws; NaN with a RuntimeWarning without spread."""
    score = _z_score(value, drawn)
    return undefined("no z-score: no spread, or not finite") if math.isnan(score) else score


def _z_score(value: float, drawn: ArrayLike) -> float:
    draws = np.asarray(drawn, dtype=np.float64)
    if not (np.isfinite(draws).all() and math.isfinite(value)):
        return math.nan
    mean, spread = float(draws.mean()), float(draws.std(ddof=1))
    # Rounding is not a spread: the rows of all surrogates of an orthogonal matrix are equally far apart.
    return (value - mean) / spread if spread > _ROUNDING * abs(mean) else math.nan


def null_z_scores(
    weight: ArrayLike,
    features: Callable[[NDArray[np.float64]], Mapping[str, float]],
    *,
    draws: int,
    seed: Sequence[SeedPart],
    observed: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """How far each feature of `weight` (n_out, n_in) lies from two nulls, in standard deviations of the null.

    (observed - null mean) / null standard deviation, named `{feature}_z_permuted`: the entries permuted within the
    matrix; `{feature}_z_gaussian`: independent normal entries of the same mean and variance. `features` maps a float64
    matrix to named values, and `observed` saves computing them again. The standard deviation has divisor draws - 1.
    Where it is 0 or a value is not finite the score is NaN, with a RuntimeWarning.
    ValueError: `weight` not 2-D, empty, NaN or infinite; `draws` less than 2.
    """
    matrix = as_finite_float64(weight, "weight")
    if draws < 2:
        raise ValueError(f"draws must be 2 or more, got {draws}")
    observed = features(matrix) if observed is None else observed
    rng = seeded_generator(seed)
    mean, deviation = float(matrix.mean()), float(matrix.std())
    nulls: dict[str, Callable[[], NDArray[np.float64]]] = {
        "permuted": lambda: rng.permutation(matrix.reshape(-1)).reshape(matrix.shape),
        "gaussian": lambda: rng.normal(mean, deviation, matrix.shape),
    }
    scores = {}
    for null, draw in nulls.items():
        drawn = [features(draw()) for _ in range(draws)]
        for name, value in observed.items():
            scores[f"{name}_z_{null}"] = _z_score(value, [of_draw[name] for of_draw in drawn])
    if undefined := ", ".join(name for name, score in scores.items() if math.isnan(score)):
        warnings.warn(f"no null score for {undefined}: no spread, or not finite", RuntimeWarning, stacklevel=2)
    return scores
