"""Neural persistence against sorting the weights; `OMP_NUM_THREADS=1 python -m benchmarks.bench_homology` times H0.

The second command measures the time and the memory of `h0_lifetimes` that its docstring names.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Line, compare, seconds_of
from toposcale.homology import h0_lifetimes, neural_persistence


def rows() -> Iterator[Line]:
    """A square matrix, a token embedding, and the largest matrix of the models that are trained here."""
    rng = np.random.default_rng(0)
    for shape, limit in (((4096, 4096), 2.0), ((50304, 512), 2.0)):
        weight = rng.standard_normal(shape, dtype=np.float32)
        yield compare(
            f"neural_persistence {shape[0]} x {shape[1]} float32 / numpy.sort",
            lambda weight=weight: neural_persistence(weight),
            lambda weight=weight: np.sort(weight, axis=None),
            limit,
        )
        del weight
    small = rng.standard_normal((192, 48))

    def two_svds() -> None:
        np.linalg.svd(small, compute_uv=False)
        np.linalg.svd(small, compute_uv=False)

    yield compare("neural_persistence 192 x 48 / two SVDs", lambda: neural_persistence(small), two_svds, 1.0, rounds=50)


def large_cloud() -> None:
    """Time and peak memory of `h0_lifetimes` on the token embedding of Pythia 1B, for its docstring and performance.md."""
    points = np.random.default_rng(0).standard_normal((50_304, 2048), dtype=np.float32)
    elapsed, _ = seconds_of(h0_lifetimes, points)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"h0_lifetimes 50,304 x 2,048: {elapsed:.0f} s, {peak:.0f} MB with the points")


if __name__ == "__main__":
    large_cloud()
