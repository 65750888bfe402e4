"""Loss on a grid around a point of parameter space, along given directions."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from toposcale.landscape.curvature import Loss, Parameters, detached

MAXIMUM_DIMENSION = 3
_ROUNDINGS = 16  # units in the last place by which the sums behind a loss differ from point to point


@dataclass(frozen=True)
class LossSurface:
    """Losses float64 (n,) * k on a grid, and per axis the signed true ||delta theta||, float64 (n,).

    Along several axes at once the distance from the centre is the root of the sum of squares of the
    coordinates, because the directions are orthogonal. Non-finite losses are kept as they are. rounding: how far
    two of the losses may differ by the precision they were computed in, in units of the loss.
    """

    values: np.ndarray
    coordinates: tuple[np.ndarray, ...]
    rounding: float = 0.0

    @property
    def points(self) -> np.ndarray:
        """Coordinates of all grid points in C order, float64 (n^k, k)."""
        return np.stack([axis.ravel() for axis in np.meshgrid(*self.coordinates, indexing="ij")], axis=1)


def loss_surface(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    directions: Sequence[Mapping[str, Tensor]],
    *,
    steps: int,
    extent: float = 1.0,
    chunk: int | None = None,
    threads: int = 1,
) -> LossSurface:
    """Loss at theta + a_1 d_1 + ... on a grid of `steps` points an axis, a_i evenly from -extent to extent.

    One to three directions, orthogonal to each other. An odd number of steps has theta itself in its centre. For random
    directions extent 1 is a step as long as the weights themselves; for unit eigenvectors it is a distance of 1.

    Points are dealt out to `threads` threads, each with one thread for its tensor operations, so the values do not
    depend on the number of threads; `module_loss` and `probe_loss` may be called from several at once. `chunk` points
    at a time go through torch.func.vmap where the loss allows it; by default one on the CPU, where batched products of
    narrow matrices are slower than plain ones, and 16 elsewhere. See Li et al. (2018), Xie et al. (2024).
    `ValueError`: a wrong number of directions, tensors that do not match the parameters, or steps, extent,
    chunk or threads out of range; a loss that gives two values at one point, or other values from several threads.
    """
    _check_directions(parameters, directions)
    if steps < 1:
        raise ValueError(f"steps: need at least 1, got {steps}")
    if not (np.isfinite(extent) and extent > 0):
        raise ValueError(f"extent: need a positive number, got {extent}")
    scale = np.linspace(-extent, extent, steps) if steps > 1 else np.zeros(1)
    grid = np.array(list(itertools.product(scale, repeat=len(directions))))
    values = losses_at(loss, parameters, directions, grid, chunk=chunk, threads=threads)
    coordinates = tuple(scale * norm(direction) for direction in directions)
    return LossSurface(values.reshape((steps,) * len(directions)), coordinates, rounding_of(values, parameters))


def segment_losses(loss: Loss, start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, steps: int) -> LossSurface:
    """Loss at `steps` even points from `start` to `end`, both included; coordinates count from `start`.
    `ValueError`: fewer than 2 steps, or tensors that do not match.
    """
    if steps < 2:
        raise ValueError(f"steps: a segment needs at least 2, got {steps}")
    _check_directions(start, [end])
    direction = {name: end[name] - start[name] for name in start}
    scale = np.linspace(0.0, 1.0, steps)
    values = losses_at(loss, start, [direction], scale[:, None])
    return LossSurface(values, (scale * norm(direction),), rounding_of(values, start))


def rounding_of(values: np.ndarray, parameters: Mapping[str, Tensor]) -> float:
    """How far losses may differ by rounding alone: some units in the last place of the parameters' precision."""
    coarsest = max(torch.finfo(tensor.dtype).eps for tensor in parameters.values())
    return _ROUNDINGS * coarsest * float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def losses_at(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    directions: Sequence[Mapping[str, Tensor]],
    grid: np.ndarray,
    *,
    chunk: int | None = None,
    threads: int = 1,
) -> np.ndarray:
    """Losses, float64 (m,), at points whose coefficients on the directions are the rows of `grid` (m, k)."""
    centre = detached(parameters)
    if chunk is None:
        chunk = 1 if all(tensor.device.type == "cpu" for tensor in centre.values()) else 16
    for name, number in (("chunk", chunk), ("threads", threads)):
        if number < 1:
            raise ValueError(f"{name}: need at least 1, got {number}")
    parts = [grid[first : first + chunk] for first in range(0, len(grid), chunk)]
    work = partial(_losses, loss, centre, directions)
    if threads == 1 and torch.get_num_threads() == 1:
        _check_repeatable(parts[:1], work, lambda chosen: [work(part) for part in chosen])
        return np.concatenate([work(part) for part in parts])
    # Worker threads, even a single one, so that the caller's own thread setting stays as it is.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        some = parts[:: -(-len(parts) // (2 * threads))] if threads > 1 else parts[:1]
        _check_repeatable(some, lambda part: pool.submit(work, part).result(), lambda chosen: [*pool.map(work, chosen)])
        return np.concatenate([*pool.map(work, parts)])


def _check_repeatable(
    parts: Sequence[np.ndarray],
    alone: Callable[[np.ndarray], np.ndarray],
    together: Callable[[Sequence[np.ndarray]], list[np.ndarray]],
) -> None:
    """`ValueError` if points one after another have other losses than the same points at once."""
    first, again = np.concatenate(together(parts)), np.concatenate([alone(part) for part in parts])
    differ = np.flatnonzero(~((first == again) | (np.isnan(first) & np.isnan(again))))
    if len(differ):
        raise ValueError(
            f"loss: {first[differ[0]]:.8g} and {again[differ[0]]:.8g} at the same point. A loss must depend on its "
            "parameters alone: fix its batch, leave out dropout, and with threads above 1 let it keep no state that the "
            "threads share (module_loss gives each thread its own copy of a module)"
        )


def _losses(
    loss: Loss, centre: Parameters, directions: Sequence[Mapping[str, Tensor]], coefficients: np.ndarray
) -> np.ndarray:
    """Losses at a few points at once, in the calling thread."""

    def moved(coefficient: Sequence[float] | Tensor) -> Parameters:
        point = dict(centre)
        for factor, direction in zip(coefficient, directions, strict=True):
            point = {name: tensor + factor * direction[name] for name, tensor in point.items()}
        return point

    # The parameters need no gradient, so no graph of them is kept; a loss may differentiate by its inputs.
    with torch.enable_grad():
        if len(coefficients) > 1:
            some = next(iter(centre.values()))
            batch = torch.from_numpy(coefficients).to(some.device, some.dtype)
            try:
                losses = torch.func.vmap(lambda coefficient: loss(moved(coefficient)))(batch)
            except RuntimeError:
                pass  # vmap knows no autograd within the loss, and no running means: point by point
            else:
                return losses.detach().double().cpu().numpy()
        return np.array([float(loss(moved(row)).detach()) for row in coefficients.tolist()])


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
    """Length of a direction, in weight units."""
    return float(np.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in direction.values())))
