"""Topology of the training trajectory, from sketches of the weights that are taken every few steps."""

import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from toposcale import homology
from toposcale.io.schemas import ALL_LAYERS

REPEATS = 10  # random subsamples of a window, for the dimension and its spread
SEED = 42


def compute_features(
    steps: ArrayLike, sketches: ArrayLike, checkpoints: Iterable[int], *, window: int = 60
) -> dict[int, dict[str, dict[str, float]]]:
    """Return the features of the trajectory up to each of `checkpoints`, by checkpoint and layer ("all").

    Takes steps (m,), ascending, and sketches (m, d) from `callbacks.WeightSketch`. From the last `window` sketches before a
    checkpoint: `persistent_homology_dimension` (Birdal et al. 2021) and its `_spread`, the standard deviation over random
    subsamples; and the Vietoris-Rips features of `homology.cloud_features`, in weight units. A checkpoint with fewer
    sketches has no features, because they depend on the length of the window.
    """
    steps, sketches = np.asarray(steps), np.asarray(sketches, dtype=np.float64)
    features = {}
    for checkpoint in checkpoints:
        last = sketches[steps < checkpoint][-window:]
        if len(last) < window:
            continue
        if not np.isfinite(last).all():
            warnings.warn(f"the sketches before step {checkpoint} are not finite", stacklevel=2)
            continue
        number = homology.seeded_number((SEED, "trajectory"))
        dimension, spread = homology.persistent_homology_dimension(last, repeats=REPEATS, seed=number)
        features[checkpoint] = {
            ALL_LAYERS: {
                "persistent_homology_dimension": dimension,
                "persistent_homology_dimension_spread": spread,
                **homology.cloud_features(last)[0],
            }
        }
    return features
