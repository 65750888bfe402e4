"""Recognise and refuse quantised weights, whose stored numbers are not the weights."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from toposcale.io.errors import UserError


class _Format(NamedTuple):
    """A format of quantised layers: suffix and type of the packed tensor, and suffixes of the tensors beside it."""

    name: str
    packed: str
    dtype: str
    beside: tuple[str, ...]


_INTEGERS, _BYTES, _FLOAT8 = r"u?int(4|8|16|32|64)|[ui]\d+", r"u?int8|[ui]8", r"float8.*|f8.*"

# A tensor `scales` alone is not evidence: all tensors of a format must be there, and the packed one of its type.
_FORMATS = (
    _Format("GPTQ", ".qweight", _INTEGERS, (".qzeros", ".scales", ".g_idx")),
    _Format("AWQ", ".qweight", _INTEGERS, (".qzeros", ".scales")),
    _Format("GPTQ or AWQ", ".qweight", _INTEGERS, (".scales",)),
    _Format("FP8 with block scales", ".weight", _FLOAT8, (".weight_scale_inv",)),
    _Format("NVFP4", ".weight", _BYTES, (".weight_scale", ".weight_scale_2")),
    *(
        _Format(f"{name} with scales", ".weight", dtype, (scale,))
        for name, dtype in (("FP8", _FLOAT8), ("int8", _BYTES))
        for scale in (".weight_scale", ".weight_scales", ".scale_weight", ".scale", ".scales")
    ),
    _Format("compressed-tensors", ".weight_packed", _INTEGERS, (".weight_scale",)),
    _Format("bitsandbytes 4-bit (NF4 or FP4)", ".weight", _BYTES, (".weight.absmax", ".weight.quant_map")),
    _Format("bitsandbytes int8", ".weight", _BYTES, (".SCB",)),
    _Format("MLX", ".weight", _INTEGERS, (".scales",)),
    _Format("MXFP4", "_blocks", _BYTES, ("_scales",)),
    _Format("HQQ", ".W_q", _INTEGERS, (".scale", ".zero")),
    _Format("Quanto", ".weight._data", f"{_BYTES}|{_FLOAT8}", (".weight._scale",)),
    _Format("EXL2", ".q_weight", _INTEGERS, (".q_scale",)),
    _Format("AQLM", ".codes", _INTEGERS, (".codebooks",)),
)


def refuse_quantised(types: Mapping[str, str], where: str) -> None:
    """Raise UserError, prefixed with `where`, if tensors of these names and types are quantised weights."""
    for name, dtype in types.items():
        plain = dtype.lower().removeprefix("torch.")
        for form in _FORMATS:
            layer = name.removesuffix(form.packed)
            if layer != name and re.fullmatch(form.dtype, plain) and all(layer + end in types for end in form.beside):
                raise UserError(
                    f"{where}quantised weights ({form.name}: {name} is {dtype} beside {layer}{form.beside[0]}), whose "
                    "stored numbers are not the weights; dequantise them first (transformers: load, model.dequantize(), "
                    "save_pretrained), or name the checkpoint from which they were made"
                )
