"""Recognise quantised weights by the tensors stored with them, and refuse them: what is stored is not the weights."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from toposcale.io.errors import UserError
from toposcale.io.files import read_noted
from toposcale.io.tensor_files import Stored

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


# The first that fits counts. A tensor `scales` is no evidence: the packed one must be of its type.
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
