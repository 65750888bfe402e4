"""Representation topology divergence between two checkpoints on the same texts, with its spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toposcale import homology
from toposcale.io import tensor_files

_SUBSET = 0.5  # of the texts: the time of a subset is then about an eighth of that of all
_MIN_TEXTS = 4


@dataclass(frozen=True)
class Cloud:
    """Embedded texts: `points` (n, d), and the indices of the probe texts, `texts` (n,), ascending."""

    points: NDArray[np.floating]
    texts: NDArray[np.integer]


def save_clouds(path: str | Path, clouds: Mapping[int, Cloud], metadata: Mapping[str, str]) -> None:
    """Write the clouds of some checkpoints, by step, as safetensors."""
    arrays: dict[str, NDArray] = {}
    for step, cloud in clouds.items():
        arrays[f"{step}/points"] = np.asarray(cloud.points, np.float32)
        arrays[f"{step}/texts"] = np.asarray(cloud.texts, np.int64)
    tensor_files.write(path, arrays, metadata)


def load_clouds(path: str | Path) -> dict[int, Cloud]:
    """Read the clouds of `save_clouds`, by step, ascending."""
    arrays, _ = tensor_files.read(path)
    steps = sorted({int(name.partition("/")[0]) for name in arrays})
    return {step: Cloud(arrays[f"{step}/points"], arrays[f"{step}/texts"]) for step in steps}


def divergence(first: Cloud, second: Cloud, *, repeats: int, seed: Sequence[homology.SeedPart]) -> dict[str, float]:
    """Return `rtd` over the common texts, and `rtd_spread`, its standard deviation over random halves of them.

    The halves depend on `seed` and on the number of common texts; with fewer than 2 `repeats` there is no spread. NaN if a
    cloud is not finite or there are fewer than 4 common texts.
    """
    names = ("rtd", "rtd_spread") if repeats >= 2 else ("rtd",)
    _, of_first, of_second = np.intersect1d(first.texts, second.texts, return_indices=True)
    clouds = first.points[of_first], second.points[of_second]
    n_texts = len(of_first)
    if n_texts < _MIN_TEXTS or not all(np.isfinite(points).all() for points in clouds):
        return dict.fromkeys(names, float("nan"))
    rtd = homology.representation_topology_divergence
    features = {"rtd": rtd(*clouds)}
    if repeats >= 2:
        rng = homology.seeded_generator(seed)
        size = max(_MIN_TEXTS // 2, round(_SUBSET * n_texts))
        draws = [rng.choice(n_texts, size, replace=False) for _ in range(repeats)]
        values = [rtd(*(points[np.sort(rows)] for points in clouds)) for rows in draws]
        features["rtd_spread"] = float(np.std(values, ddof=1))
    return features
