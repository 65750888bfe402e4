"""Loss landscape around one point: surfaces on several planes, merge trees, curvature and a ball."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from torch import Tensor

from toposcale.landscape import subspaces
from toposcale.landscape.curvature import Hessian, Loss, Parameters, SpectralDensity, Which
from toposcale.landscape.graphs import point_edges
from toposcale.landscape.merge_tree import (
    MergeTree,
    landscape_features,
    merge_tree,
    persistence_threshold,
    tree_features,
)
from toposcale.landscape.plane_names import MIXED, NEGATIVE, PLANES, RANDOM, SUBSPACES, TOP
from toposcale.landscape.surface import LossSurface, loss_surface, losses_at, norm, random_directions, rounding_of

WHOLE = "all"
"""Layer of all parameters together."""
VECTORS = "vectors"
"""Layer of all that are not matrices: biases and norms."""
BALL_GRAPH = "aknn8"
"""Graph of the points of the ball."""
BALL_DIMENSIONS = 6
"""Number of random directions that span the ball."""
_MAX_PAIRS_AT_BOTH_ENDS = 3
"""Most eigenpairs that are looked for at both ends of the spectrum at once."""
_MIN_EIGENVALUE_SHARE = 1e-6
"""Share of the largest eigenvalue below which rounding decides the direction of an eigenvector."""


@dataclass(frozen=True)
class LandscapeSettings:
    """Settings of `measure_landscape`.

    Attributes
    ----------
    planes : mapping of str to sequence of float
        Extents of each kind of plane: of `random` in norms of the weights, of `top`, `negative` and `mixed`
        eigenvectors in 1 / sqrt(|eigenvalue|).
    dimensions, resolution : int
        Number of axes of a surface, and of points per axis.
    graphs : tuple of str
        Graphs of the merge trees, of `GRAPHS`.
    threshold : float
        Smallest persistence that counts, as a share of the surface's range.
    eigenvalues : int
        Number of leading eigenvalues by magnitude; 0 for none.
    trace_probes, trace_accuracy : int, float
        Largest number of Hutchinson probes, 0 for no trace; fewer once the standard error is below this share of the
        trace.
    density_runs, density_steps : int
        Random vectors of the spectral density, 0 for none, and Lanczos steps for each.
    ball_points : int
        Random points of a ball; 0 for no ball.
    subspaces : sequence of int
        Dimensions of the subspaces of the leading eigenvectors in which minima are searched; none by default.
    subspace_extent, subspace_starts : float, int
        Half of the width of the searched cube, in 1 / sqrt(|eigenvalue|), and number of descents (`subspace_trees`).
    seed, threads : int
        Seed of all random draws, and number of threads that evaluate the loss.
    """

    planes: Mapping[str, Sequence[float]] = field(default_factory=lambda: {RANDOM: (1.0,), NEGATIVE: (0.3, 1.0)})
    dimensions: int = 2
    resolution: int = 21
    graphs: tuple[str, ...] = ("grid8",)
    threshold: float = 0.01
    eigenvalues: int = 2
    trace_probes: int = 100
    trace_accuracy: float = 0.1
    density_runs: int = 0
    density_steps: int = 30
    ball_points: int = 0
    subspaces: Sequence[int] = ()
    subspace_extent: float = 1.0
    subspace_starts: int = 50
    seed: int = 42
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse unknown kinds of planes."""
        for kind in self.planes:
            if kind not in PLANES:
                raise ValueError(f"planes: {kind!r} is not a plane; use some of {', '.join(PLANES)}")


class Ball(NamedTuple):
    """Losses (n,) at random points (n, d) of a ball, in weight units, and a quadratic bowl of the same range there."""

    points: np.ndarray
    values: np.ndarray
    bowl: np.ndarray
    tree: MergeTree
    bowl_tree: MergeTree


class Landscape(NamedTuple):
    """Result of `measure_landscape`.

    Attributes
    ----------
    features : dict of str to dict of str to float
        Features by layer and name; layer "all" is the whole.
    surfaces : dict of str to LossSurface
        Surfaces by plane, such as `negative_0.3`; a plane that does not exist is missing, and its features are NaN.
    trees : dict of str to dict of str to MergeTree
        Merge trees by plane and graph.
    ball : Ball or None
        Points, losses, bowl and merge trees of the ball, if it was asked for.
    density : SpectralDensity or None
        Spectral density of the Hessian, if it was asked for.
    """

    features: dict[str, dict[str, float]]
    surfaces: dict[str, LossSurface]
    trees: dict[str, dict[str, MergeTree]]
    ball: Ball | None
    density: SpectralDensity | None


