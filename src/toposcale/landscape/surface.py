"""Losses on a grid around a point of parameter space: random directions, and the principal plane of a trajectory."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from toposcale.landscape.curvature import (
    Loss,
    Parameters,
    concatenate_tensors,
    detach,
    flatten,
    split_vector,
    unflatten,
)

MAXIMUM_DIMENSION = 3
MARGIN = 0.2
"""Room around the path in its window, as a share of the path's width."""
_MIN_SINGULAR_SHARE = 1e-9
_ROUNDINGS = 16  # units in the last place by which the sums behind a loss differ from point to point


@dataclass(frozen=True)
class LossSurface:
    """Losses on a grid; non-finite ones are kept.

    The distance of a point from the centre is the norm of its coordinates, since the directions are orthogonal.

    Attributes
    ----------
    values : ndarray of shape (n,) * k
        Losses, float64.
    coordinates : tuple of ndarray of shape (n,)
        Signed true ||delta theta|| along each axis, float64.
    rounding : float
        How far two losses may differ by the precision they were computed in, in the unit of the loss.
    """

    values: np.ndarray
    coordinates: tuple[np.ndarray, ...]
    rounding: float = 0.0

    @property
    def points(self) -> np.ndarray:
        """Return the coordinates (n^k, k) of all grid points in C order, float64."""
        return np.stack([axis.ravel() for axis in np.meshgrid(*self.coordinates, indexing="ij")], axis=1)


def random_directions(parameters: Mapping[str, Tensor], count: int, *, seed: int) -> list[Parameters]:
    """Draw random directions, filter-normalised and orthogonal to each other.

    Every row of a direction (all but the first axis) has the norm of that row of the parameters; tensors of fewer than
    two axes (biases, norms) are zero. Gaussian rows are made orthogonal row by row and then scaled: normalising
    orthogonal directions would make them oblique, and the other way round the norms would be lost. A row of fewer than
    i entries is zero in the i-th direction.

    Parameters
    ----------
    parameters : mapping of str to Tensor
        Centre of the landscape.
    count : int
        Number of directions.
    seed : int
        Seed; numbers depend on it, the names and the shapes only, so a model's checkpoints share their Gaussian rows.

    Returns
    -------
    list of dict of str to Tensor
        Directions, in the unit of the parameters.

    Raises
    ------
    ValueError
        If `count` is below 1 or above the length of the longest row.

    References
    ----------
    Li et al., NeurIPS 2018, arXiv:1712.09913.

    Examples
    --------
    >>> direction, = random_directions({"w": torch.tensor([[3.0, 4.0]]), "b": torch.ones(1)}, 1, seed=0)
    >>> round(direction["w"].norm().item(), 5), direction["b"].item()
    (5.0, 0.0)
    """
    rows = {
        name: tensor.detach().double().cpu().numpy().reshape(len(tensor), -1)
        for name, tensor in parameters.items()
        if tensor.dim() >= 2
    }
    longest = max((values.shape[1] for values in rows.values()), default=0)
    if not 1 <= count <= longest:
        raise ValueError(f"count: need 1..{longest} (the longest row), got {count}")
    rng = np.random.default_rng(seed)
    drawn = {name: _row_directions(rows[name], count, rng) for name in sorted(rows)}
    zeros = {name: torch.zeros_like(tensor, requires_grad=False) for name, tensor in parameters.items()}
    return [
        zeros | {name: torch.from_numpy(of[i]).to(zeros[name]).reshape(zeros[name].shape) for name, of in drawn.items()}
        for i in range(count)
    ]


