"""Weight matrices of a checkpoint, one at a time."""

import hashlib
import math
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.bin_files import load_bin, not_plain, torch_values
from toposcale.io.errors import UserError, counted, listed
from toposcale.io.not_weights import MOST_AXES, not_a_weight
from toposcale.io.quantisation import refuse_quantised
from toposcale.io.tensor_files import Stored, check_content, opened
from toposcale.io.weight_files import (
    COPY,
    all_tensors,
    bytes_of,
    copies_among,
    opened_rows,
    stored_tensors,
    tensor_shapes,
    weight_files,
)

# transformers' Conv1D, used by GPT-2 and its relatives, stores a matrix as (n_in, n_out).
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
# Flax and Keras store (in, out), convolutions (height, width, in, out), and attention (in, heads, size) and back.
_KERNEL = re.compile(r"(^|[./_])kernel(:0)?$")
_TO_HEADS, _FROM_HEADS = re.compile(r"(query|key|value|qkv)[./]kernel"), re.compile(r"(^|[./])out[./]kernel")
# Stacked matrices of experts.
_EXPERTS = re.compile(r"expert|moe|(^|\.)(input|output)_linear\b")
# Types of ml_dtypes that NumPy's functions do not support; float32 represents their values exactly.
_WIDENED = re.compile(r"bfloat16|float8_e[345]m[234]\w*")
# A part of a tensor that is hashed, in entries, and the most parts.
_HASHED_ENTRIES, _HASHED_PARTS = 4096, 64


class Layout(NamedTuple):
    """Shape (..., rows, columns) of the matrices in a tensor, and whether their rows are inputs."""

    shape: tuple[int, ...]
    transposed: bool


