"""Loss on a grid around a point of parameter space, along given directions."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from toposcale.landscape.curvature import Loss, Parameters, detached

MAXIMUM_DIMENSION = 3


@dataclass(frozen=True)
class LossSurface:
    """Losses float64 (n,) * k on a grid, and per axis the signed true ||delta theta||, float64 (n,).

    Along several axes at once the distance from the centre is the root of the sum of squares of the
    coordinates, because the directions are orthogonal. Non-finite losses are kept as they are.
    """

    values: np.ndarray
    coordinates: tuple[np.ndarray, ...]

    @property
    def nonfinite_count(self) -> int:
        """Number of grid points whose loss is NaN or infinite."""
        return int((~np.isfinite(self.values)).sum())

    @property
    def points(self) -> np.ndarray:
        """Coordinates of all grid points in C order, float64 (n^k, k)."""
        return np.stack([axis.ravel() for axis in np.meshgrid(*self.coordinates, indexing="ij")], axis=1)


class _PieceModel(nn.Module):
    """Mean loss of a model over a batch, a few sequences at a time."""

    def __init__(self, model: nn.Module, pieces: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.model = model
        self.pieces = pieces
        self.count = sum(targets.numel() for _, targets in pieces)

    def forward(self) -> Tensor:
        losses = []
        for tokens, targets in self.pieces:
            output = self.model(tokens)
            logits = getattr(output, "logits", output)
            losses.append(
                nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")
            )
        return torch.stack(losses).sum() / self.count


def probe_loss(model: nn.Module, tokens: Tensor, targets: Tensor, *, rows: int = 16) -> Loss:
    """The mean cross-entropy of `model` on a fixed probe batch, as a function of its parameters.

    tokens, targets: integers (sequences, time); model(tokens) -> logits (sequences, time, vocabulary), or an
    output of transformers that holds them. The batch goes through the model `rows` sequences at a time:
    activations that stay in the cache take about two thirds of the time. The function may be called from
    several threads at once, each of which works on its own copy of the model; it neither reads nor writes the
    model's own parameters. `ValueError`: rows below 1, or shapes that differ or are empty.
    """
    if rows < 1:
        raise ValueError(f"rows: need at least 1, got {rows}")
    if tokens.shape != targets.shape or tokens.numel() == 0:
        raise ValueError(
            f"targets: need the shape of tokens, {tuple(tokens.shape)}, got {tuple(targets.shape)}"
        )
    original = copy.deepcopy(model).requires_grad_(False)
    pieces = list(zip(tokens.split(rows), targets.split(rows), strict=True))
    own = threading.local()

    def loss(parameters: Parameters) -> Tensor:
        if not hasattr(own, "pieces"):
            # functional_call swaps tensors on the module, so no two threads may share one. The tensors
            # themselves are shared: one made inside a transform such as vmap would belong to it and could not
            # be used again.
            shared = {id(t): t for t in itertools.chain(original.parameters(), original.buffers())}
            own.pieces = _PieceModel(copy.deepcopy(original, shared), pieces)
        named = {f"model.{name}": tensor for name, tensor in parameters.items()}
        return torch.func.functional_call(own.pieces, named, ())

    return loss


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

    One to three directions, orthogonal to each other. An odd number of steps has theta itself in its centre.
    For random directions extent 1 is a step as long as the weights themselves; for unit eigenvectors it is a
    distance of 1.

    Points are dealt out to `threads` threads, each with one thread for its tensor operations, so the values
    do not depend on the number of threads; with more than one, `loss` must allow calls at the same time
    (`probe_loss` does). `chunk` points at a time go through torch.func.vmap; by default one on the CPU, where
    batched products of narrow matrices are slower than plain ones, and 16 elsewhere. See Li et al. (2018),
    Xie et al. (2024).

    `ValueError`: a wrong number of directions, tensors that do not match the parameters, or steps, extent,
    chunk or threads out of range.
    """
    _check_directions(parameters, directions)
    if steps < 1:
        raise ValueError(f"steps: need at least 1, got {steps}")
    if not (np.isfinite(extent) and extent > 0):
        raise ValueError(f"extent: need a positive number, got {extent}")
    scale = np.linspace(-extent, extent, steps)
    grid = np.array(list(itertools.product(scale, repeat=len(directions))))
    values = evaluate(loss, parameters, directions, grid, chunk=chunk, threads=threads)
    lengths = [_norm(direction) for direction in directions]
    return LossSurface(
        values.reshape((steps,) * len(directions)), tuple(scale * length for length in lengths)
    )


def segment_losses(
    loss: Loss, start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, steps: int, threads: int = 1
) -> LossSurface:
    """Loss at `steps` even points from `start` to `end`, both included; coordinates count from `start`.

    `ValueError`: fewer than 2 steps, or tensors that do not match.
    """
    if steps < 2:
        raise ValueError(f"steps: a segment needs at least 2, got {steps}")
    _check_directions(start, [end])
    direction = {name: end[name] - start[name] for name in start}
    scale = np.linspace(0.0, 1.0, steps)
    values = evaluate(loss, start, [direction], scale[:, None], threads=threads)
    return LossSurface(values, (scale * _norm(direction),))


def evaluate(
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
    if chunk < 1:
        raise ValueError(f"chunk: need at least 1, got {chunk}")
    if threads < 1:
        raise ValueError(f"threads: need at least 1, got {threads}")
    if threads == 1 and torch.get_num_threads() == 1:
        return np.concatenate([_losses(loss, centre, directions, part) for part in _parts(grid, chunk)])
    # Worker threads, even a single one, so that the caller's own thread setting stays as it is.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return np.concatenate(
            list(pool.map(lambda part: _losses(loss, centre, directions, part), _parts(grid, chunk)))
        )


def _parts(grid: np.ndarray, chunk: int) -> list[np.ndarray]:
    return [grid[first : first + chunk] for first in range(0, len(grid), chunk)]


@torch.no_grad()
def _losses(
    loss: Loss, centre: Parameters, directions: Sequence[Mapping[str, Tensor]], coefficients: np.ndarray
) -> np.ndarray:
    """Losses at a few points at once, in the calling thread."""

    def moved(coefficient: Sequence[float] | Tensor) -> Parameters:
        point = dict(centre)
        for factor, direction in zip(coefficient, directions, strict=True):
            point = {name: tensor + factor * direction[name] for name, tensor in point.items()}
        return point

    if len(coefficients) == 1:
        return np.array([float(loss(moved(coefficients[0].tolist())))])
    some = next(iter(centre.values()))
    batch = torch.from_numpy(coefficients).to(some.device, some.dtype)
    losses = torch.func.vmap(lambda coefficient: loss(moved(coefficient)))(batch)
    return losses.double().cpu().numpy()


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


def _norm(direction: Mapping[str, Tensor]) -> float:
    return float(np.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in direction.values())))
