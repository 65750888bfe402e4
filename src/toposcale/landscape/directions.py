"""Random directions in parameter space."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from toposcale.landscape.curvature import Parameters


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
    """Return for every row of (n, d) orthogonal random vectors of its norm, (count, n, d)."""
    gaussian = rng.standard_normal((count, *rows.shape))
    unit = np.zeros_like(gaussian)
    room = min(count, rows.shape[1])
    # QR of each row's (d, room) matrix is Gram-Schmidt on its columns, but for their signs.
    q, r = np.linalg.qr(gaussian[:room].transpose(1, 2, 0))
    unit[:room] = (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]).transpose(2, 0, 1)
    return unit * np.linalg.norm(rows, axis=1)[:, None]
