"""Calls that are captured once as a CUDA graph and replayed: one launch where there were hundreds.

The models are so small that a GPU spends most of a training step waiting for the next kernel to be launched. On a CPU
nothing here is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]

# Calls before the capture, in which libraries set themselves up: PyTorch's documentation asks for three.
_WARM_UP = 3


def replayed(function: Callable[[Tensor], Tensors], example: Tensor) -> Callable[[Tensor], Tensors]:
    """`function` of a CUDA tensor shaped as `example`, as a graph; itself, with a warning in the log, where that fails.

    The kernels are those of `function`, so the numbers are too. What it reads beside its argument is read where it lay at
    the capture: change it in place. The results of a call are overwritten by the next one.
    """
    try:
        return _capture(function, example.clone())
    except RuntimeError as error:
        logging.warning("no CUDA graph, which is slower and otherwise the same: %s", error)
        return function


def _capture(function: Callable[[Tensor], Tensors], argument: Tensor) -> Callable[[Tensor], Tensors]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            function(argument)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function(argument)

    def replay(value: Tensor) -> Tensors:
        argument.copy_(value)
        graph.replay()
        return results

    return replay
