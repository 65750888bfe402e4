"""Loss landscapes of any loss of parameters: directions, surfaces, merge trees, curvature and profiles.

Names are loaded when first used, so that merge trees and graphs work without torch, which the library alone does not
install. Only `merge_tree` is loaded at once: the function and its module share their name, and the function has to win.
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
    "random_directions": "directions",
    "LossSurface": "surface",
    "loss_surface": "surface",
    "probe_loss": "losses",
    "module_loss": "losses",
    "segment_losses": "surface",
    "cubical_diagram": "measures",
    "landscape_features": "measures",
    "sharpness": "measures",
    "surface_edges": "measures",
    "SpectralDensity": "curvature",
    "hessian_eigenpairs": "curvature",
    "hessian_trace": "curvature",
    "hessian_traces": "curvature",
    "loss_gradients": "curvature",
    "spectral_density": "curvature",
    "Ball": "measure",
    "Landscape": "measure",
    "LandscapeSettings": "measure",
    "measure_landscape": "measure",
    "LandscapeProfile": "profiles",
    "landscape_profile": "profiles",
}

__all__ = ["MergeTree", "MergeTreeLayout", "merge_tree", "merge_tree_layout", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
