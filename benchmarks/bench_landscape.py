"""Speed of loss surfaces, merge trees and Hessian eigenpairs against their references or limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Row
from toposcale.landscape import (
    grid_edges,
    hessian_eigenpairs,
    loss_surface,
    merge_tree,
    probe_loss,
    random_directions,
)
from toposcale.landscape.curvature import HessianProduct
from toposcale.training.gpt import GPT, GPTShape

Measured = tuple[str, float, float, float, float]


def probe(sequences: int) -> tuple[GPT, Tensor, Tensor]:
    """xl-97k at its initial weights, and a batch of tokens that follow one another by a noisy rule."""
    steps = torch.randint(1, 4, (sequences, 129), generator=torch.Generator().manual_seed(0)).cumsum(1) % 96
    return GPTShape(128, 128, 48, 3, 4).build(0), steps[:, :-1], steps[:, 1:]


def loop_surface(
    model: nn.Module, tokens: Tensor, targets: Tensor, directions: Sequence[dict[str, Tensor]], steps: int
) -> np.ndarray:
    """The reference: set the parameters, run the model on the whole batch, point by point."""
    centre = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    values = []
    with torch.no_grad():
        for first in np.linspace(-1, 1, steps).tolist():
            for second in np.linspace(-1, 1, steps).tolist():
                for name, tensor in model.named_parameters():
                    tensor.copy_(centre[name] + first * directions[0][name] + second * directions[1][name])
                logits = model(tokens)
                values.append(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item())
        for name, tensor in model.named_parameters():
            tensor.copy_(centre[name])
    return np.array(values).reshape(steps, steps)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def surface_row(threads: int, steps: int = 21, sequences: int = 64, rounds: int = 2) -> Measured:
    """A surface of xl-97k on a 64 x 128 batch against the loop; the least of interleaved rounds of both."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    model, tokens, targets = probe(sequences)
    parameters = dict(model.named_parameters())
    directions = random_directions(parameters, 2, seed=0)
    loss = probe_loss(model, tokens, targets)
    np.testing.assert_allclose(
        loss_surface(loss, parameters, directions, steps=3, threads=threads).values,
        loop_surface(model, tokens, targets, directions, 3),
        rtol=1e-5,
    )
    ours, reference = [], []
    for _ in range(rounds):
        reference.append(seconds(lambda: loop_surface(model, tokens, targets, directions, steps)))
        ours.append(seconds(lambda: loss_surface(loss, parameters, directions, steps=steps, threads=threads)))
    torch.set_num_threads(before)
    name = f"surface {steps} x {steps}, xl-97k, batch {sequences} x 128, {threads} thread(s)"
    return name, min(ours), min(reference), min(reference) / min(ours), 1.5


def merge_tree_row(size: int, limit: float, rounds: int) -> Measured:
    """A merge tree of Gaussian noise, the field with the most minima, against its time limit."""
    values, edges = np.random.default_rng(0).normal(size=(size, size)), grid_edges((size, size), "grid4")
    ours = min(seconds(lambda: merge_tree(values, edges)) for _ in range(rounds))
    return f"merge tree {size} x {size}", ours, limit, limit / ours, 1.0


def eigenpairs_row(sequences: int = 16) -> Measured:
    """Hessian-vector products, in place of seconds, for the top two eigenpairs of xl-97k; at most 60."""
    model, tokens, targets = probe(sequences)
    counts: list[HessianProduct] = []
    call = HessianProduct.__call__

    def counted(self: HessianProduct, vector: np.ndarray) -> np.ndarray:
        counts.append(self)
        return call(self, vector)

    HessianProduct.__call__ = counted  # type: ignore[method-assign]
    try:
        hessian_eigenpairs(probe_loss(model, tokens, targets), dict(model.named_parameters()), 2, seed=0)
    finally:
        HessianProduct.__call__ = call  # type: ignore[method-assign]
    return "top two eigenpairs of xl-97k (products)", float(len(counts)), 60.0, 60.0 / len(counts), 1.0


def rows() -> Iterator[Row]:
    """Surfaces against a loop over the points, merge trees and products against their limits."""
    for threads in (1, 2):
        name, ours, reference, _, asked = surface_row(threads, 21, rounds=2)
        yield Row(name, ours, reference, 1 / asked)
    for size, limit, rounds in ((40, 0.005, 20), (1000, 5.0, 1)):
        name, ours, *_ = merge_tree_row(size, limit, rounds)
        yield Row(name, ours, 1, limit, absolute=True)
    name, products, most, *_ = eigenpairs_row()
    yield Row(name, products, 1, most, absolute=True, unit="")
