"""Losses as functions of parameters: of any module, and of a language model on a probe batch."""

import copy
import itertools
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

from toposcale.landscape.curvature import Loss, Parameters


class _Applied(nn.Module):
    """A module whose forward pass is a function of another module."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self) -> Tensor:
        return self.function(self.module)


def module_loss(module: nn.Module, function: Callable[[nn.Module], Tensor]) -> Loss:
    """`function(module)`, a scalar, as a function of the module's parameters.

    The function holds the data and must use the module that it is given. It may differentiate by its inputs
    (torch.autograd.grad with create_graph=True). The module is copied, in the mode that it is in: nothing reads or
    writes its own parameters and buffers, running means of batch normalisation included, and every call starts from the
    buffers as they are now. Several threads may call the loss at once: each works on its own copy.
    """
    original = copy.deepcopy(module).requires_grad_(False)
    buffers = dict(original.named_buffers())
    of_thread = threading.local()

    def loss(parameters: Parameters) -> Tensor:
        if not hasattr(of_thread, "applied"):
            # functional_call swaps tensors on the module, so no two threads may share one. The tensors themselves are
            # shared: one made inside a transform such as vmap would belong to it and could not be used again.
            shared = {id(t): t for t in itertools.chain(original.parameters(), original.buffers())}
            of_thread.applied = _Applied(copy.deepcopy(original, shared), function)
        named = {f"module.{name}": tensor for name, tensor in parameters.items()}
        named |= {f"module.{name}": tensor.clone() for name, tensor in buffers.items()}
        return torch.func.functional_call(of_thread.applied, named, ())

    return loss


def probe_loss(model: nn.Module, tokens: Tensor, targets: Tensor, *, rows: int = 8) -> Loss:
    """The mean cross-entropy of a language model on a fixed probe batch, as a function of its parameters.

    tokens, targets: integers (sequences, time); model(tokens) -> logits (sequences, time, vocabulary), or an
    output of transformers that holds them. The batch goes through the model `rows` sequences at a time:
    activations that stay in the cache take about two thirds of the time. See `module_loss`. `ValueError`: rows below
    1, or shapes that differ or are empty.
    """
    if rows < 1:
        raise ValueError(f"rows: need at least 1, got {rows}")
    if tokens.shape != targets.shape or tokens.numel() == 0:
        raise ValueError(f"targets: need the shape of tokens, {tuple(tokens.shape)}, got {tuple(targets.shape)}")
    pieces = list(zip(tokens.split(rows), targets.split(rows), strict=True))

    def mean_loss(module: nn.Module) -> Tensor:
        losses = []
        for some_tokens, some_targets in pieces:
            output = module(some_tokens)
            logits = getattr(output, "logits", output)
            losses.append(nn.functional.cross_entropy(logits.flatten(0, -2), some_targets.flatten(), reduction="sum"))
        return torch.stack(losses).sum() / targets.numel()

    return module_loss(model, mean_loss)