def measure_landscape(
    loss: Loss, parameters: Mapping[str, Tensor], settings: LandscapeSettings | None = None
) -> Landscape:
    """Measure shape and curvature of a loss around a point of parameter space.

    The features of "all" are those of docs/method.md, with the names of plane, extent and graph. "all" and every layer have
    `hessian_trace` and `hessian_trace_standard_error`.

    Parameters
    ----------
    loss : callable
        Function of a dict of tensors that returns a scalar tensor; `module_loss` makes one of a module.
    parameters : mapping of str to Tensor
        Centre of the landscape.
    settings : LandscapeSettings, optional
        What to measure.

    Returns
    -------
    Landscape
        Features in the unit of the loss, and of the loss per squared weight for curvature. NaN, with a warning, for a
        plane of eigenvectors of a flat loss and for the curvature of a loss that is not finite.

    Raises
    ------
    ValueError
        As in `loss_surface` and `random_directions`.
    UserError
        If curvature is asked for and an operation of the loss has no second derivative.

    References
    ----------
    Xie et al. 2024, arXiv:2411.09807; Li et al., NeurIPS 2018, arXiv:1712.09913.

    Examples
    --------
    >>> import torch
    >>> settings = LandscapeSettings(planes={"random": (1.0,)}, resolution=3)
    >>> landscape = measure_landscape(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(1, 2)}, settings)
    >>> landscape.features["all"]["hessian_max"], landscape.features["all"]["n_minima_random_1_grid8"]
    (2.0, 1.0)
    """
    settings = settings or LandscapeSettings()
    features, pairs, density = _curvature(loss, parameters, settings)
    surfaces: dict[str, LossSurface] = {}
    trees: dict[str, dict[str, MergeTree]] = {}
    for kind, extents in settings.planes.items():
        directions = _plane(kind, parameters, pairs, settings)
        for extent in extents:
            plane = f"{kind}_{extent:g}"  # its name in tables and features: `negative_0.3`
            if directions is None:  # only the names of its features
                axes = [np.arange(settings.resolution, dtype=np.float64)] * settings.dimensions
                flat = np.zeros((settings.resolution,) * settings.dimensions)
                shape = dict.fromkeys(landscape_features(flat, axes, settings.graphs, plane=plane)[0], math.nan)
            else:
                options = {"steps": settings.resolution, "threads": settings.threads}
                surface = surfaces[plane] = loss_surface(loss, parameters, directions, extent=extent, **options)
                shape, trees[plane] = landscape_features(
                    surface.values,
                    surface.coordinates,
                    settings.graphs,
                    threshold=settings.threshold,
                    rounding=surface.rounding,
                    plane=plane,
                )
            features[WHOLE] |= shape
    ball = _ball(loss, parameters, settings) if settings.ball_points else None
    if ball is not None:
        for name, tree in (("ball", ball.tree), ("bowl", ball.bowl_tree)):
            shape = tree_features(tree) | {"n_components": float(tree.n_components)}
            features[WHOLE] |= {f"{feature}_{name}_{BALL_GRAPH}": value for feature, value in shape.items()}
    for dimension in settings.subspaces:
        features[WHOLE] |= _subspace(loss, parameters, pairs, replace(settings, dimensions=dimension))
    return Landscape(features, surfaces, trees, ball, density)


Pairs = list[tuple[float, Parameters]]


def _curvature(
    loss: Loss, parameters: Mapping[str, Tensor], settings: LandscapeSettings
) -> tuple[dict[str, dict[str, float]], dict[str, Pairs], SpectralDensity | None]:
    """Return curvature features by layer, eigenpairs by kind (`largest` in magnitude, `highest`, `lowest`), and density."""
    features: dict[str, dict[str, float]] = {WHOLE: {}}
    spanned = set(settings.planes) - {RANDOM}
    has_eigenpairs = bool(settings.eigenvalues or spanned or settings.subspaces)
    if not (settings.trace_probes or settings.density_runs or has_eigenpairs):
        return features, {}, None
    hessian, density = Hessian(loss, parameters), None
    if settings.trace_probes:
        traces = hessian.traces(
            probes=settings.trace_probes,
            seed=settings.seed,
            accuracy=settings.trace_accuracy,
            # A matrix or a convolution kernel is a layer of its own, all the rest is `vectors`.
            layer_of=lambda name: name if parameters[name].dim() >= 2 else VECTORS,
        )
        features |= {
            layer: {"hessian_trace": estimate, "hessian_trace_standard_error": error}
            for layer, (estimate, error) in traces.items()
        }
    if settings.density_runs:  # before the eigenpairs, whose search goes on from its first run
        density = hessian.density(runs=settings.density_runs, steps=settings.density_steps, seed=settings.seed)
    if not has_eigenpairs:
        return features, {}, density
    spanning = settings.dimensions if spanned else 1
    count = min(max(settings.eigenvalues, spanning, *settings.subspaces), hessian.size)

    def pairs_of(which: Which, k: int) -> Pairs:
        values, vectors = hessian.eigenpairs(min(k, hessian.size), seed=settings.seed, which=which)
        return list(zip(values.tolist(), vectors, strict=True))

    # One search finds few pairs of every kind; many are not looked for at the lower end, which is crowded.
    n_ends = count if count <= _MAX_PAIRS_AT_BOTH_ENDS else spanning
    ends = pairs_of("ends", n_ends)
    by_magnitude = sorted(ends, key=lambda pair: (-abs(pair[0]), -pair[0]))
    pairs = {
        "largest": by_magnitude[:count] if n_ends == count else pairs_of("largest", count),
        "highest": ends[::-1][:n_ends],
        "lowest": ends[:n_ends],
    }
    for rank, (value, _) in enumerate(pairs["largest"][: settings.eigenvalues], start=1):
        features[WHOLE][f"hessian_top_{rank}"] = value
    features[WHOLE]["hessian_max"] = pairs["highest"][0][0]
    features[WHOLE]["hessian_min"] = pairs["lowest"][0][0]
    return features, pairs, density


