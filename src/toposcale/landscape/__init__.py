"""Loss landscapes of any loss of parameters: directions, surfaces, merge trees, curvature and profiles.

`module_loss` turns a module and a function of it into a loss of named parameters, and `measure_landscape` measures that:
surfaces, merge trees, curvature and gradients, by `LandscapeSettings`. Each step is also a function of its own.
`random_directions` and the eigenvectors of a `Hessian` span a plane, `loss_surface` evaluates the loss on it, `merge_tree`
finds the minima and the losses at which their basins meet, and `landscape_features` counts and measures these. Traces and
spectral density of the `Hessian` describe the curvature, `landscape_profile` the basins by their mass.

What needs torch is loaded when it is first used, so that merge trees and graphs work without it, as in a slim install.
"""

from toposcale.io.lazy_names import lazy_names
from toposcale.landscape.graphs import GRAPHS, grid_edges, point_edges
from toposcale.landscape.merge_tree import MergeTree, landscape_features, merge_tree
from toposcale.landscape.profile import LandscapeProfile, landscape_profile

_WITH_TORCH = {
    **dict.fromkeys(("LossSurface", "loss_surface", "random_directions"), "surface"),
    **dict.fromkeys(("module_loss", "probe_loss"), "losses"),
    **dict.fromkeys(("Hessian", "SpectralDensity"), "curvature"),
    **dict.fromkeys(("Landscape", "LandscapeSettings", "measure_landscape"), "measure"),
}
__all__ = [
    *("GRAPHS", "LandscapeProfile", "MergeTree", "grid_edges", "landscape_features", "landscape_profile", "merge_tree"),
    *("point_edges", *_WITH_TORCH),
]
__getattr__, __dir__ = lazy_names(__name__, _WITH_TORCH, {"torch": "monitor"})
