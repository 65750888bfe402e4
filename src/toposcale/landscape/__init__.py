"""Loss landscapes of any loss of parameters: directions, surfaces, merge trees, curvature and profiles.

`module_loss` turns a module and a function of it into a loss of named parameters, and `measure_landscape` measures that:
surfaces, merge trees, curvature and gradients, by `LandscapeSettings`. Each step is also a function of its own.
`random_directions` and `hessian_eigenpairs` span a plane, `loss_surface` evaluates the loss on it, `merge_tree` finds the
minima and the losses at which their basins meet, and `landscape_features` counts and measures these. `spectral_density` and
`hessian_traces` describe the curvature, `landscape_profile` the basins by their mass.

Names are loaded when first used, so that merge trees and graphs work without torch, which the library alone does not
install. Only `merge_tree` is loaded at once: the function and its module share their name, and the function must win.
"""

from importlib import import_module
from typing import Any

from toposcale.landscape.merge_tree import (
    MergeTree,
    cubical_diagram,
    landscape_features,
    merge_tree,
    sharpness,
    surface_edges,
)
from toposcale.landscape.profile import LandscapeProfile, landscape_profile

_NAMES = {
    "graphs": ("GRAPHS", "GRID_GRAPHS", "POINT_GRAPHS", "grid_edges", "point_edges"),
    "surface": ("LossSurface", "loss_surface", "random_directions", "segment_losses"),
    "losses": ("probe_loss", "module_loss"),
    "curvature": ("SpectralDensity", "hessian_eigenpairs", "hessian_traces", "loss_gradients", "spectral_density"),
    "measure": ("Ball", "Landscape", "LandscapeSettings", "measure_landscape"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_OF_SURFACES = {"MergeTree", "merge_tree", "cubical_diagram", "landscape_features", "sharpness"}
_USED_WITHIN = {"Ball", "GRID_GRAPHS", "POINT_GRAPHS", "segment_losses"}  # by toposcale alone
__all__ = sorted({"LandscapeProfile", "landscape_profile", *_OF_SURFACES, *_HOME} - _USED_WITHIN)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
