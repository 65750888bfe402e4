"""Recognise quantised weights by the tensors stored beside them, and dequantise them where the format says how.

Each reader of a format is a generator: it yields the shape (..., n_out, n_in), and the values only if it is asked again.
"""

import math
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_noted
from toposcale.io.tensor_files import Stored

_INTEGERS, _BYTES, _FLOAT8 = r"u?int(4|8|16|32|64)|[ui]\d+", r"u?int8|[ui]8", r"float8.*|f8.*"
_WORDS, _FLOATS = r"u?int32|[ui]32", r"b?f(loat)?(16|32|64)"
# Values of a 4-bit float (E2M1), and the indices at which AWQ packs eight columns.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
_ZEROS = ".weight_zero_point"
_DEQUANTISE = (
    "dequantise them first (transformers: load, model.dequantize(), save_pretrained), or name the checkpoint from which "
    "they were made"
)
_Reading = Generator[Any, None, None]


class _UnknownError(Exception):
    """A fact that the values of a layer depend on and its tensors do not state."""


@dataclass(frozen=True)
class _Layer:
    """Shapes, types and values of the tensors of a layer, by the ends of their names, and the settings of the format."""

    name: str
    stored: Mapping[str, Stored]
    read: Callable[[str], NDArray[Any]]
    settings: Mapping[str, Any]

    def has(self, end: str) -> bool:
        return self.name + end in self.stored

    def shape(self, end: str) -> tuple[int, ...]:
        return tuple(self.stored[self.name + end].shape)

    def values(self, end: str) -> NDArray[Any]:
        return self.read(self.name + end)

    def floats(self, end: str) -> NDArray[np.float32]:
        """Return scales; those of another type are exponents, or quantised themselves."""
        if not re.fullmatch(_FLOATS, kind := _plain(self.stored[self.name + end].dtype)):
            raise _UnknownError(f"its scales of type {kind} are not supported")
        return self.values(end).astype(np.float32)

    def setting(self, key: str, default: Any = None, among: tuple[Any, ...] = ()) -> Any:
        """Return what config.json says of the quantisation; raise _UnknownError if it is missing, or none of `among`."""
        of_layer = self.settings.get(self.name)  # MLX lets a layer have settings of its own
        value = (of_layer if isinstance(of_layer, dict) else {}).get(key, self.settings.get(key, default))
        if value is None or (among and value not in among):
            said = "is missing" if value is None else f"is {value!r}, which is not supported"
            raise _UnknownError(f"its {key} in the config.json beside it {said}")
        return value


def _unread(_: _Layer) -> _Reading:
    """Read nothing, for a format that is known by name alone."""
    yield from ()


def _scaled(layer: _Layer) -> _Reading:
    """Read numbers with a scale per tensor, row, group of columns or block."""
    yield layer.shape(".weight")
    weights = layer.values(".weight").astype(np.float32)
    end = next(filter(layer.has, (".SCB", ".weight_scale_inv", ".weight_scale")))
    scales = layer.floats(end) / np.float32(127 if end == ".SCB" else 1)  # SCB: the largest weight of a row
    if layer.has(_ZEROS):
        weights -= _spread(layer, layer.values(_ZEROS).reshape(scales.shape), weights.shape)
    weights *= _spread(layer, scales, weights.shape)
    yield weights


