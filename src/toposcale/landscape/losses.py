"""Losses as functions of parameters: of any module, and of a language model on a probe batch."""

import copy
import itertools
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

from toposcale.landscape.curvature import Loss, Parameters

_ROWS = 8  # sequences per forward pass: their activations stay in the cache, which saves a third of the time


class _Applied(nn.Module):
    """Module whose forward pass is a function of another module."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self) -> Tensor:
        """Return the function of the module."""
        return self.function(self.module)


def module_loss(module: nn.Module, function: Callable[[nn.Module], Tensor]) -> Loss:
    """Turn a function of a module into a loss of its parameters.

    The module is copied in its current mode, so its own parameters and buffers are neither read nor written; every call
    starts from the buffers as they are now. Threads may call the loss at once, each with its own copy.

    Parameters
    ----------
    module : torch.nn.Module
        Module whose parameters vary.
    function : callable
        Function of the module that returns a scalar tensor. It holds the data, must use the module that it is given,
        and may differentiate by its inputs (torch.autograd.grad with create_graph=True).

    Returns
    -------
    callable
        Function of a dict of tensors, as in `dict(module.named_parameters())`, that returns a scalar tensor.

    Examples
    --------
    >>> loss = module_loss(nn.Linear(1, 1, bias=False), lambda module: module(torch.ones(1, 1)).sum())
    >>> loss({"weight": torch.tensor([[3.0]])}).item()
    3.0
    """
    original = copy.deepcopy(module).requires_grad_(False)
    buffers = dict(original.named_buffers())
    # To look for tied weights at every call takes as long as a tenth of a pass through a small model.
    every_name = (original.named_parameters, original.named_buffers)
    tied = any(len([*named(remove_duplicate=False)]) > len([*named()]) for named in every_name)
    of_thread = threading.local()

    def loss(parameters: Parameters) -> Tensor:
        if not hasattr(of_thread, "applied"):
            # functional_call swaps tensors on the module, so no two threads may share one. The tensors themselves are
            # shared: one made inside a transform such as vmap would belong to it and could not be used again.
            shared = {id(t): t for t in itertools.chain(original.parameters(), original.buffers())}
            of_thread.applied = _Applied(copy.deepcopy(original, shared), function)
        tensors = {f"module.{name}": tensor for name, tensor in parameters.items()}
        tensors |= {f"module.{name}": tensor.clone() for name, tensor in buffers.items()}
        return torch.func.functional_call(of_thread.applied, tensors, (), tie_weights=tied)

    return loss


def probe_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Loss:
    """Turn the mean cross-entropy of a language model on a fixed probe batch into a loss of its parameters.

    Parameters
    ----------
    model : torch.nn.Module
        Maps tokens to logits (sequences, time, vocabulary), or to an output of transformers that holds them.
    tokens, targets : Tensor of shape (sequences, time)
        Integer inputs and the tokens to predict.

    Returns
    -------
    callable
        Function of a dict of tensors that returns the loss in nats per token; see `module_loss`.

    Raises
    ------
    ValueError
        If the shapes differ or are empty.

    Examples
    --------
    >>> tokens = torch.zeros(1, 4, dtype=torch.long)
    >>> loss = probe_loss(nn.Embedding(2, 2), tokens, tokens)
    >>> round(loss({"weight": torch.zeros(2, 2)}).item(), 4)  # ln 2
    0.6931
    """
    if tokens.shape != targets.shape or tokens.numel() == 0:
        raise ValueError(f"targets: need the shape of tokens, {tuple(tokens.shape)}, got {tuple(targets.shape)}")
    pieces = list(zip(tokens.split(_ROWS), targets.split(_ROWS), strict=True))

    def mean_loss(module: nn.Module) -> Tensor:
        losses = []
        for some_tokens, some_targets in pieces:
            output = module(some_tokens)
            logits = getattr(output, "logits", output)
            losses.append(nn.functional.cross_entropy(logits.flatten(0, -2), some_targets.flatten(), reduction="sum"))
        return torch.stack(losses).sum() / targets.numel()

    return module_loss(model, mean_loss)