def _plane(
    kind: str, parameters: Mapping[str, Tensor], pairs: Mapping[str, Pairs], settings: LandscapeSettings
) -> list[Parameters] | None:
    """Return the directions of a plane, or None, with a warning; eigenvectors are scaled by 1 / sqrt(|eigenvalue|)."""
    count = settings.dimensions
    if kind == RANDOM:
        return random_directions(parameters, count, seed=settings.seed)
    if kind == MIXED:
        first, second = count - count // 2, count // 2
        ends_in_turn = zip_longest(pairs["highest"][:first], pairs["lowest"][:second])
        eigenpairs = [pair for ends in ends_in_turn for pair in ends if pair is not None]
    else:
        eigenpairs = pairs["largest" if kind == TOP else "lowest"][:count]
    smallest = _MIN_EIGENVALUE_SHARE * abs(pairs["largest"][0][0])
    if len(eigenpairs) < count or not all(abs(value) > smallest for value, _ in eigenpairs):
        warnings.warn(f"there is no plane {kind}: the Hessian's eigenvalues are 0 or were not found", stacklevel=3)
        return None
    return [{name: tensor / math.sqrt(abs(value)) for name, tensor in vector.items()} for value, vector in eigenpairs]


def _subspace(
    loss: Loss, parameters: Mapping[str, Tensor], pairs: Mapping[str, Pairs], settings: LandscapeSettings
) -> dict[str, float]:
    """Return minima and saddles in the subspace of `dimensions` leading eigenvectors, and those of its quadratic model."""
    dimension, directions = settings.dimensions, _plane(TOP, parameters, pairs, settings)
    trees: dict[str, MergeTree] = {}
    if directions is not None:
        trees = subspaces.subspace_trees(
            loss,
            parameters,
            directions,
            [math.copysign(1.0, value) for value, _ in pairs["largest"][:dimension]],
            extent=settings.subspace_extent,
            starts=settings.subspace_starts,
            threshold=settings.threshold,
            seed=settings.seed,
        )
    return {
        f"{name}_{kind}_{dimension}_{subspaces.GRAPH}": tree_features(trees[kind])[name] if trees else math.nan
        for kind in SUBSPACES
        for name in ("n_minima", "n_saddles", "total_persistence")
    }


def _ball(loss: Loss, parameters: Mapping[str, Tensor], settings: LandscapeSettings) -> Ball:
    """Return losses at uniform random points of a ball whose radius is the norm of the weights."""
    dimensions, rng = BALL_DIMENSIONS, np.random.default_rng(settings.seed)
    directions = random_directions(parameters, dimensions, seed=settings.seed)
    points = rng.standard_normal((settings.ball_points, dimensions))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points *= rng.random((settings.ball_points, 1)) ** (1 / dimensions)
    values = losses_at(loss, parameters, directions, points, threads=settings.threads)
    lengths = np.array([norm(direction) for direction in directions])
    # Much of the merge tree comes from where the points happen to lie: that of a bowl at the same points says how much.
    bowl = (points**2).sum(axis=1)
    finite = values[np.isfinite(values)]
    bowl *= (float(np.ptp(finite)) if len(finite) else math.nan) / np.ptp(bowl)
    edges = point_edges(points * lengths, BALL_GRAPH)
    minimum_persistence = persistence_threshold(values, settings.threshold, rounding_of(values, parameters))
    trees = [merge_tree(heights, edges, threshold=minimum_persistence) for heights in (values, bowl)]
    return Ball(points * lengths, values, bowl, *trees)