def _spread(layer: _Layer, scales: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return scales as they broadcast with weights of this shape."""
    if scales.size == 1 or scales.shape in ((*shape[:-1], 1), (*shape[:-2], 1, 1)):
        return scales if scales.size > 1 else scales.reshape(())
    if scales.shape == shape[:-1]:
        return scales[..., None]
    if scales.ndim < len(shape):
        raise ValueError
    stated = (
        (1, layer.settings["group_size"]) if "group_size" in layer.settings else layer.settings.get("block_structure")
    )
    rows, columns = layer.setting("weight_block_size", stated)
    if scales.shape != (*shape[:-2], -(-shape[-2] // rows), -(-shape[-1] // columns)):
        raise _UnknownError(f"its scales are not one per block of {rows} x {columns}")
    return scales[..., (np.arange(shape[-2]) // rows)[:, None], np.arange(shape[-1]) // columns]


def _unpacked(words: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return the integers of `bits` bits each along the last axis of an array of words, the lowest bits first."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(stream.reshape(*words.shape[:-1], -1, bits), axis=-1, bitorder="little")[..., 0]


def _grouped(
    codes: NDArray[Any], zeros: NDArray[Any], scales: NDArray[np.float32], groups: NDArray[Any]
) -> NDArray[np.float32]:
    """Return (codes - zeros) * scales, of which zeros and scales are (n_out, n_groups) and `groups` that of each column."""
    weights, groups = codes.astype(np.float32), groups.astype(np.uint32)  # no index counts from the end
    weights -= zeros[..., groups]
    weights *= scales[..., groups]
    return weights


def _compressed(layer: _Layer) -> _Reading:
    """Read the packed integers of compressed-tensors."""
    yield (shape := tuple(map(int, layer.values(".weight_shape"))))
    # Its releases differ in how they pack other numbers of bits.
    bits = layer.setting("num_bits", among=(1, 2, 4, 8))
    codes, scales = _unpacked(layer.values(".weight_packed"), bits)[:, : shape[1]], layer.floats(".weight_scale")
    size = layer.setting("group_size") if scales.size > shape[0] else shape[1]
    groups = layer.values(".weight_g_idx") if layer.has(".weight_g_idx") else np.arange(codes.shape[1]) // size
    zeros = np.full((1, *scales.shape[1:]), 1 << (bits - 1))
    if layer.has(_ZEROS):
        zeros = _unpacked(layer.values(_ZEROS).T, bits)[:, : shape[0]].T
    yield _grouped(codes, zeros, scales, groups)


def _gptq(layer: _Layer) -> _Reading:
    """Read (n_in, n_out), packed along n_in."""
    yield (shape := (layer.shape(".qweight")[1], layer.shape(".g_idx")[0]))
    bits = 32 * layer.shape(".qweight")[0] // shape[1]
    layer.setting("quant_method", among=("gptq",))
    form = layer.setting("checkpoint_format", "gptq", ("gptq", "gptq_v2"))
    # The first version stores zero points less 1.
    zeros = (_unpacked(layer.values(".qzeros"), bits) + np.uint8(form == "gptq")) & np.uint8((1 << bits) - 1)
    codes = _unpacked(layer.values(".qweight").T, bits)
    yield _grouped(codes, zeros.T, layer.floats(".scales").T, layer.values(".g_idx"))


def _awq(layer: _Layer) -> _Reading:
    """Read 4-bit (n_in, n_out), packed along n_out."""
    n_in, words = layer.shape(".qweight")
    yield 8 * words, n_in
    layer.setting("version", "gemm", ("gemm", "GEMM"))
    codes, zeros = (
        _unpacked(layer.values(end), 4).reshape(-1, words, 8)[..., _AWQ_PLACES].reshape(-1, 8 * words).T
        for end in (".qweight", ".qzeros")
    )
    groups = np.arange(n_in) * zeros.shape[1] // n_in
    yield _grouped(codes, zeros, layer.floats(".scales").T, groups)


def _mlx(layer: _Layer) -> _Reading:
    """Read integers with a scale and a bias per group of columns."""
    size = layer.setting("group_size")
    yield (shape := (*layer.shape(".scales")[:-1], layer.shape(".scales")[-1] * size))
    layer.setting("mode", "affine", ("affine",))
    codes = _unpacked(layer.values(".weight"), 32 * layer.shape(".weight")[-1] // shape[-1])
    weights = codes.reshape(*layer.shape(".scales"), size) * layer.floats(".scales")[..., None]
    weights += layer.floats(".biases")[..., None]
    yield weights.reshape(shape)


def _mxfp4(layer: _Layer) -> _Reading:
    """Read 4-bit floats with a power of two per block of columns."""
    *rows, n_blocks, n_bytes = layer.shape("_blocks")
    yield (*rows, 2 * n_blocks * n_bytes)
    packed = layer.values("_blocks")
    weights = _E2M1[np.stack([packed & 15, packed >> 4], axis=-1)]
    weights *= np.ldexp(np.float32(1), layer.values("_scales").astype(np.int32) - 127)[..., None, None]
    yield weights.reshape(*rows, -1)


def _four_bits(layer: _Layer) -> _Reading:
    """Read the 4-bit codes of bitsandbytes, whose scales may be quantised too."""
    end = next(filter(layer.has, (f".weight.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))), None)
    if end is None:
        raise _UnknownError("its quant_state is missing")
    state = parse_json(layer.values(end).tobytes())
    yield (shape := tuple(map(int, state["shape"])))
    scales = layer.values(".weight.absmax")
    if "nested_offset" in state:
        largest = layer.values(".weight.nested_absmax")[np.arange(scales.size) // state["nested_blocksize"]]
        scales = layer.values(".weight.nested_quant_map")[scales] * largest + np.float32(state["nested_offset"])
    packed = layer.values(".weight").reshape(-1).view(np.uint8)
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)[: math.prod(shape)]
    weights = layer.values(".weight.quant_map")[codes] * scales[np.arange(codes.size) // state["blocksize"]]
    yield weights.reshape(shape)


class _Format(NamedTuple):
    """A format: end and type of the packed tensor, ends of those that must be beside it, reader, ends that may be there."""

    name: str
    packed: str
    dtype: str
    beside: tuple[str, ...]
    reader: Callable[[_Layer], _Reading] = _unread
    optional: tuple[str, ...] = ()


_STATES = ("nested_absmax", "nested_quant_map", "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4")
_QUANT_STATE = tuple(f".weight.{state}" for state in _STATES)

# A tensor `scales` alone is not evidence: all tensors of a format must be there, and the packed one of its type.
_FORMATS = (
    _Format("GPTQ", ".qweight", _WORDS, (".qzeros", ".scales", ".g_idx"), _gptq),
    _Format("AWQ", ".qweight", _WORDS, (".qzeros", ".scales"), _awq),
    _Format("GPTQ or AWQ", ".qweight", _INTEGERS, (".scales",)),
    _Format("FP8 with block scales", ".weight", _FLOAT8, (".weight_scale_inv",), _scaled),
    _Format("NVFP4", ".weight", _BYTES, (".weight_scale", ".weight_scale_2")),
    _Format("FP8 with scales", ".weight", _FLOAT8, (".weight_scale",), _scaled, (_ZEROS,)),
    _Format("int8 with scales", ".weight", "int8|i8", (".weight_scale",), _scaled, (_ZEROS,)),
    *(
        _Format(f"{name} with scales", ".weight", dtype, (scale,))
        for name, dtype in (("FP8", _FLOAT8), ("int8", _BYTES))
        for scale in (".weight_scale", ".weight_scales", ".scale_weight", ".scale", ".scales")
    ),
    _Format(
        *("compressed-tensors", ".weight_packed", _WORDS, (".weight_scale", ".weight_shape"), _compressed),
        (_ZEROS, ".weight_g_idx"),
    ),
    _Format("compressed-tensors", ".weight_packed", _INTEGERS, (".weight_scale",)),
    _Format(
        "bitsandbytes 4-bit", ".weight", "uint8|u8", (".weight.absmax", ".weight.quant_map"), _four_bits, _QUANT_STATE
    ),
    _Format("bitsandbytes 4-bit", ".weight", ".*", (".weight.absmax",)),
    _Format("bitsandbytes int8", ".weight", "int8|i8", (".SCB",), _scaled, (".weight_format",)),
    _Format("MLX", ".weight", _WORDS, (".scales", ".biases"), _mlx),
    _Format("MLX", ".weight", _INTEGERS, (".scales",)),
    _Format("MXFP4", "_blocks", "uint8|u8", ("_scales",), _mxfp4),
    _Format("HQQ", ".W_q", _INTEGERS, (".scale", ".zero")),
    _Format("Quanto", ".weight._data", f"{_BYTES}|{_FLOAT8}", (".weight._scale",)),
    _Format("EXL2", ".q_weight", _INTEGERS, (".q_scale",)),
    _Format("AQLM", ".codes", _INTEGERS, (".codebooks",)),
    *(_Format("FP8 with scales", "", _FLOAT8, (scale,)) for scale in ("_scale_inv", "_scale")),  # stacked experts
)


class Contents(NamedTuple):
    """Tensors of a checkpoint, with the weights in place of what they are stored as, and functions of their values."""

    tensors: dict[str, Stored]
    dequantised: dict[str, Callable[[], NDArray[np.float32]]]


def dequantise(
    stored: Mapping[str, Stored], read: Callable[[str], NDArray[Any]], folder: Path | None, where: str
) -> Contents:
    """Return the contents of a checkpoint of these stored tensors, whose values `read` returns by name.

    The config.json in `folder` tells what the tensors do not. Raise UserError, prefixed with `where`, for weights that
    cannot be dequantised.
    """
    settings: dict[str, Any] | None = None
    contents, parts = Contents({}, {}), set[str]()
    for name, tensor in stored.items():
        for form in _FORMATS:
            layer = name.removesuffix(form.packed)
            is_of_type = name.endswith(form.packed) and re.fullmatch(form.dtype, _plain(tensor.dtype))
            if is_of_type and all(layer + end in stored for end in form.beside):
                settings = _settings(folder) if settings is None else settings
                reader = form.reader(_Layer(layer, stored, read, settings))
                evidence = f"{name} is {tensor.dtype} beside {layer}{form.beside[0]}"
                about = f"{where}quantised weights ({form.name}: {evidence})"
                shape = _next(reader, about, most=32 * math.prod(tensor.shape))  # a word is at most 32 weights
                weight = layer if form.packed == "_blocks" else f"{layer}.weight"
                contents.tensors[weight] = Stored(shape, "F32", form.name)
                contents.dequantised[weight] = partial(_next, reader, about, shape)
                parts.update(layer + end for end in (form.packed, *form.beside, *form.optional))
                break
    plain = {name: tensor for name, tensor in stored.items() if name not in parts}
    if not contents.tensors:
        _refuse_unknown_format(plain, folder, where)
    return contents._replace(tensors=plain | contents.tensors)


def _refuse_unknown_format(stored: Mapping[str, Stored], folder: Path | None, where: str) -> None:
    """Raise UserError if config.json says that the weights are quantised, and integers are more than 1% of them."""
    sizes = {name: math.prod(tensor.shape) for name, tensor in stored.items()}
    packed = {name: sizes[name] for name, tensor in stored.items() if re.fullmatch(_INTEGERS, _plain(tensor.dtype))}
    if sum(packed.values()) > 0.01 * sum(sizes.values()) and (method := _settings(folder).get("quant_method")):
        largest = max(packed, key=packed.__getitem__)
        raise UserError(
            f"{where}quantised weights (quant_method {method} in its config.json, and {largest} is {stored[largest].dtype})"
            f" in a format that is not read; {_DEQUANTISE}"
        )


def _next(reader: _Reading, about: str, shape: tuple[int, ...] = (), most: int = 0) -> Any:
    """Return what a reader yields next, values of this shape or a shape of at most so many; else raise UserError."""
    reason = "; its tensors do not fit together"
    try:
        with np.errstate(divide="raise"):  # a size of 0
            values = next(reader)
        if shape:
            reader.close()  # it holds what it read
        if values.shape == shape if shape else min(values, default=0) > 0 and math.prod(values) <= most:
            return values
    except StopIteration:
        reason = ""
    except _UnknownError as error:
        reason = f"; {error}"
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        pass
    raise UserError(f"{about}, whose stored numbers are not the weights{reason}; {_DEQUANTISE}")


def _settings(folder: Path | None) -> dict[str, Any]:
    """Return what the config.json in a folder says of the quantisation; {} if it says nothing."""
    config = read_noted(folder / "config.json") if folder else {}
    said = (config.get(key) for key in ("quantization_config", "compression_config", "quantization"))
    settings = dict(next((one for one in said if isinstance(one, dict)), {}))
    if settings.get("quant_method") == "fp8":  # transformers' block if none is stated
        settings.setdefault("weight_block_size", [128, 128])
    groups = settings.get("config_groups")
    groups = groups.values() if isinstance(groups, dict) else ()
    schemes = [group.get("weights") for group in groups if isinstance(group, dict)]
    # Different schemes of one file belong to layers of other names.
    if schemes and isinstance(schemes[0], dict) and all(scheme == schemes[0] for scheme in schemes):
        settings |= {key: value for key, value in schemes[0].items() if value is not None}
    return settings


def _plain(dtype: str) -> str:
    return dtype.lower().removeprefix("torch.")
