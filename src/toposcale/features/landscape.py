"""Features of one checkpoint's loss landscape: planes, shapes, curvature and gradients, each with its spread."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toposcale import homology
from toposcale.checkpoints.checkpoint import matrix_layouts, split
from toposcale.features.descriptions import WITHOUT_MATRICES
from toposcale.features.feature import NAMED_AS_MODEL
from toposcale.io.errors import UserError
from toposcale.io.schemas import ALL_LAYERS
from toposcale.landscape.curvature import Loss, Parameters, SpectralDensity, loss_gradients
from toposcale.landscape.graphs import GRID_GRAPHS, point_edges
from toposcale.landscape.measure import BALL_GRAPH, WHOLE, Landscape, LandscapeSettings, measure_landscape
from toposcale.landscape.merge_tree import cubical_diagram, surface_edges
from toposcale.landscape.profile import LandscapeProfile, landscape_profile
from toposcale.landscape.surface import LossSurface

PROFILE_LEVELS = 40
GRADIENT_ROWS = 200  # the most of a matrix that enter a cloud, the same at every step

FeaturesByLayer = dict[str, dict[str, float]]
DiagramsByLayer = dict[str, list[NDArray[np.float64]]]


@dataclass(frozen=True)
class LandscapeFeatureSettings(LandscapeSettings):
    """Settings of `measure_landscape`, and whether gradients are measured."""

    density_runs: int = 1
    gradients: bool = False


@dataclass(frozen=True)
class LandscapeDescription:
    """Landscape of one checkpoint. Features are means over the draws; everything else is from the first draw."""

    features: FeaturesByLayer
    gradient_features: FeaturesByLayer
    diagrams: DiagramsByLayer
    gradient_diagrams: DiagramsByLayer
    surfaces: Mapping[str, LossSurface]
    profiles: Mapping[str, LandscapeProfile]
    density: tuple[np.ndarray, np.ndarray] | None


def compute_features(
    losses: Sequence[Loss], parameters: Parameters, settings: LandscapeFeatureSettings
) -> LandscapeDescription:
    """Return the landscape around `parameters`: the mean of every feature over draws, and its `_spread`.

    A draw is one of `losses`, each on another probe batch, with its own random directions. The `_spread` is the standard
    deviation (divisor n - 1) and needs two draws. Directions depend on (seed, index in `losses`). Parameters that
    are not finite give NaN features, no surface, density or profile, one NaN bar in degree 0, and a RuntimeWarning.
    """
    if not all(bool(torch.isfinite(tensor).all()) for tensor in parameters.values()):
        message = "the weights hold NaN or infinity: the features of the landscape are NaN"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return _undefined(parameters, settings, draws=len(losses))
    landscapes, gradients = [], []
    for index, loss in enumerate(losses):
        seed = homology.seeded_number((settings.seed, "landscape", index))
        draw_settings = replace(settings, seed=seed, density_runs=0 if index else settings.density_runs)
        landscapes.append(measure_landscape(loss, parameters, draw_settings))
        gradients.append(_gradient_clouds(loss, parameters, settings))
    first = landscapes[0]
    return LandscapeDescription(
        mean_and_spread([landscape.features for landscape in landscapes]),
        mean_and_spread([features for features, _ in gradients]),
        _diagrams(first, settings.graphs[0]),
        gradients[0][1],
        first.surfaces,
        _profiles(first, settings.graphs[0]),
        _smoothed(first.density),
    )


def mean_and_spread(draws: Sequence[FeaturesByLayer]) -> FeaturesByLayer:
    """Return the mean of every feature over `draws`, and with two or more of them its `_spread`.

    The standard error of a mean is the root of the summed squares of the standard errors over their number.
    """
    features: FeaturesByLayer = {}
    for layer, names in draws[0].items():
        features[layer] = {}
        for name in names:
            values = np.array([draw[layer][name] for draw in draws])
            if name.endswith("_standard_error"):
                features[layer][name] = float(np.linalg.norm(values)) / len(values)
                continue
            features[layer][name] = float(values.mean())
            if len(values) > 1:
                finite = np.isfinite(values).all()
                features[layer][f"{name}_spread"] = float(values.std(ddof=1)) if finite else math.nan
    return features


def features_of_gradients(
    gradients: Mapping[str, NDArray[np.float64]], *, seed: int = 42
) -> tuple[FeaturesByLayer, DiagramsByLayer]:
    """Return the features and diagrams of the rows of every gradient matrix (n_out, n_in), by layer.

    What a matrix is in an array, `matrix_layouts` says, as for weights. `gradient_norm` is the Frobenius norm, under "all"
    over all arrays. Unit: loss per weight unit. A matrix with a NaN or an infinity has NaN features, with a RuntimeWarning.
    """
    features: FeaturesByLayer = {}
    diagrams: DiagramsByLayer = {}
    layouts = matrix_layouts({name: gradient.shape for name, gradient in gradients.items()})
    matrices = (pair for name, layout in layouts.items() for pair in split(name, gradients[name], layout))
    for layer, gradient in matrices:
        if layer == ALL_LAYERS:
            raise UserError(NAMED_AS_MODEL)
        if np.isfinite(gradient).all():
            rows = homology.subsample_rows(len(gradient), GRADIENT_ROWS, seed=(seed, layer))
            cloud, diagrams[layer] = homology.cloud_features(gradient[rows])
            if 1 in gradient.shape:  # what one row or column lacks is left out
                cloud = {name: value for name, value in cloud.items() if not math.isnan(value)}
            features[layer] = cloud
            features[layer]["gradient_norm"] = float(np.linalg.norm(gradient))
        else:
            warnings.warn(f"the gradient of {layer} is not finite: its features are NaN", RuntimeWarning, stacklevel=2)
            features[layer], diagrams[layer] = homology.nan_features(homology.cloud_features, gradient.shape)
            features[layer]["gradient_norm"] = math.nan
    norm = math.sqrt(sum(float(np.square(gradient).sum()) for gradient in gradients.values()))
    features[ALL_LAYERS] = WITHOUT_MATRICES.aggregate(features) | {"gradient_norm": norm}
    return features, diagrams


def _gradient_clouds(
    loss: Loss, parameters: Parameters, settings: LandscapeFeatureSettings
) -> tuple[FeaturesByLayer, DiagramsByLayer]:
    if not settings.gradients:
        return {}, {}
    return features_of_gradients(loss_gradients(loss, parameters), seed=settings.seed)


def _diagrams(landscape: Landscape, graph: str) -> DiagramsByLayer:
    """Return by plane the diagram of the merge tree and, for a grid graph, that of the cubical complex in degree 1."""
    diagrams = {plane: [trees[graph].diagram] for plane, trees in landscape.trees.items()}
    if graph in GRID_GRAPHS:
        for plane, surface in landscape.surfaces.items():
            diagrams[plane].append(cubical_diagram(surface.values, dimension=1, graph=graph))
    return diagrams


def _smoothed(density: SpectralDensity | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return eigenvalues (m,) and the smoothed density there."""
    if density is None or not np.isfinite(density.nodes).all():
        return None
    low, high = density.nodes.min(), density.nodes.max()
    width = 0.01 * (high - low) or 1.0  # the standard deviation of the bells that smooth the density
    grid = np.linspace(low - 4 * width, high + 4 * width, 200)
    return grid, density.on(grid, width)


