"""One checkpoint's loss landscape: its surface, shape, curvature and gradients, with the spread of every number."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toposcale import homology
from toposcale.features import gradients as gradient_clouds
from toposcale.io.schemas import ALL_LAYERS
from toposcale.landscape.curvature import (
    Loss,
    Parameters,
    hessian_features,
    loss_gradients,
    spectral_density,
)
from toposcale.landscape.directions import random_directions
from toposcale.landscape.graphs import GRID_GRAPHS, grid_edges
from toposcale.landscape.measures import cubical_diagram, landscape_features
from toposcale.landscape.merge_tree import MergeTree
from toposcale.landscape.profiles import LandscapeProfile, landscape_profile
from toposcale.landscape.surface import LossSurface, loss_surface

Features = dict[str, dict[str, float]]
Diagrams = dict[str, list[np.ndarray]]

VECTORS = "vectors"
"""Layer of all that is no matrix: biases and norms together."""
DENSITY_POINTS = 200
DENSITY_WIDTH = 0.01
"""Standard deviation of the bells that smooth the spectral density, as a share of the width of the spectrum."""
PROFILE_LEVELS = 40


@dataclass(frozen=True)
class Settings:
    """What is computed of a checkpoint's landscape; the fields are keys of `landscape:` in the configuration."""

    axes: str = "random"
    directions: str = "per_model"
    dimensions: int = 2
    resolution: int = 21
    random_extent: float = 1.0
    eigenvector_extent: float = 1.0
    graphs: tuple[str, ...] = ("grid8",)
    eigenvalues: int = 2
    trace_probes: int = 10
    density_runs: int = 1
    density_steps: int = 30
    gradients: gradient_clouds.Settings | None = None
    seed: int = 42

    @property
    def extent(self) -> float:
        """Half the width of the surface, in units of the axes."""
        return self.random_extent if self.axes == "random" else self.eigenvector_extent


@dataclass(frozen=True)
class Description:
    """All that is known of one checkpoint. Features are by layer and name; the rest is of the first probe batch."""

    features: Features
    gradient_features: Features
    diagrams: Diagrams
    gradient_diagrams: Diagrams
    surface: LossSurface | None
    density: tuple[np.ndarray, np.ndarray, np.ndarray] | None
    profile: LandscapeProfile | None


@dataclass(frozen=True)
class _Measurement:
    features: Features
    gradient_features: Features
    gradient_diagrams: Diagrams
    surface: LossSurface
    trees: Mapping[str, MergeTree]
    top_eigenvector: Parameters


def compute_features(
    losses: Sequence[Loss], parameters: Mapping[str, Tensor], settings: Settings, *, model: str, step: int
) -> Description:
    """The landscape around `parameters` of the first of `losses`; the others tell how sure its features are.

    Each of `losses` is the loss on another probe batch, and is measured along random directions of its own. With two
    or more, every feature gets a `_spread`: its standard deviation (divisor n - 1) over all of them. Directions depend
    on (seed, model, place in `losses`), and on the step too with `per_checkpoint`.

    Where the parameters are not finite, or their gradient is not and the axes are eigenvectors, all features are NaN
    (`nonfinite_count` is the number of points), with no surface, density or profile, one NaN bar in degree 0, and a
    RuntimeWarning.
    """
    if not _has_axes(losses, parameters, settings):
        warnings.warn(
            "the weights or their gradient hold NaN or infinity: the features of the landscape are NaN",
            RuntimeWarning,
            stacklevel=2,
        )
        return _undefined(parameters, settings, model, spread=len(losses) > 1)
    measured = []
    for place, loss in enumerate(losses):
        seed: tuple[int | str, ...] = (settings.seed, model, "landscape", place)
        if settings.directions == "per_checkpoint":
            seed = (*seed, step)
        measured.append(_measure(loss, parameters, settings, model, homology.seeded_number(seed)))
    first = measured[0]
    return Description(
        with_spread([one.features for one in measured]),
        with_spread([one.gradient_features for one in measured]),
        {ALL_LAYERS: _diagrams(first.surface, first.trees, settings.graphs[0])},
        first.gradient_diagrams,
        first.surface,
        _density(losses[0], parameters, settings),
        _profile(losses[0], parameters, first.top_eigenvector, settings),
    )


def _has_axes(losses: Sequence[Loss], parameters: Mapping[str, Tensor], settings: Settings) -> bool:
    if not _finite(parameters):
        return False
    if settings.axes == "random":
        return True
    return all(
        np.isfinite(array).all() for loss in losses for array in loss_gradients(loss, parameters).values()
    )


