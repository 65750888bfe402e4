"""Vectorised persistence diagrams, comparable between models: images (Adams et al. 2017) and landscapes (Bubenik 2015)."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from persim import PersistenceImager

from toposcale.features.diagram_distances import by_layer_and_dimension

# In units of a matrix's largest H0 death, the distance at which its rows are all connected.
MAX_BIRTH = 2.0  # loops are born around 1
MAX_PERSISTENCE = 0.5
PIXEL = 0.05
BANDWIDTH = 0.05
PIXELS_TOGETHER = 4  # persim's pixels are square; along births four of them are added up
RADII = np.linspace(0.0, 2.0, 41)
N_LAYERS = 3

_IMAGER = PersistenceImager(
    birth_range=(0.0, MAX_BIRTH),
    pers_range=(0.0, MAX_PERSISTENCE),
    pixel_size=PIXEL,
    kernel_params={"sigma": np.eye(2) * BANDWIDTH**2},
)


def diagram_vectors(diagrams: pa.Table) -> dict[str, NDArray[np.float64]]:
    """Return the H1 bars of all layers as `persistence_image` (100,) and `persistence_landscape` (123,), means over layers.

    Bars are in units of their layer's largest H0 death, which removes the scale of the weights and the size of the model.
    NaN if a layer's bars are NaN (weights that are not finite).
    """
    bars = by_layer_and_dimension(diagrams)
    images, landscapes = [], []
    for layer in sorted({layer for layer, _ in bars}):
        connected = bars.get((layer, 0), np.empty((0, 2)))
        if not len(connected):
            continue  # one point, or all points the same: no unit
        loops = bars.get((layer, 1), np.empty((0, 2))) / connected[:, 1].max()
        finite = bool(np.isfinite(loops).all() and np.isfinite(connected).all())
        shown, blank = (loops, 0.0) if finite else (loops[:0], np.nan)
        images.append(blank + persistence_image(shown).ravel())
        landscapes.append(blank + persistence_landscape(shown).ravel())
    if not images:
        return {}
    return {"persistence_image": np.mean(images, axis=0), "persistence_landscape": np.mean(landscapes, axis=0)}


def persistence_image(diagram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the persistence image (10, 10) of a diagram (k, 2): births up to 2 by persistences up to 0.5.

    Each bar is a Gaussian at (birth, persistence), weighted by its persistence and integrated over each pixel.
    """
    image = _IMAGER.transform(diagram, skew=True)
    return image.reshape(-1, PIXELS_TOGETHER, image.shape[1]).sum(axis=1)


def persistence_landscape(diagram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first `N_LAYERS` landscape functions (3, 41) of a diagram (k, 2) at `RADII`; 0 if bars are fewer.

    The k-th function is the k-th largest distance to the nearer end of a bar, 0 outside the bar.
    """
    # Not by persim: of [0.4, 0.6] twice and [0.6, 1.0] its version 0.4.1 gives the last bar twice.
    births, deaths = diagram[:, :1], diagram[:, 1:]
    heights = np.minimum(RADII - births, deaths - RADII)
    return np.sort(np.vstack([np.zeros((N_LAYERS, len(RADII))), heights]), axis=0)[::-1][:N_LAYERS]