def iterate_matrices(checkpoint: str | Path, frozen: Collection[str] = ()) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values (n_out, n_in) of the weight matrices of a checkpoint, with one in memory at a time.

    Rows are outputs, also if the file stores them as columns (transformers' Conv1D). Tensors of more than two axes are
    matrices as `matrix_layouts` says. Vectors, the second copy of tied weights, what is no weight (`io.not_weights`) and
    the tensors of the names `frozen` are left out; with a RuntimeWarning, empty matrices. float64, float32 and
    float16 are as stored; bfloat16 and float8 are float32, which is exact. Raise UserError for no weights, a missing
    shard, a damaged file, a `.bin` with more than plain tensors, no matrix, or quantised weights.
    """
    stored = all_tensors(checkpoint)
    layouts = matrix_layouts({name: tensor.shape for name, tensor in stored.items() if not tensor.not_weight})
    wanted = layouts.keys() - set(frozen)
    tensors = (pair for file in weight_files(checkpoint) for pair in _tensors(file, wanted))
    yield from _weights_among(tensors, layouts, f"{checkpoint}: ", stored)


def digests(checkpoint: str | Path) -> dict[str, str]:
    """Return a short hash of each weight of a checkpoint by name, of its values; of a large one, of 64 parts of its rows.

    A tensor with the same hash at every checkpoint of a training is a buffer or frozen.
    """
    wanted = {name for name, (shape, *_) in stored_tensors(checkpoint).items() if shape and 0 not in shape}
    hashes = {}
    for file in weight_files(checkpoint):
        with opened_rows(file) as (stored, rows):
            for name in filter(wanted.__contains__, stored):
                hashes[name] = _digest(name, stored[name].shape, rows(name))
    return hashes


def _digest(name: str, shape: Sequence[int], rows: Any) -> str:
    code = hashlib.blake2b(name.encode(), digest_size=6)
    n_rows = min(shape[0], max(1, _HASHED_ENTRIES // max(1, math.prod(shape[1:]))))  # of a part
    starts = range(0, shape[0], n_rows)
    for start in (
        starts if len(starts) <= _HASHED_PARTS else np.linspace(0, shape[0] - n_rows, _HASHED_PARTS, dtype=int)
    ):
        code.update(bytes_of(rows[int(start) : min(int(start) + n_rows, shape[0])]))
    return code.hexdigest()


def frozen_tensors(checkpoint: str | Path, frozen: Collection[str]) -> set[str]:
    """Return the names of the tensors of a checkpoint whose `digests` are among these; none if all are."""
    if not frozen:
        return set()
    names = {name for name, digest in digests(checkpoint).items() if digest in frozen}
    layouts = matrix_layouts(tensor_shapes(checkpoint))
    return names if layouts.keys() - names else set()


def iterate_arrays(tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over matrices in memory, of NumPy or of PyTorch on any device, as `iterate_matrices` does over files."""
    stored = stored_arrays(tensors)
    layouts = matrix_layouts({name: tensor.shape for name, tensor in stored.items() if not tensor.not_weight})
    yield from _weights_among(((name, _values(name, tensors[name])) for name in layouts), layouts, "", stored)


def stored_arrays(tensors: Mapping[str, Any]) -> dict[str, Stored]:
    """Return shape and type of the tensors in memory by name, each once, as `all_tensors` does over files."""
    arrays = _each_once(tensors)
    stored = {name: _judged(name, tensor) for name, tensor in arrays.items()}
    refuse_quantised(stored, None, "")
    return stored | {name: stored[name]._replace(not_weight=COPY) for name in copies_among(stored, arrays.__getitem__)}


def _judged(name: str, tensor: Any) -> Stored:
    """Return shape and type of a tensor in memory, and why it is no weight."""
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    has_values = not hasattr(tensor, "detach") or not not_plain(tensor)
    return Stored(shape, dtype, not_a_weight(name, shape, dtype, lambda count: tensor[:count]) if has_values else "")


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
        if len(axes) > 1 and not of_experts and len(shape) <= MOST_AXES:
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


def matrix_shapes(tensors: Mapping[str, Stored]) -> dict[str, tuple[int, int]]:
    """Return the shapes (n_out, n_in) of the weight matrices in these tensors, by name."""
    nothing, others = np.zeros(1), left_out(tensors)
    return {
        part: (matrix.shape[0], matrix.shape[1])
        for name, layout in matrix_layouts({name: tensor.shape for name, tensor in tensors.items()}).items()
        if name not in others
        for part, matrix in split(name, np.broadcast_to(nothing, layout.shape), layout)
    }


def left_out(tensors: Mapping[str, Stored]) -> dict[str, str]:
    """Return why tensors are not weight matrices, by name: they are no weights, or have another number of axes."""
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    reasons = {}
    for name, (shape, _, not_weight) in tensors.items():
        if not_weight:
            reasons[name] = not_weight
        elif 0 in shape:
            reasons[name] = "empty"
        elif name not in layouts:
            reasons[name] = f"{len(shape) if len(shape) > MOST_AXES else min(len(shape), 1)}-D"
    return reasons


def not_measured(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> list[str]:
    """Return a sentence each on what is no weight, on copies, and on the tensors of these names, which never change."""
    sizes = {name: math.prod(tensor.shape) for name, tensor in tensors.items() if tensor.not_weight != COPY}
    by_kind: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        by_kind.setdefault("frozen" if name in frozen else tensor.not_weight, []).append(name)
    copies, unchanged = by_kind.pop(COPY, []), by_kind.pop("frozen", [])
    by_kind.pop("", None)  # the weights

    def share(names: Collection[str]) -> str:
        percent = 100 * sum(sizes[name] for name in names) / max(1, sum(sizes.values()))
        return f"{counted(len(names), 'tensor')}, {percent:.3g}%"

    sentences = []
    if kernels := [name for name, tensor in tensors.items() if _KERNEL.search(name) and len(tensor.shape) > 1]:
        sentences.append(f"read as (in, out), as Flax and Keras store a kernel: {listed(kernels, 3)}")
    if by_kind:
        kinds = "; ".join(f"{kind} {listed(names, 3)}" for kind, names in by_kind.items())
        sentences.append(f"not weights: {share([name for names in by_kind.values() for name in names])}: {kinds}")
    if copies:
        sentences.append(f"counted once, as they repeat another tensor: {listed(copies, 3)}")
    if unchanged:
        sentences.append(
            f"frozen, and left out: {share(unchanged)}, the same at every checkpoint: {listed(unchanged, 3)}"
        )
    return sentences


def _weights_among(
    tensors: Iterable[tuple[str, np.ndarray]], layouts: Mapping[str, Layout], where: str, stored: Mapping[str, Stored]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the weight matrices, rows as outputs; raise UserError, prefixed with `where`, if there is none."""
    empty = True
    for name, values in tensors:
        if values.size:
            empty = False
            yield from split(name, values, layouts[name])
        else:
            shape = " x ".join(map(str, values.shape))
            warnings.warn(f"{where}{name} ({shape}) is empty, and left out", RuntimeWarning, stacklevel=3)
    if empty:
        others = [
            f"{name} ({' x '.join(map(str, shape))}): {reason or 'empty'}"
            for name, (shape, _, reason) in stored.items()
            if len(shape) > 1
        ]
        raise UserError(f"{where}no weight matrix (2-D, floating-point): {listed(others, 3) or 'no tensor is 2-D'}")


def _each_once(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors in memory once each; those that are not PyTorch's as arrays."""
    stored: dict[str, Any] = {
        name: tensor if hasattr(tensor, "detach") else np.asarray(tensor) for name, tensor in tensors.items()
    }
    first: dict[Any, str] = {}
    for name, tensor in stored.items():
        if not hasattr(tensor, "detach"):
            address = tensor.__array_interface__["data"][0] if tensor.size else name
        else:
            address = tensor.data_ptr() if not not_plain(tensor) and tensor.numel() else name
        first.setdefault((address, tuple(tensor.shape)), name)
    return {name: stored[name] for name in first.values()}


def _values(name: str, tensor: Any) -> np.ndarray:
    return torch_values(name, tensor) if hasattr(tensor, "detach") else exact(np.asarray(tensor))


def empty_matrices(checkpoint: str | Path) -> list[str]:
    """Return a sentence on each empty matrix, which `iterate_matrices` leaves out."""
    return [
        f"{name}: an empty matrix ({' x '.join(map(str, shape))}) is left out"
        for name, shape in tensor_shapes(checkpoint).items()
        if len(shape) > 1 and 0 in shape
    ]


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


class Sizes(NamedTuple):
    """Number of weights of a checkpoint, number of entries of its largest matrix, and number of matrices."""

    n_parameters: int
    largest_matrix: int
    n_matrices: int


def stored_sizes(checkpoint: str | Path) -> Sizes:
    """Return the sizes of the weights of a checkpoint; of most, the headers of its files are read."""
    tensors = stored_tensors(checkpoint)
    matrices = [math.prod(shape) for shape in matrix_shapes(tensors).values()]
    return Sizes(sum(math.prod(tensor.shape) for tensor in tensors.values()), max(matrices, default=0), len(matrices))


def exact(tensor: np.ndarray) -> np.ndarray:
    """Return the tensor, bfloat16 and float8 as float32, which holds them exactly."""
    return tensor.astype(np.float32) if _WIDENED.fullmatch(tensor.dtype.name) else tensor


def _tensors(file: Path, wanted: Collection[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values of the tensors of a file that are wanted."""
    if file.suffix == ".safetensors":
        with opened(file) as tensors:
            check_content(tensors)
            yield from ((name, exact(tensors.tensor(name))) for name in tensors.names if name in wanted)
    else:
        stored = load_bin(file)
        yield from ((name, torch_values(name, stored[name], f"{file}: ")) for name in stored if name in wanted)
