"""Loss landscapes: directions, surfaces, merge trees, curvature and profiles.

Names are loaded when first used, so merge trees and graphs do not import torch. Only `merge_tree` is loaded
at once: the function and its module share their name, and the function has to win.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toposcale.landscape.merge_tree import MergeTree, MergeTreeLayout, merge_tree, merge_tree_layout

_HOME = {
    "GRAPHS": "graphs",
    "GRID_GRAPHS": "graphs",
    "POINT_GRAPHS": "graphs",
    "grid_edges": "graphs",
    "point_edges": "graphs",
    "eigenvector_directions": "directions",
    "random_directions": "directions",
    "LossSurface": "surface",
    "loss_surface": "surface",
    "probe_loss": "surface",
    "segment_losses": "surface",
    "cubical_diagram": "features",
    "landscape_features": "features",
    "sharpness": "features",
    "surface_edges": "features",
    "SpectralDensity": "hessian",
    "hessian_eigenpairs": "hessian",
    "hessian_features": "hessian",
    "hessian_trace": "hessian",
    "hessian_traces": "hessian",
    "loss_gradients": "hessian",
    "spectral_density": "hessian",
    "LandscapeProfile": "profiles",
    "landscape_profile": "profiles",
}

__all__ = ["MergeTree", "MergeTreeLayout", "merge_tree", "merge_tree_layout", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
