"""Features of the rows of the gradient of the loss on a fixed probe batch, matrix by matrix."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from toposcale import homology
from toposcale.checkpoints.matrices import matrix_layouts, split
from toposcale.features.registry import aggregate, refuse_name_of_the_model
from toposcale.io.schemas import ALL_LAYERS

FeaturesByLayer = dict[str, dict[str, float]]
DiagramsByLayer = dict[str, list[NDArray[np.float64]]]


@dataclass(frozen=True)
class GradientCloudSettings:
    """At most `max_points` rows of a matrix, the same at every step."""

    max_points: int = 200
    seed: int = 42


def compute_features(
    gradients: Mapping[str, NDArray[np.float64]], settings: GradientCloudSettings, *, model: str
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
        refuse_name_of_the_model(layer)
        describe = partial(_describe_matrix, layer=layer, settings=settings, model=model)
        if np.isfinite(gradient).all():
            features[layer], diagrams[layer] = describe(gradient)
        else:
            warnings.warn(f"the gradient of {layer} is not finite: its features are NaN", RuntimeWarning, stacklevel=2)
            features[layer], diagrams[layer] = homology.nan_features(describe, gradient.shape)
    norm = math.sqrt(sum(float(np.square(gradient).sum()) for gradient in gradients.values()))
    features[ALL_LAYERS] = aggregate(features) | {"gradient_norm": norm}
    return features, diagrams


def _describe_matrix(
    gradient: NDArray[np.float64], layer: str, settings: GradientCloudSettings, model: str
) -> tuple[dict[str, float], list[NDArray[np.float64]]]:
    rows = homology.subsample_rows(len(gradient), settings.max_points, seed=(settings.seed, model, layer))
    features, diagrams = homology.cloud_features(gradient[rows])
    return {**features, "gradient_norm": float(np.linalg.norm(gradient))}, diagrams