def _finite(tensors: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


def layer_of(name: str, parameters: Mapping[str, Tensor]) -> str:
    """The layer that a parameter counts to: a matrix is its own, all the rest is `vectors`."""
    return name if parameters[name].dim() == 2 else VECTORS


def with_spread(measured: Sequence[Features]) -> Features:
    """The features of the first of several measurements, and with two or more the `_spread` of each over all."""
    features = {layer: dict(named) for layer, named in measured[0].items()}
    if len(measured) > 1:
        for layer, named in measured[0].items():
            for name in named:
                if name.endswith("_standard_error"):
                    continue  # a spread itself
                values = [one[layer][name] for one in measured]
                finite = np.isfinite(values).all()
                features[layer][f"{name}_spread"] = float(np.std(values, ddof=1)) if finite else math.nan
    return features


def _measure(
    loss: Loss, parameters: Mapping[str, Tensor], settings: Settings, model: str, seed: int
) -> _Measurement:
    top = settings.eigenvalues
    if settings.axes == "eigenvectors":
        top = max(top, settings.dimensions)
    curvature, vectors = hessian_features(
        loss,
        parameters,
        top=top,
        probes=settings.trace_probes,
        seed=seed,
        layer_of=lambda name: layer_of(name, parameters),
    )
    if settings.axes == "random":
        directions = random_directions(parameters, settings.dimensions, seed=seed)
    else:
        directions = vectors[: settings.dimensions]
    surface = loss_surface(loss, parameters, directions, steps=settings.resolution, extent=settings.extent)
    shape, trees = landscape_features(surface.values, surface.coordinates, settings.graphs)
    features = {**curvature, ALL_LAYERS: shape | curvature[ALL_LAYERS]}
    gradient_features: Features = {}
    gradient_diagrams: Diagrams = {}
    if settings.gradients is not None:
        gradient_features, gradient_diagrams = gradient_clouds.compute_features(
            loss_gradients(loss, parameters), settings.gradients, model=model
        )
    return _Measurement(features, gradient_features, gradient_diagrams, surface, trees, vectors[0])


def _diagrams(surface: LossSurface, trees: Mapping[str, MergeTree], graph: str) -> list[np.ndarray]:
    """The diagram of the merge tree, and beneath a grid graph that of the cubical complex in degree 1."""
    diagrams = [trees[graph].diagram]
    if graph in GRID_GRAPHS:
        diagrams.append(cubical_diagram(surface.values, dimension=1, graph=graph))
    return diagrams


def _density(
    loss: Loss, parameters: Mapping[str, Tensor], settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Eigenvalues (m,), the smoothed density there, and its standard error over the runs."""
    if not settings.density_runs:
        return None
    density = spectral_density(
        loss, parameters, runs=settings.density_runs, steps=settings.density_steps, seed=settings.seed
    )
    if not np.isfinite(density.nodes).all():
        return None
    low, high = density.nodes.min(), density.nodes.max()
    width = DENSITY_WIDTH * (high - low) or 1.0
    grid = np.linspace(low - 4 * width, high + 4 * width, DENSITY_POINTS)
    return grid, *density.on(grid, width)


def _profile(
    loss: Loss, parameters: Mapping[str, Tensor], direction: Parameters, settings: Settings
) -> LandscapeProfile | None:
    """The profile of the line along the leading eigenvector."""
    if not _finite(direction):
        return None
    line = loss_surface(
        loss, parameters, [direction], steps=settings.resolution, extent=settings.eigenvector_extent
    )
    return profile_of(line)


def profile_of(line: LossSurface) -> LandscapeProfile:
    """The landscape profile of losses along a line."""
    return landscape_profile(line.values, grid_edges(line.values.shape, "grid4"), levels=PROFILE_LEVELS)


def _undefined(
    parameters: Mapping[str, Tensor], settings: Settings, model: str, *, spread: bool
) -> Description:
    """The names that finite weights of these shapes would have had, every value NaN."""
    ones = {name: torch.ones_like(tensor, requires_grad=False) for name, tensor in parameters.items()}

    def bowl(point: Parameters) -> Tensor:
        return torch.stack([(tensor.double() ** 2).sum() for tensor in point.values()]).sum()

    stand_in = _measure(bowl, ones, settings, model, 0)
    missing = [
        {layer: dict.fromkeys(named, math.nan) for layer, named in features.items()}
        for features in (stand_in.features, stand_in.gradient_features)
    ]
    missing[0][ALL_LAYERS]["nonfinite_count"] = float(settings.resolution**settings.dimensions)
    features, gradient_features = (with_spread([one] * (1 + spread)) for one in missing)
    nothing = [np.full((1, 2), math.nan)]
    return Description(
        features,
        gradient_features,
        {ALL_LAYERS: nothing},
        dict.fromkeys(stand_in.gradient_diagrams, nothing),
        None,
        None,
        None,
    )