def _row_directions(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return for every row of (n, d) orthogonal random vectors of its norm, (count, n, d)."""
    gaussian = rng.standard_normal((count, *rows.shape))
    unit = np.zeros_like(gaussian)
    room = min(count, rows.shape[1])
    # QR of each row's (d, room) matrix is Gram-Schmidt on its columns, but for their signs.
    q, r = np.linalg.qr(gaussian[:room].transpose(1, 2, 0))
    unit[:room] = (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]).transpose(2, 0, 1)
    return unit * np.linalg.norm(rows, axis=1)[:, None]


def loss_surface(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    directions: Sequence[Mapping[str, Tensor]],
    *,
    steps: int,
    extent: float = 1.0,
    threads: int = 1,
) -> LossSurface:
    """Evaluate a loss on a grid theta + a_1 d_1 + ..., with each a_i evenly from -extent to extent.

    Each thread uses one thread for its tensor operations, so values do not depend on their number.

    Parameters
    ----------
    loss : callable
        Function of a dict of tensors that returns a scalar tensor, and keeps none of them: the next point takes their
        memory. `module_loss` and `probe_loss` allow threads.
    parameters : mapping of str to Tensor
        Centre theta of the grid.
    directions : sequence of mapping of str to Tensor
        One to three orthogonal directions d_i.
    steps : int
        Points per axis; an odd number has theta in its centre.
    extent : float
        Largest coefficient: 1 is the norm of the weights for random directions, a distance of 1 for unit eigenvectors.
    threads : int
        Number of threads.

    Returns
    -------
    LossSurface
        Losses and coordinates.

    Raises
    ------
    ValueError
        If the directions are of a wrong number or do not match the parameters, `steps`, `extent` or `threads` is out of
        range, or the loss gives two values at one point, in one thread or in several.

    References
    ----------
    Li et al., NeurIPS 2018, arXiv:1712.09913; Xie et al. 2024, arXiv:2411.09807.

    Examples
    --------
    >>> surface = loss_surface(lambda p: p["w"] ** 2, {"w": torch.tensor(0.0)}, [{"w": torch.tensor(1.0)}], steps=3)
    >>> surface.values.tolist(), surface.coordinates[0].tolist()
    ([1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    """
    _check_directions(parameters, directions)
    if steps < 1:
        raise ValueError(f"steps: need at least 1, got {steps}")
    if not (np.isfinite(extent) and extent > 0):
        raise ValueError(f"extent: need a positive number, got {extent}")
    scale = np.linspace(-extent, extent, steps) if steps > 1 else np.zeros(1)
    grid = np.array(list(itertools.product(scale, repeat=len(directions))))
    values = losses_at(loss, parameters, directions, grid, threads=threads)
    coordinates = tuple(scale * norm(direction) for direction in directions)
    return LossSurface(values.reshape((steps,) * len(directions)), coordinates, rounding_of(values, parameters))


def segment_losses(loss: Loss, start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, steps: int) -> LossSurface:
    """Return losses at `steps` even points from `start` to `end`, both included; coordinates count from `start`.

    ValueError: fewer than 2 steps, or tensors that do not match.
    """
    if steps < 2:
        raise ValueError(f"steps: a segment needs at least 2, got {steps}")
    _check_directions(start, [end])
    direction = {name: end[name] - start[name] for name in start}
    scale = np.linspace(0.0, 1.0, steps)
    values = losses_at(loss, start, [direction], scale[:, None])
    return LossSurface(values, (scale * norm(direction),), rounding_of(values, start))


def rounding_of(values: np.ndarray, parameters: Mapping[str, Tensor]) -> float:
    """Return the rounding error of losses: some units in the last place of the parameters' precision."""
    coarsest = max(torch.finfo(tensor.dtype).eps for tensor in parameters.values())
    return _ROUNDINGS * coarsest * float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def losses_at(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    directions: Sequence[Mapping[str, Tensor]],
    grid: np.ndarray,
    *,
    threads: int = 1,
) -> np.ndarray:
    """Return losses (m,) at points whose coefficients on the directions are the rows of `grid` (m, k), float64."""
    if threads < 1:
        raise ValueError(f"threads: need at least 1, got {threads}")
    centre = detach(parameters)
    # In the order of the centre, whatever that of a direction.
    vectors = [concatenate_tensors({name: direction[name] for name in centre}) for direction in directions]
    work = partial(_losses, loss, centre, vectors)
    if threads == 1 and torch.get_num_threads() == 1:
        _check_repeatable(work, [grid[:1]], map)
        return work(grid)
    size = -(-len(grid) // (8 * threads))
    blocks = [grid[first : first + size] for first in range(0, len(grid), size)]
    sample = [block[:1] for block in blocks[:: 4 if threads > 1 else len(blocks)]]
    # Worker threads, even a single one, so that the caller's own thread setting stays as it is.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        _check_repeatable(work, sample, pool.map)
        return np.concatenate([*pool.map(work, blocks)])


def _check_repeatable(
    work: Callable[[np.ndarray], np.ndarray], blocks: Sequence[np.ndarray], run: Callable[..., Iterable[np.ndarray]]
) -> None:
    """Raise a ValueError if points that `run` maps one after another have other losses than all of them at once."""
    all_at_once = np.concatenate([*run(work, blocks)])
    one_by_one = np.concatenate([losses for block in blocks for losses in run(work, [block])])
    differ = np.flatnonzero(~((all_at_once == one_by_one) | (np.isnan(all_at_once) & np.isnan(one_by_one))))
    if len(differ):
        raise ValueError(
            f"loss: {all_at_once[differ[0]]:.8g} and {one_by_one[differ[0]]:.8g} at the same point. A loss must depend "
            "only on its parameters: fix its batch, leave out dropout, and with threads above 1 let it keep no state that "
            "the threads share (module_loss gives each thread its own copy of a module)"
        )


def _losses(loss: Loss, centre: Parameters, directions: Sequence[Tensor], coefficients: np.ndarray) -> np.ndarray:
    """Return the losses of points at some coefficients on the directions, in the calling thread."""
    # The parameters need no gradient, so no graph of them is kept; a loss may differentiate by its inputs.
    with torch.enable_grad():
        return np.array([float(loss(point).detach()) for point in _points(centre, directions, coefficients)])


def _points(centre: Parameters, directions: Sequence[Tensor], coefficients: np.ndarray) -> Iterator[Parameters]:
    """Yield the points at some coefficients on the directions; the next one takes the memory of the one before."""
    origin = concatenate_tensors(centre)
    point = _displaced(origin, directions, coefficients[0].tolist())
    step = torch.empty_like(point)
    views = split_vector(point, centre)
    are_views = all(tensor.dtype == point.dtype and tensor.device == point.device for tensor in centre.values())
    for row in coefficients.tolist():
        point.copy_(origin)
        for factor, direction in zip(row, directions, strict=True):
            point += torch.mul(direction, factor, out=step)
        yield views if are_views else split_vector(point, centre)


def _displaced(centre: Tensor, directions: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """Return the point at these coefficients on the directions from the centre."""
    for factor, direction in zip(coefficients, directions, strict=True):
        centre = centre + factor * direction
    return centre


def _check_directions(parameters: Mapping[str, Tensor], directions: Sequence[Mapping[str, Tensor]]) -> None:
    if not 1 <= len(directions) <= MAXIMUM_DIMENSION:
        raise ValueError(f"directions: need 1 to {MAXIMUM_DIMENSION}, got {len(directions)}")
    for direction in directions:
        if direction.keys() != parameters.keys():
            unmatched = sorted(direction.keys() ^ parameters.keys())
            raise ValueError(f"directions: names differ from those of the parameters: {', '.join(unmatched)}")
        for name, tensor in parameters.items():
            if direction[name].shape != tensor.shape:
                raise ValueError(f"directions: {name} needs shape {tuple(tensor.shape)}")


def norm(direction: Mapping[str, Tensor]) -> float:
    """Return the length of a direction, in weight units."""
    return float(np.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in direction.values())))


@dataclass(frozen=True)
class PrincipalPlane:
    """Plane through the last of n points that holds most of their squared distances from it, in weight units.

    directions: two orthonormal directions.
    coordinates: float64 (n, 2), along them from the last point.
    distance: float64 (n,), of each point from the plane.
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
    if len(singular) < 2 or singular[1] <= _MIN_SINGULAR_SHARE * singular[0]:
        raise ValueError("points: lie on a line and span no plane")
    axes = axes[:2] * np.sign(axes[[0, 1], np.abs(axes[:2]).argmax(axis=1)])[:, None]
    coordinates = differences @ axes.T
    distance = np.linalg.norm(differences - coordinates @ axes, axis=1)
    return PrincipalPlane([unflatten(axis, points[-1]) for axis in axes], coordinates, distance)


def path_surface(loss: Loss, end: Parameters, plane: PrincipalPlane, *, steps: int) -> LossSurface:
    """Return the loss on a window of the plane that holds the whole trajectory; coordinates as those of the plane."""
    low, high = plane.coordinates.min(axis=0), plane.coordinates.max(axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * (high - low)
    centre = split_vector(
        _displaced(concatenate_tensors(end), [concatenate_tensors(axis) for axis in plane.directions], middle.tolist()),
        end,
    )
    window = [
        {name: length * tensor for name, tensor in direction.items()}
        for length, direction in zip(half.tolist(), plane.directions, strict=True)
    ]
    values, scale = loss_surface(loss, centre, window, steps=steps).values, np.linspace(-1.0, 1.0, steps)
    return LossSurface(values, tuple(offset + length * scale for offset, length in zip(middle, half, strict=True)))
