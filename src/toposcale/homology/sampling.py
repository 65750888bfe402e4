"""Random draws that depend on no order: subsampled rows and null models of a weight matrix."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import Floats, as_finite, undefined

SeedPart = int | str
_ROUNDING = 1e-12


def seeded_generator(seed: Sequence[SeedPart]) -> np.random.Generator:
    """Return a generator that is a function of all parts of `seed`, for example (42, "blocks.0")."""
    digest = hashlib.sha256(json.dumps(list(seed)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def seeded_number(seed: Sequence[SeedPart]) -> int:
    """Return an integer below 2**62 that is a function of all parts of `seed`."""
    return int(seeded_generator(seed).integers(1 << 62))


def subsample_rows(n_rows: int, max_points: int, *, seed: Sequence[SeedPart]) -> NDArray[np.intp]:
    """Return ascending indices of at most `max_points` random rows.

    The seed (seed, layer) draws the same rows at every checkpoint of every model.
    """
    for name, number in (("n_rows", n_rows), ("max_points", max_points)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more, got {number}")
    if n_rows <= max_points:
        return np.arange(n_rows)
    return np.sort(seeded_generator(seed).choice(n_rows, max_points, replace=False))


def spectrum_surrogate(weight: ArrayLike, *, seed: Sequence[SeedPart]) -> Floats:
    """Return a random matrix (n_out, n_in) with the singular values and the right singular vectors of `weight`.

    It is Q R: R from the QR decomposition of `weight`, and Q with orthonormal columns, uniformly distributed (Mezzadri
    2007). So the Gram matrix of the columns is that of `weight`, while the left singular vectors, which place the rows,
    are random.
    """
    matrix = as_finite(weight, "weight", np.float64)
    triangle = np.linalg.qr(matrix, mode="r")
    left_vectors, signed = np.linalg.qr(seeded_generator(seed).standard_normal((len(matrix), len(triangle))))
    return np.asarray((left_vectors * np.sign(np.diag(signed))) @ triangle)


def z_score(value: float, drawn: ArrayLike) -> float:
    """Return (value - mean) / standard deviation (divisor n - 1) of n draws; NaN with a RuntimeWarning without spread."""
    score = _z_score(value, drawn)
    return undefined("no z-score: no spread, or not finite") if math.isnan(score) else score


def _z_score(value: float, drawn: ArrayLike) -> float:
    draws = np.asarray(drawn, dtype=np.float64)
    if draws.size < 2:
        raise ValueError(f"drawn must hold 2 or more draws, got {draws.size}")
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
    """Return `{feature}_z_{null}` of a weight matrix (n_out, n_in): `z_score` in two random-matrix null models.

    `permuted` has the entries permuted within the matrix, `gaussian` independent normal entries of the same mean and
    variance. `features` returns numbers by name; `observed` are those of `weight`, if already computed.
    """
    matrix = as_finite(weight, "weight", np.float64)
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
        null_features = [features(draw()) for _ in range(draws)]
        for name, value in observed.items():
            scores[f"{name}_z_{null}"] = _z_score(value, [of_draw[name] for of_draw in null_features])
    if undefined := ", ".join(name for name, score in scores.items() if math.isnan(score)):
        warnings.warn(f"no null z-score for {undefined}: no deviation, or not finite", RuntimeWarning, stacklevel=2)
    return scores
