"""A loss surface against a loop that sets the parameters of the model, and the time of merge trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Line, Row, best_in_turn, compare
from toposcale.landscape import grid_edges, loss_surface, merge_tree, probe_loss, random_directions
from toposcale.training.gpt import GPT, GPTShape
from toposcale.training.trainer import configure_torch

STEPS, SEQUENCES = 11, 64


def rows() -> Iterator[Line]:
    """A surface, and merge trees of noise, which has the most minima."""
    yield surface_row()
    for size, limit, rounds in ((40, 0.005, 20), (1000, 5.0, 3)):
        values, edges = np.random.default_rng(0).normal(size=(size, size)), grid_edges((size, size), "grid4")
        [seconds] = best_in_turn(lambda values=values, edges=edges: merge_tree(values, edges), rounds=rounds)
        yield Row(f"merge tree of a grid of {size} x {size}", seconds, limit)


def surface_row() -> Row:
    """A surface of xl-97k against the loop, after a check of a small one."""
    configure_torch("cpu")
    model, tokens, targets = probe()
    parameters = dict(model.named_parameters())
    directions = random_directions(parameters, 2, seed=0)
    loss = probe_loss(model, tokens, targets)

    def ours(steps: int = STEPS) -> np.ndarray:
        return loss_surface(loss, parameters, directions, steps=steps, threads=1).values

    def plain(steps: int = STEPS) -> np.ndarray:
        return loop_surface(model, tokens, targets, directions, steps)

    np.testing.assert_allclose(ours(3), plain(3), rtol=1e-5)
    name = f"surface of {STEPS} x {STEPS} points, xl-97k, batch {SEQUENCES} x 128 / plain loop"
    return compare(name, ours, plain, 1 / 1.5, rounds=4)


def probe() -> tuple[GPT, Tensor, Tensor]:
    """xl-97k at its initial weights, and a batch of tokens that follow one another by a noisy rule."""
    steps = torch.randint(1, 4, (SEQUENCES, 129), generator=torch.Generator().manual_seed(0)).cumsum(1) % 96
    return GPT(GPTShape(128, 128, 48, 3, 4)), steps[:, :-1], steps[:, 1:]


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
