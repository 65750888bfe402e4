"""Directions in parameter space along which a loss surface is cut."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from toposcale.landscape.curvature import Parameters


def random_directions(parameters: Mapping[str, Tensor], count: int, *, seed: int) -> list[Parameters]:
    """`count` random directions, filter-normalised (Li et al. 2018) and orthogonal to each other.

    Gaussian entries; every row of a direction has the norm of the same row of the parameters (a row is what feeds one
    output: everything but the first axis); biases and norms, that is tensors of fewer than two axes, are zero.

    Scaling rows after orthogonalising whole directions would make them oblique again, and the other way round the norms
    would be lost. So directions are made orthogonal row by row before the rows are scaled: rows then have exactly their
    norm, and the directions, whose inner product is the sum over rows, are exactly orthogonal. A row of fewer than i
    entries has no room for an i-th orthogonal direction, which is zero there.

    The numbers depend on `seed`, the names and the shapes only, so a seed that is the same at every
    checkpoint of a model gives the same Gaussian directions with each checkpoint's own norms. `ValueError`:
    count below 1, or no tensor has rows long enough for `count` directions.
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
    return [
        {
            name: torch.from_numpy(drawn[name][i]).to(tensor.device, tensor.dtype).reshape(tensor.shape)
            if name in drawn
            else torch.zeros_like(tensor, requires_grad=False)
            for name, tensor in parameters.items()
        }
        for i in range(count)
    ]


def _row_directions(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, n, d): for every row, orthogonal random vectors of that row's norm."""
    gaussian = rng.standard_normal((count, *rows.shape))
    unit = np.zeros_like(gaussian)
    room = min(count, rows.shape[1])
    # QR of each row's (d, room) matrix is Gram-Schmidt on its columns, but for their signs.
    q, r = np.linalg.qr(gaussian[:room].transpose(1, 2, 0))
    unit[:room] = (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]).transpose(2, 0, 1)
    return unit * np.linalg.norm(rows, axis=1)[:, None]