def _profiles(landscape: Landscape, graph: str) -> dict[str, LandscapeProfile]:
    """Return the profile of every plane, and of the ball and its bowl."""
    profiles = {plane: profile_of(surface, graph) for plane, surface in landscape.surfaces.items()}
    if landscape.ball is not None:
        edges = point_edges(landscape.ball.points, BALL_GRAPH)
        for name, values in (("ball", landscape.ball.values), ("bowl", landscape.ball.bowl)):
            profiles[name] = landscape_profile(values, edges, levels=PROFILE_LEVELS)
    return profiles


def profile_of(surface: LossSurface, graph: str = "grid4") -> LandscapeProfile:
    """Return the landscape profile of a surface of any number of axes, or of a line."""
    edges = surface_edges(surface.coordinates, graph)
    return landscape_profile(surface.values, edges, levels=PROFILE_LEVELS)


def _undefined(parameters: Parameters, settings: LandscapeFeatureSettings, *, draws: int) -> LandscapeDescription:
    """Return NaN under every name that finite weights of these shapes would have."""
    ones = {name: torch.ones_like(tensor, requires_grad=False) for name, tensor in parameters.items()}

    def bowl(point: Parameters) -> Tensor:
        return torch.stack([(tensor.double() ** 2).sum() for tensor in point.values()]).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the stand-in lacks is not what the checkpoint lacks
        # An even number of points has no centre, and so no sharpness.
        fewest = 3 if settings.resolution % 2 else 4
        probes = min(2, settings.trace_probes)
        small = replace(settings, resolution=fewest, trace_probes=probes, density_runs=0, subspace_starts=1)
        features = measure_landscape(bowl, ones, small).features
    gradient_features, gradient_diagrams = _gradient_clouds(bowl, ones, settings)
    missing, missing_gradients = (
        mean_and_spread([{layer: dict.fromkeys(values, math.nan) for layer, values in by_layer.items()}] * draws)
        for by_layer in (features, gradient_features)
    )
    nothing = [np.full((1, 2), math.nan)]
    return LandscapeDescription(
        missing, missing_gradients, {WHOLE: nothing}, dict.fromkeys(gradient_diagrams, nothing), {}, {}, None
    )
