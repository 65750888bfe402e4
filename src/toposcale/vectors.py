"""Persistence diagrams as vectors of one length, comparable between checkpoints and between models of any size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from toposcale import homology
from toposcale.evolution import by_layer_and_dimension

# In units of a matrix's largest H0 death, the distance at which its rows are all connected, loops are born around 1.
BIRTH_EDGES = np.linspace(0.0, 2.0, 11)
PERSISTENCE_EDGES = np.linspace(0.0, 0.5, 11)
BANDWIDTH = 0.05
RADII = np.linspace(0.0, 2.0, 41)
N_LAYERS = 3


def diagram_vectors(diagrams: pa.Table) -> dict[str, np.ndarray]:
    """The H1 bars of all layers of one checkpoint as `persistence_image` (100,) and `persistence_landscape` (123,).

    Each layer's bars are taken in units of its largest H0 death, so that neither the size of the weights nor that of the
    model shows; the vectors are means over the layers. NaN where a layer's bars are (weights that are not finite).
    """
    found = by_layer_and_dimension(diagrams)
    images, landscapes = [], []
    for layer in sorted({layer for layer, _ in found}):
        connected = found.get((layer, 0), np.empty((0, 2)))
        if not len(connected):
            continue  # one point, or all points the same: no unit
        loops = found.get((layer, 1), np.empty((0, 2))) / connected[:, 1].max()
        if np.isfinite(loops).all() and np.isfinite(connected).all():
            image = homology.persistence_image(loops, BIRTH_EDGES, PERSISTENCE_EDGES, bandwidth=BANDWIDTH)
            landscape = homology.persistence_landscape(loops, RADII, n_layers=N_LAYERS)
        else:
            image = np.full((len(BIRTH_EDGES) - 1, len(PERSISTENCE_EDGES) - 1), np.nan)
            landscape = np.full((N_LAYERS, len(RADII)), np.nan)
        images.append(image.ravel())
        landscapes.append(landscape.ravel())
    if not images:
        return {}
    return {
        "persistence_image": np.mean(images, axis=0),
        "persistence_landscape": np.mean(landscapes, axis=0),
    }
