"""Weight matrices of a checkpoint, one at a time."""

import math
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.bin_files import is_buffer, load_bin, not_plain, torch_values
from toposcale.io.errors import UserError, listed
from toposcale.io.quantisation import refuse_quantised
from toposcale.io.tensor_files import Stored, check_content, opened
from toposcale.io.weight_files import stored_tensors, tensor_shapes, tied_copies, weight_files

# transformers' Conv1D, used by GPT-2 and its relatives, stores a matrix as (n_in, n_out).
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
# Stacked matrices of experts.
_EXPERTS = re.compile(r"expert|moe|(^|\.)(input|output)_linear\b")
# Types of ml_dtypes that NumPy's functions do not support; float32 represents their values exactly.
_WIDENED = re.compile(r"bfloat16|float8_e[345]m[234]\w*")
_MOST_AXES = 64  # of an array of NumPy


class Layout(NamedTuple):
    """Shape (..., rows, columns) of the matrices in a tensor, and whether their rows are inputs."""

    shape: tuple[int, ...]
    transposed: bool


def iterate_matrices(checkpoint: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values (n_out, n_in) of the weight matrices of a checkpoint, with one in memory at a time.

    Rows are outputs, also if the file stores them as columns (transformers' Conv1D). Tensors of more than two axes are
    matrices as `matrix_layouts` says. Vectors, integers, the second copy of tied weights and buffers are left out; with a
    RuntimeWarning, empty matrices. float64, float32 and float16 are as stored; bfloat16 and float8 are float32, which is
    exact. Raise UserError for no weights, a missing shard, a damaged file, a `.bin` with more than plain tensors, no
    matrix, or quantised weights.
    """
    layouts, files = matrix_layouts(tensor_shapes(checkpoint)), weight_files(checkpoint)
    wanted = layouts.keys() - tied_copies(files)
    tensors = (pair for file in files for pair in _tensors(file, wanted))
    yield from _weights_among(tensors, layouts, f"{checkpoint}: ")


def iterate_arrays(tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over matrices in memory, of NumPy or of PyTorch on any device, as `iterate_matrices` does over files."""
    layouts = matrix_layouts({name: tensor.shape for name, tensor in stored_arrays(tensors).items()})
    yield from _weights_among(((name, _values(name, tensors[name])) for name in layouts), layouts, "")


def stored_arrays(tensors: Mapping[str, Any]) -> dict[str, Stored]:
    """Return shape and type of the tensors in memory by name, each once, as `stored_tensors` does over files."""
    stored = {name: Stored(tuple(tensor.shape), str(tensor.dtype)) for name, tensor in _each_once(tensors).items()}
    refuse_quantised(stored, None, "")
    return stored


def matrix_layouts(shapes: Mapping[str, Sequence[int]]) -> dict[str, Layout]:
    """Return the layout of the matrices in tensors of these names and shapes, without tensors that hold none.

    Beyond two axes, those of length 1 are dropped. Stacked matrices (n, n_out, n_in), such as those of experts, are n
    matrices; they are recognised by name, or by three axes of which the first is shorter than the last. All other tensors
    are kernels of convolutions and become (n_out, the rest).
    """
    transposed = stored_transposed(shapes)
    layouts = {}
    for name, shape in shapes.items():
        axes = tuple(shape) if len(shape) <= 2 else tuple(length for length in shape if length != 1)
        if len(axes) > 2:
            low = name.lower()
            stacked = _EXPERTS.search(low) or (len(axes) == 3 and axes[0] < axes[2])
            axes = axes if stacked and "conv" not in low else (axes[0], math.prod(axes[1:]))
        of_experts = len(shape) > 1 and _EXPERTS.search(name.lower()) and name.endswith("bias")
        if len(axes) > 1 and not of_experts and len(shape) <= _MOST_AXES:
            layouts[name] = Layout(axes, name in transposed)
    return layouts


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
    """Return why tensors are not weight matrices, by name: their number of axes or their type."""
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    reasons = {}
    for name, (shape, dtype) in tensors.items():
        if 0 in shape:
            reasons[name] = "empty"
        elif not re.search(r"^(torch\.)?b?f(loat)?\d", dtype.lower()):
            reasons[name] = "complex" if "complex" in dtype or dtype[0] == "C" else "integers"
        elif name not in layouts:
            reasons[name] = f"{len(shape) if len(shape) > _MOST_AXES else min(len(shape), 1)}-D"
    return reasons


def _weights_among(
    tensors: Iterable[tuple[str, np.ndarray]], layouts: Mapping[str, Layout], where: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the weight matrices, rows as outputs; raise UserError, prefixed with `where`, if there is none."""
    others, empty = [], True
    for name, values in tensors:
        if values.size and values.dtype.kind == "f":
            empty = False
            yield from split(name, values, layouts[name])
            continue
        kind = values.dtype if values.size else "empty"
        others.append(f"{name} ({' x '.join(map(str, values.shape))}) is {kind}")
        if not values.size:
            warnings.warn(f"{where}{others[-1]}, and left out", RuntimeWarning, stacklevel=3)
    if empty:
        why = listed(others, 3) or "no tensor is 2-D"
        raise UserError(f"{where}no weight matrix (2-D, floating-point): {why}")


def _each_once(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors in memory once each, without buffers; those that are not PyTorch's as arrays."""
    stored: dict[str, Any] = {
        name: tensor if hasattr(tensor, "detach") else np.asarray(tensor)
        for name, tensor in tensors.items()
        if not is_buffer(name)
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
    """Return the names of the tensors whose matrices are stored as (n_in, n_out): those of transformers' Conv1D.

    These are the attention and feed-forward matrices of GPT-2 and its relatives (OpenAI GPT, ImageGPT, DistilGPT-2,
    Decision Transformer). They are recognised by the matrix of queries, keys and values, three times as wide as high; other
    architectures (GPT-BigCode) use the same names for matrices with outputs as rows. Stacked experts (n, n_in, 2 n_hidden),
    as in Llama 4, are recognised by their projection back, (n, n_hidden, n_in).
    """
    queries = (shape for name, shape in shapes.items() if re.search(r"(^|\.)c_attn\.weight$", name))
    is_conv1d = any(len(shape) == 2 and shape[1] == 3 * shape[0] for shape in queries)
    transposed = {name for name in shapes if is_conv1d and _CONV1D.search(name)}
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
    """Return the sizes that the headers of the files state; weights stored twice count twice."""
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
