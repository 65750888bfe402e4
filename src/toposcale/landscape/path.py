"""Principal plane of a training trajectory, and the loss around it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toposcale.landscape.curvature import Loss, Parameters, flatten, unflatten
from toposcale.landscape.surface import LossSurface, loss_surface

MARGIN = 0.2
"""Room around the path in its window, as a share of the path's width."""
_FLAT = 1e-9


@dataclass(frozen=True)
class PrincipalPlane:
    """Plane through the last of n points that holds most of their squared distances from it, in weight units.

    directions: two orthonormal directions. coordinates: float64 (n, 2), along them from the last point. distance:
    float64 (n,), of each point from the plane.
    """

    directions: list[Parameters]
    coordinates: np.ndarray
    distance: np.ndarray


def principal_plane(points: Sequence[Parameters]) -> PrincipalPlane:
    """Return the principal plane of a trajectory: PCA of differences from its last point (Li et al. 2018, section 7).

    The entry of largest magnitude of a direction is positive. ValueError: points that are not finite, fewer than three,
    or all on a line with the last one.
    """
    flat = np.stack([flatten(point) for point in points])
    if not np.isfinite(flat).all():
        raise ValueError("points: must be finite")
    differences = flat - flat[-1]
    _, singular, axes = np.linalg.svd(differences, full_matrices=False)
    if len(singular) < 2 or singular[1] <= _FLAT * singular[0]:
        raise ValueError("points: lie on a line and span no plane")
    axes = axes[:2] * np.sign(axes[[0, 1], np.abs(axes[:2]).argmax(axis=1)])[:, None]
    coordinates = differences @ axes.T
    distance = np.linalg.norm(differences - coordinates @ axes, axis=1)
    return PrincipalPlane([unflatten(axis, points[-1]) for axis in axes], coordinates, distance)


def path_surface(loss: Loss, end: Parameters, plane: PrincipalPlane, *, steps: int) -> LossSurface:
    """Return the loss on a window of the plane that holds the whole trajectory; coordinates as those of the plane."""
    low, high = plane.coordinates.min(axis=0), plane.coordinates.max(axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * (high - low)
    centre = dict(end)
    for offset, direction in zip(middle.tolist(), plane.directions, strict=True):
        centre = {name: tensor + offset * direction[name] for name, tensor in centre.items()}
    window = [
        {name: length * tensor for name, tensor in direction.items()}
        for length, direction in zip(half.tolist(), plane.directions, strict=True)
    ]
    values, scale = loss_surface(loss, centre, window, steps=steps).values, np.linspace(-1.0, 1.0, steps)
    return LossSurface(values, tuple(offset + length * scale for offset, length in zip(middle, half, strict=True)))
