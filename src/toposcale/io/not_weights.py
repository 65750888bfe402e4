"""Tensors of a checkpoint that are not weights: integers, masks, tables of sines and other buffers, and copies of weights.

Names tell some of them; most have names of their own, but values that no training leaves: two of them in a triangle, or
sines of the position. Quantised weights, recognised by the tensors stored with them, are refused: what is stored is not the
weights.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.errors import UserError
from toposcale.io.files import read_noted
from toposcale.io.tensor_files import Stored

Rows = Callable[[int], Any]
"""Function of a number that returns as many first rows of a tensor, as an array of NumPy or of PyTorch."""

INTEGERS = "integers"
COMPLEX = "complex numbers"
BY_NAME = "buffers by their name"
MASK = "masks"
TABLE = "tables of sines or frequencies"
COPY = "copies"
PART = "parts of weights that are computed"

# Buffers in files of weights: causal masks, rotary frequencies, statistics of batches.
_BUFFERS = re.compile(
    r"(^|\.)(attention|attn)\.(bias|masked_bias)$|(^|\.)rotary_emb\.(inv_freq|(cos|sin)_cached)$"
    r"|(^|\.)(running_(mean|var)|num_batches_tracked)$"
)
_EMBEDDING = re.compile(r"emb|wte|tok|vocab|shared|^encoder$")  # a module that may be tied to another
# Token embeddings, which many models tie to the output head.
_TOKENS = re.compile(r"(^|\.)(wte|embed_tokens|embed_in|word_embeddings|token_embedding|tokens_embed)\.weight$")
_MASKS = re.compile(r"mask|tril|triu|causal")
_BLOCK_ROWS = 16
MAX_AXES = 64  # of an array of NumPy
# Of the recurrence of a sine, by the size of the column: rounding to bfloat16 leaves a third of it, weights leave 1.
_MAX_RESIDUAL = 1e-2
_MIN_POSITIONS = 6
_MIN_ENTRIES = 64  # from here on no weights are only zeros and ones


def is_buffer(name: str, n_axes: int | None = None) -> bool:
    """Return True if a tensor of this name is a buffer (a mask or a table), not a weight.

    n_axes: number of its axes, if known. A bias with one axis is that of a linear layer; a mask has more.
    """
    return _BUFFERS.search(name) is not None and not (n_axes == 1 and name.endswith(".bias"))


def with_reasons(
    stored: Mapping[str, Stored], readable: Collection[str], parts: Collection[str], rows: Callable[[str], Any]
) -> dict[str, Stored]:
    """Return the tensors of a checkpoint, each with the reason why it is not a weight of its own, if it is none.

    readable: names of those that can be read.
    parts: names of those that other weights are computed from.
    rows: maps a name to an object whose slices `[start:stop]` are rows of that tensor; of most the first ones are read.
    """

    def reason(name: str) -> str:
        return not_a_weight(name, *stored[name][:2], lambda count: rows(name)[:count])

    reasons = {name: reason(name) for name in readable if name not in parts} | dict.fromkeys(parts, PART)
    judged = {name: tensor._replace(not_weight=reasons.get(name, "")) for name, tensor in stored.items()}
    return judged | {name: judged[name]._replace(not_weight=COPY) for name in copies_among(judged, rows)}


def not_a_weight(name: str, shape: Sequence[int], dtype: str, rows: Rows) -> str:
    """Return what a tensor is that is not a weight; "" for a weight. Most weights are told by their first rows.

    A matrix of one value is a weight, as some start so, unless it is called a mask.
    """
    if is_buffer(name, len(shape)):
        return BY_NAME
    if not re.match(r"(torch\.)?b?f(loat)?\d", dtype, re.I):  # "F32", "BF16", "torch.float32"
        return COMPLEX if re.search("complex|^C", dtype) else INTEGERS
    axes = [length for length in shape if length != 1]
    if not axes or 0 in axes or len(shape) > MAX_AXES:
        return ""
    if len(axes) == 1:
        return TABLE if _is_geometric(_as_matrix(rows(shape[0]), axes)[0]) else ""
    block = _as_matrix(rows(min(_BLOCK_ROWS, shape[0])), axes)
    if _is_table(block):
        return TABLE
    if not _has_two_values(block):
        return ""
    matrix = _as_matrix(rows(shape[0]), axes)
    if not _has_two_values(matrix):
        return ""
    is_mask = _MASKS.search(name.lower()) if (matrix == matrix[0, 0]).all() else _is_mask(matrix)
    return MASK if is_mask else ""


def _as_matrix(values: Any, axes: Sequence[int]) -> np.ndarray:
    """Return values as float64 (rows, last axis)."""
    values = values.reshape(-1, axes[-1])
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().resolve_conj().resolve_neg().numpy()
    return np.asarray(values).astype(np.float64)


def _has_two_values(matrix: np.ndarray) -> bool:
    """Return True for at most two different values, none of which is NaN."""
    first = matrix[0, 0]
    other_values = matrix[matrix != first]
    return not np.isnan(first) and (len(other_values) == 0 or bool((other_values == other_values[0]).all()))


def _is_mask(matrix: np.ndarray) -> bool:
    """Return True for a matrix of two values that is split by its diagonal, or whose larger value stands for "no" or "yes".

    An identity, which some weights start as, is none.
    """
    largest = np.abs(matrix).max()
    excludes = not np.isfinite(largest) or largest >= 1e4  # it is added to scores, and takes them out of the softmax
    high = matrix == matrix.max()
    if excludes or min(high.sum(axis=1).max(), (~high).sum(axis=1).max()) <= 1:
        return excludes
    if largest == 1 and matrix.min() == 0 and matrix.size >= _MIN_ENTRIES:
        return True
    columns = high.shape[1]
    squares = high.reshape(-1, columns, columns) if len(high) % columns == 0 else high[None]
    triangles = [np.tri(squares.shape[1], columns, k) > 0 for k in (0, -1)]
    return any((squares == one).all() or (squares != one).all() for one in triangles)


def _is_table(block: np.ndarray) -> bool:
    """Return True for columns, or rows, that are sines of their position, of any frequency and phase."""
    return np.isfinite(block).all() and (_are_sines(block) or _are_sines(block.T))


def _are_sines(block: np.ndarray) -> bool:
    """Return True if all columns obey x[p + 1] + x[p - 1] = 2 cos(frequency) x[p], at least one of them with a bend."""
    if len(block) < _MIN_POSITIONS:
        return False
    size = np.sqrt((block**2).mean(axis=0))
    middle, ends = block[1:-1, size > 0], (block[2:] + block[:-2])[:, size > 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (middle * ends).sum(axis=0) / (middle**2).sum(axis=0)
    residual = np.sqrt(((ends - slopes * middle) ** 2).mean(axis=0)) / size[size > 0]
    return len(slopes) > 0 and bool((residual < _MAX_RESIDUAL).all()) and bool((np.abs(slopes) < 2 - 1e-3).any())


def _is_geometric(values: np.ndarray) -> bool:
    """Return True for the frequencies of a table: positive, each the same share of the one before."""
    if len(values) < 4 or not (values > 0).all() or not np.isfinite(values).all():
        return False
    ratios = np.diff(np.log(values))
    return bool(ratios[0] < -1e-3 and np.abs(ratios - ratios[0]).max() < 1e-2 * -ratios[0])


def copies_among(stored: Mapping[str, Stored], rows: Callable[[str], Any]) -> dict[str, str]:
    """Return the matrices that repeat the values of another one, each with that one: tied weights that are stored twice.

    A format or a program may know no tensor under two names. Only embeddings are tied: layers that were copied before
    training, and zeros, are equal as well.
    """
    alike: dict[Any, list[str]] = {}
    for name, tensor in stored.items():
        if len(tensor.shape) > 1 and 0 not in tensor.shape and not tensor.not_weight:
            alike.setdefault(tensor[:2], []).append(name)
    copies: dict[str, str] = {}
    for names in alike.values():
        # The token embedding is the original, an output head the copy.
        names.sort(key=lambda name: (not _TOKENS.search(name), not _EMBEDDING.search(_module(name))))
        n_embeddings = sum(bool(_TOKENS.search(name) or _EMBEDDING.search(_module(name))) for name in names)
        for number, name in enumerate(names):
            embeddings = names[: min(number, n_embeddings)]  # with no other matrix is one tied
            may_be = (first for first in embeddings if first not in copies and _may_be_tied(first, name))
            if original := next((first for first in may_be if _same_values(rows(first), rows(name))), ""):
                copies[name] = original
    return copies


def _may_be_tied(first: str, second: str) -> bool:
    """Return whether two names are of an embedding and another module, or of an embedding that parts of a model share."""
    modules = set(map(_module, (first, second)))
    return bool(_TOKENS.search(first)) or (len(modules) == 2 and any(map(_EMBEDDING.search, modules)))


def _module(name: str) -> str:
    """Return the last part of the name of the module that holds a tensor."""
    return name.removesuffix(".weight").rpartition(".")[2]


def _same_values(first: Any, second: Any) -> bool:
    """Return True if two matrices hold the same bytes, not all zero, compared in blocks: most differ in the first."""
    length = (first.get_shape() if hasattr(first, "get_shape") else first.shape)[0]
    any_value = False
    for row in range(0, length, 1024):
        end = min(row + 1024, length)
        block = bytes_of(first[row:end])
        if block != bytes_of(second[row:end]):
            return False
        any_value = any_value or any(block)
    return any_value


def bytes_of(values: Any) -> bytes:
    """Return the bytes of an array of NumPy, or of a tensor of PyTorch on any device."""
    if hasattr(values, "detach"):
        import torch

        values = values.detach().cpu().contiguous().view(torch.uint8).numpy()
    return np.ascontiguousarray(values).tobytes()


_INTEGERS = r"u?int(4|8|16|32|64)|[ui]\d+"
_BYTES = r"u?int8|[ui]8"
_FLOAT8 = r"float8.*|f8.*"
_ITS_LIBRARY = "the library that wrote it"
_ON_LOADING = "transformers (from_pretrained with {}(dequantize=True), then save_pretrained)"
_LOADED = "transformers (model.dequantize(), then save_pretrained)"
_FP8 = _ON_LOADING.format("FineGrainedFP8Config")


class _Packing(NamedTuple):
    """Packing of quantised weights.

    name: of the format.
    packed: suffix of a packed tensor.
    dtype: its types.
    companions: suffixes of the tensors stored with it.
    tool: what dequantises it.
    """

    name: str
    packed: str
    dtype: str
    companions: tuple[str, ...]
    tool: str = _ITS_LIBRARY


# The first that fits counts. A tensor `scales` is not evidence: the packed one must be of its type.
_PACKINGS = (
    _Packing("GPTQ", ".qweight", _INTEGERS, (".g_idx", ".qzeros", ".scales")),
    _Packing("AWQ", ".qweight", _INTEGERS, (".qzeros", ".scales")),
    _Packing("GPTQ or AWQ", ".qweight", _INTEGERS, (".scales",)),
    _Packing("FP8 with block scales", ".weight", _FLOAT8, (".weight_scale_inv",), _FP8),
    _Packing("NVFP4", ".weight", _BYTES, (".weight_scale", ".weight_scale_2")),
    *(
        _Packing(f"{name} with scales", ".weight", dtype, (scale,))
        for name, dtype in (("FP8", _FLOAT8), ("int8", _BYTES))
        for scale in (".weight_scale", ".weight_scales", ".scale_weight", ".scale", ".scales")
    ),
    *(
        _Packing("FP8 with scales", "", _FLOAT8, (scale,), _FP8) for scale in ("_scale_inv", "_scale")
    ),  # stacked experts
    _Packing(
        *("compressed-tensors", ".weight_packed", _INTEGERS, (".weight_scale",)),
        _ON_LOADING.format("CompressedTensorsConfig"),
    ),
    _Packing("bitsandbytes 4-bit", ".weight", ".*", (".weight.absmax",), _LOADED),
    _Packing("bitsandbytes int8", ".weight", "int8|i8", (".SCB",), _LOADED),
    _Packing("MLX", ".weight", _INTEGERS, (".scales",), "mlx_lm.convert --dequantize"),
    _Packing("MXFP4", "_blocks", _BYTES, ("_scales",), _ON_LOADING.format("Mxfp4Config")),
    _Packing("HQQ", ".W_q", _INTEGERS, (".scale", ".zero")),
    _Packing("Quanto", ".weight._data", f"{_BYTES}|{_FLOAT8}", (".weight._scale",)),
    _Packing("EXL2", ".q_weight", _INTEGERS, (".q_scale",)),
    _Packing("AQLM", ".codes", _INTEGERS, (".codebooks",)),
)


def refuse_quantised(stored: Mapping[str, Stored], folder: Path | None, where: str) -> None:
    """Raise UserError, prefixed with `where`, if tensors are quantised weights, or the config.json in `folder` says so."""
    for name, tensor in stored.items():
        for packing in _PACKINGS:
            layer = name.removesuffix(packing.packed)
            is_packed = name.endswith(packing.packed) and re.fullmatch(packing.dtype, _plain(tensor.dtype))
            if is_packed and all(layer + end in stored for end in packing.companions):
                evidence = f"{name} is {tensor.dtype} with {layer}{packing.companions[0]}"
                raise UserError(_refusal(where, f"{packing.name}: {evidence}", packing.tool))
    sizes = {name: math.prod(tensor.shape) for name, tensor in stored.items()}
    packed = {name: sizes[name] for name, tensor in stored.items() if re.fullmatch(_INTEGERS, _plain(tensor.dtype))}
    if folder and sum(packed.values()) > 0.01 * sum(sizes.values()) and (method := _method(folder)):
        largest = max(packed, key=packed.__getitem__)
        evidence = f"quant_method {method} in its config.json, and {largest} is {stored[largest].dtype}"
        raise UserError(_refusal(where, evidence, _ITS_LIBRARY))


def _refusal(where: str, evidence: str, tool: str) -> str:
    return (
        f"{where}quantised ({evidence}), so that what is stored is not the weights; dequantise it with {tool}, or name the "
        "checkpoint from which it was made"
    )


def _method(folder: Path) -> str:
    """Return the method of quantisation that the config.json in a folder names; "" if it names none."""
    config = read_noted(folder / "config.json")
    methods = (config.get(key) for key in ("quantization_config", "compression_config", "quantization"))
    return str(next((one for one in methods if isinstance(one, dict)), {}).get("quant_method", ""))


def _plain(dtype: str) -> str:
    return dtype.lower().removeprefix("torch.")
