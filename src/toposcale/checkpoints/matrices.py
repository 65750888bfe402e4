"""Weight matrices of a checkpoint, one at a time."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.errors import counted, listed
from toposcale.io.not_weights import COPY, MAX_AXES, PART
from toposcale.io.tensor_files import Stored

# transformers' Conv1D, used by GPT-2 and its relatives, stores a matrix as (n_in, n_out).
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
# Flax and Keras store (in, out), convolutions (height, width, in, out), and attention (in, heads, size) and back.
_KERNEL = re.compile(r"(^|[./_])kernel(:0|/\.ATTRIBUTES/VARIABLE_VALUE)?$")
_TO_HEADS = re.compile(r"(query|key|value|qkv)[./]kernel")
_FROM_HEADS = re.compile(r"(^|[./])out[./]kernel")
# Stacked matrices of experts.
_EXPERTS = re.compile(r"expert|moe|(^|\.)(input|output)_linear\b")
_VECTORS = "1-D"
_NOT_CHOSEN = "not chosen"


class Layout(NamedTuple):
    """Shape (..., rows, columns) of the matrices in a tensor, and whether their rows are inputs."""

    shape: tuple[int, ...]
    transposed: bool


def matrix_layouts(shapes: Mapping[str, Sequence[int]]) -> dict[str, Layout]:
    """Return the layout of the matrices in tensors of these names and shapes, without tensors that hold none.

    Beyond two axes, those of length 1 are dropped. Stacked matrices (n, n_out, n_in), such as those of experts, are n
    matrices; they are recognised by name, or by three axes of which the first is shorter than the last. All other tensors
    are kernels of convolutions and become (n_out, the rest). What is called a kernel has its outputs last.
    """
    transposed = stored_transposed(shapes)
    layouts = {}
    for name, shape in shapes.items():
        axes = tuple(shape) if len(shape) <= 2 else tuple(length for length in shape if length != 1)
        if len(axes) > 2:
            low = name.lower()
            stacked = _EXPERTS.search(low) or (len(axes) == 3 and axes[0] < axes[2])
            if _KERNEL.search(low):
                axes = _kernel_axes(low, axes)
            elif not stacked or "conv" in low:
                axes = (axes[0], math.prod(axes[1:]))
        of_experts = len(shape) > 1 and _EXPERTS.search(name.lower()) and name.endswith("bias")
        if len(axes) > 1 and not of_experts and len(shape) <= MAX_AXES:
            layouts[name] = Layout(axes, name in transposed)
    return layouts


def _kernel_axes(name: str, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes (..., n_in, n_out) of a kernel of three axes or more."""
    if len(axes) == 3 and _TO_HEADS.search(name):
        return axes[0], axes[1] * axes[2]
    if len(axes) == 3 and "conv" not in name and not _FROM_HEADS.search(name):
        return axes  # layers that are stacked
    return math.prod(axes[:-1]), axes[-1]


def split(name: str, values: Any, layout: Layout) -> Iterator[tuple[str, Any]]:
    """Yield name and values (n_out, n_in) of the matrices of a NumPy or PyTorch tensor; stacked ones are numbered."""
    values = values.reshape(layout.shape)
    for index in np.ndindex(layout.shape[:-2]):
        matrix = values[index]
        yield ".".join([name, *map(str, index)]), matrix.T if layout.transposed else matrix


def measured_layouts(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, Layout]:
    """Return the layouts of the weight matrices in these tensors, by name, without those that never change."""
    reasons = unmeasured(tensors, frozen)
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    return {name: layout for name, layout in layouts.items() if name not in reasons}


def matrix_shapes(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return the shapes (n_out, n_in) of the matrices of `measured_layouts`, of stacked ones each."""
    return {
        part: (matrix.shape[0], matrix.shape[1])
        for name, layout in measured_layouts(tensors, frozen).items()
        for part, matrix in split(name, np.broadcast_to(0.0, layout.shape), layout)
    }


def unmeasured(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, str]:
    """Return why tensors are not measured, by name: no weights, frozen, or no matrices by the number of their axes."""
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    reasons = {}
    for name, (shape, _, not_weight) in tensors.items():
        if not_weight or name in frozen:
            reasons[name] = not_weight or "the same at every checkpoint"
        elif 0 in shape:
            reasons[name] = "empty"
        elif name not in layouts:
            reasons[name] = f"{len(shape)}-D" if len(shape) > MAX_AXES else _VECTORS
    return reasons


def left_out(
    tensors: Mapping[str, Stored], frozen: Collection[str] = (), wants: Callable[[str], bool] | None = None
) -> list[str]:
    """Return a sentence on each kind of what is not measured, with its share of all entries; copies and parts have none.

    frozen: names of the tensors that never change. wants: whether the matrix of a name is chosen; None tells of no vectors.
    """
    sizes = {
        name: math.prod(tensor.shape) * (tensor.not_weight not in (COPY, PART)) for name, tensor in tensors.items()
    }
    total, reasons = max(1, sum(sizes.values())), unmeasured(tensors, frozen)
    if wants:
        shapes = matrix_shapes(tensors, frozen)
        sizes |= {name: math.prod(shape) for name, shape in shapes.items()}
        reasons |= {name: _NOT_CHOSEN for name in shapes if not wants(name)}
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if wants or reason != _VECTORS:
            by_reason.setdefault(reason, []).append(name)
    kernels = [name for name, tensor in tensors.items() if _KERNEL.search(name) and len(tensor.shape) > 1]
    sentences = [f"read as (in, out), as Flax and Keras store a kernel: {listed(kernels, 3)}"] if kernels else []
    for reason, names in by_reason.items():
        share = 100 * sum(sizes[name] for name in names) / total
        of_names = "" if reason == _NOT_CHOSEN else f": {listed(names, 3)}"
        sentences.append(f"not measured: {counted(len(names), 'tensor')}, {share:.3g}%, {reason}{of_names}")
    return sentences


def stored_transposed(shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """Return the names of the tensors whose matrices are stored as (n_in, n_out): kernels, and transformers' Conv1D.

    The latter are the attention and feed-forward matrices of GPT-2 and its relatives (OpenAI GPT, ImageGPT, DistilGPT-2,
    Decision Transformer). They are recognised by the matrix of queries, keys and values, three times as wide as high; other
    architectures (GPT-BigCode) use the same names for matrices with outputs as rows. Stacked experts (n, n_in, 2 n_hidden),
    as in Llama 4, are recognised by their projection back, (n, n_hidden, n_in).
    """
    queries = (shape for name, shape in shapes.items() if re.search(r"(^|\.)c_attn\.weight$", name))
    is_conv1d = any(len(shape) == 2 and shape[1] == 3 * shape[0] for shape in queries)
    transposed = {name for name in shapes if (is_conv1d and _CONV1D.search(name)) or _KERNEL.search(name)}
    for name, shape in shapes.items():
        back = name.replace("gate_up_proj", "down_proj")
        if back != name and back in shapes and len(shape) == len(shapes[back]) == 3:
            transposed |= {name, back} if (shape[2], shape[1]) == (2 * shapes[back][1], shapes[back][2]) else set()
    return transposed
