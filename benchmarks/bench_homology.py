"""Homology against a plain reference in the same run; `python -m benchmarks.bench_homology` times the largest cloud."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.timing import Row, best_in_turn
from toposcale.features.spectra import powerlaw_alpha, stable_rank
from toposcale.homology import diagram_distance, h0_lifetimes, neural_persistence, rips_diagrams


def compare(name: str, ours: Callable[[], object], reference: Callable[[], object], limit: float) -> Row:
    """Best of seven of each, in turn, after one call of each that does not count (imports, pages)."""
    ours(), reference()
    return Row(name, *best_in_turn(ours, reference, rounds=7), limit)


def rows() -> list[Row]:
    """The speed that is promised for homology and weight spectra, as rows of the benchmark table."""
    rng = np.random.default_rng(0)
    found = []
    for shape, limit in (((4096, 4096), 0.35), ((50304, 512), 2.0)):
        weight = rng.standard_normal(shape, dtype=np.float32)
        name = f"neural_persistence {shape[0]} x {shape[1]} float32 / numpy.sort"
        found.append(
            compare(
                name, lambda w=weight: neural_persistence(w), lambda w=weight: np.sort(w, axis=None), limit
            )
        )
        del weight
    return found + _small_rows(rng)


def _small_rows(rng: np.random.Generator) -> list[Row]:
    """What a checkpoint of the paper's models asks for, against the library call a user would write first."""
    from gudhi import RipsComplex
    from gudhi.hera import bottleneck_distance, wasserstein_distance

    def simplex_tree(points: np.ndarray) -> None:
        tree = RipsComplex(points=points).create_simplex_tree(max_dimension=1)
        tree.collapse_edges(1)
        tree.expansion(2)
        tree.compute_persistence(homology_coeff_field=2)

    small, cloud = rng.standard_normal((192, 48)), rng.standard_normal((200, 48))
    first, second = rips_diagrams(cloud)[0], rips_diagrams(cloud + 0.05 * rng.standard_normal(cloud.shape))[0]

    def singular_values() -> None:
        np.linalg.svd(small, compute_uv=False)
        np.linalg.svd(small, compute_uv=False)

    def spectra() -> None:
        stable_rank(small)
        powerlaw_alpha(small)

    def ours(kind: str) -> Callable[[], object]:
        return lambda: diagram_distance(first, second, kind=kind)

    def hera() -> None:
        wasserstein_distance(first, second, order=2, internal_p=np.inf, delta=1e-6)

    bars = f"{len(first)} and {len(second)} bars"
    return [
        compare(
            "neural_persistence 192 x 48 / two SVDs", lambda: neural_persistence(small), singular_values, 1.0
        ),
        compare("stable_rank + powerlaw_alpha 192 x 48 / two SVDs", spectra, singular_values, 2.0),
        compare(
            "rips_diagrams 200 x 48 / gudhi SimplexTree, collapsed",
            lambda: rips_diagrams(cloud),
            lambda: simplex_tree(cloud),
            0.3,
        ),
        compare(f"wasserstein_2 of {bars} / gudhi.hera to 1e-6", ours("wasserstein_2"), hera, 1.0),
        compare(
            f"bottleneck of {bars} / gudhi.hera to 1e-9",
            ours("bottleneck"),
            lambda: bottleneck_distance(first, second, delta=1e-9),
            1.0,
        ),
    ]


def large_cloud() -> None:
    """Time and peak memory of `h0_lifetimes` on 50,000 points in 512 dimensions, for its docstring."""
    import resource

    points = np.random.default_rng(0).standard_normal((50_000, 512), dtype=np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [elapsed] = best_in_turn(lambda: h0_lifetimes(points), rounds=1)
    beyond = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"h0_lifetimes 50,000 x 512: {elapsed:.1f} s, {beyond:.0f} MB beyond the points")


if __name__ == "__main__":
    large_cloud()
