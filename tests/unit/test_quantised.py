"""Quantised weights are refused by name, and ordinary tensors with such names are not."""

import numpy as np
import pytest

import toposcale
from toposcale.checkpoints.quantised import refuse_quantised
from toposcale.io.errors import UserError

CASES = {
    "FP8 with block scales": {"weight": "F8_E4M3", "weight_scale_inv": "F32"},
    "FP8 with scales": {"weight": "torch.float8_e4m3fn", "weight_scale": "torch.bfloat16"},
    "GPTQ": {"qweight": "I32", "qzeros": "I32", "scales": "F16", "g_idx": "I32"},
    "AWQ": {"qweight": "I32", "qzeros": "I32", "scales": "F16"},
    "MLX": {"weight": "U32", "scales": "BF16", "biases": "BF16"},
    "bitsandbytes 4-bit (NF4 or FP4)": {"weight": "U8", "weight.absmax": "F32", "weight.quant_map": "F32"},
    "bitsandbytes int8": {"weight": "I8", "SCB": "F32"},
    "MXFP4": {"gate_up_proj_blocks": "U8", "gate_up_proj_scales": "U8"},
    "compressed-tensors": {"weight_packed": "I32", "weight_scale": "F16"},
    "int8 with scales": {"weight": "I8", "weight_scale": "F32"},
    "NVFP4": {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32"},
}


@pytest.mark.parametrize("name", CASES)
def test_each_format_is_named(name):
    types = {"norm.weight": "F32"} | {f"layers.0.q_proj.{end}": kind for end, kind in CASES[name].items()}
    with pytest.raises(UserError, match=r"^x: quantised weights \(") as caught:
        refuse_quantised(types, "x: ")
    assert f"({name}: layers.0.q_proj." in str(caught.value)
    assert "dequantise" in str(caught.value)


@pytest.mark.parametrize(
    "types",
    [
        {"blocks.weight": "F32", "blocks.scales": "F32", "blocks.biases": "F32"},
        {"attn.weight": "F32", "attn.weight_scale": "F32"},
        {"attn.weight": "F8_E4M3", "norm.scale": "F32"},
        {"experts_scales": "F32", "experts_blocks": "F32"},
        {"a.qweight": "I32", "b.scales": "F16"},
        {"weight": "U8", "bias": "F32"},
    ],
)
def test_scales_without_packed_weights_are_tensors_like_others(types):
    refuse_quantised(types, "")


def test_arrays_in_memory_are_refused_too():
    named = {"a.weight": np.ones((4, 4), np.uint32), "a.scales": np.ones((4, 1)), "a.biases": np.ones((4, 1))}
    with pytest.raises(UserError, match=r"quantised weights \(MLX"):
        toposcale.describe(named)
