"""Weights of a PyTorch model that the monitor measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from toposcale.checkpoints.checkpoint import measured_layouts, split, unmeasured_sentences
from toposcale.features.weights import WeightSettings
from toposcale.homology import subsample_rows
from toposcale.io.bin_files import plain_names
from toposcale.io.errors import UserError
from toposcale.io.not_weights import is_buffer
from toposcale.io.tensor_files import Stored


@dataclass(frozen=True)
class MonitoredWeights:
    """Weights of a model at one step.

    Parameters
    ----------
    matrices : dict of str to Tensor
        Chosen matrices by name, of shape (at most `max_rows`, n_in); they share the memory of the model where no row is
        left out.
    largest_elsewhere : float
        Largest absolute weight of what is not in `matrices`, 0 if nothing is; NaN if one of them is NaN.
    n_parameters : int
        Number of parameters of the model.
    left_out : list of str
        A sentence for each kind of weights that no feature is computed from.
    """

    matrices: dict[str, Tensor]
    largest_elsewhere: float
    n_parameters: int
    left_out: list[str]


def monitored_weights(model: nn.Module, settings: WeightSettings, max_rows: int | None = None) -> MonitoredWeights:
    """Choose the weights of a model that are measured: those that are trained, as in a checkpoint of the model.

    Parameters
    ----------
    model : torch.nn.Module
        The model, or what wraps it: the names of wrappers are left out.
    settings : WeightSettings
        Layers to choose, and the seed of the rows.
    max_rows : int, optional
        Choose at most so many rows of a matrix, the same at every step.

    Returns
    -------
    MonitoredWeights
        The chosen matrices, which may be none, and what is known of the others.

    Raises
    ------
    UserError
        If the weights are spread over several processes.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    >>> found = monitored_weights(model, WeightSettings(), max_rows=2)
    >>> {name: tuple(matrix.shape) for name, matrix in found.matrices.items()}
    {'0.weight': (2, 4), '1.weight': (2, 3)}
    >>> found.n_parameters
    23
    """
    parameters = plain_names(dict(model.named_parameters()))
    if any(hasattr(value, "full_tensor") for value in parameters.values()):
        raise UserError("the weights are spread over several processes (FSDP); the monitor needs whole weights")
    named = {name: value.detach() for name, value in parameters.items() if value.requires_grad}
    if not named:  # nothing is trained, so nothing is left out
        named = {name: value.detach() for name, value in parameters.items()}
    stored = {name: Stored(tuple(value.shape), str(value.dtype)) for name, value in parameters.items()}
    frozen = parameters.keys() - named.keys()
    weights = {
        part: matrix
        for name, layout in measured_layouts(stored, frozen).items()
        if named[name].is_floating_point() and not is_buffer(name)
        for part, matrix in split(name, named[name], layout)
    }
    chosen = {
        name: _some_rows(matrix, max_rows, seed=(settings.seed, name, "monitor"))
        for name, matrix in weights.items()
        if settings.wants(name)
    }
    elsewhere = [matrix for name, matrix in weights.items() if chosen.get(name) is not matrix]
    return MonitoredWeights(
        matrices=chosen,
        largest_elsewhere=float(np.max([_largest_entry(matrix) for matrix in elsewhere], initial=0.0)),
        n_parameters=sum(value.numel() for value in parameters.values()),
        left_out=unmeasured_sentences(stored, frozen),
    )


def _some_rows(matrix: Tensor, max_rows: int | None, seed: tuple[int, str, str]) -> Tensor:
    """Return the matrix, or a sample of its rows if it has more than `max_rows`."""
    if max_rows is None or len(matrix) <= max_rows:
        return matrix
    rows = subsample_rows(len(matrix), max_rows, seed=seed)
    return matrix.index_select(0, torch.from_numpy(rows).to(matrix.device))


def _largest_entry(weight: Tensor) -> float:
    """Return max|weight|; NaN stays."""
    low, high = torch.aminmax(weight.float() if weight.element_size() == 1 else weight)
    return float(torch.maximum(-low, high))
