"""Quantised weights are refused by name, and never measured as weights."""

import json

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import toposcale
from toposcale import checkpoints
from toposcale.checkpoints.language_models import load_model
from toposcale.io.errors import UserError
from toposcale.io.not_weights import refuse_quantised
from toposcale.io.tensor_files import Stored

LAYER = "model.layers.0.self_attn.q_proj"
NORM = "model.norm.weight"

MARKS = {
    "GPTQ": {"qweight": "I32", "qzeros": "I32", "scales": "F16", "g_idx": "I32"},
    "AWQ": {"qweight": "I32", "qzeros": "I32", "scales": "F16"},
    "GPTQ or AWQ": {"qweight": "I32", "scales": "F16"},
    "FP8 with block scales": {"weight": "F8_E4M3", "weight_scale_inv": "F32"},
    "FP8 with scales": {"weight": "torch.float8_e4m3fn", "scale_weight": "torch.bfloat16"},
    "int8 with scales": {"weight": "I8", "weight_scale": "BF16", "weight_zero_point": "I8"},
    "NVFP4": {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32"},
    "compressed-tensors": {"weight_packed": "I32", "weight_scale": "BF16", "weight_shape": "I64"},
    "bitsandbytes 4-bit": {"weight": "U8", "weight.absmax": "F32", "weight.quant_map": "F32"},
    "bitsandbytes int8": {"weight": "I8", "SCB": "F32"},
    "MLX": {"weight": "U32", "scales": "BF16", "biases": "BF16"},
    "HQQ": {"W_q": "U8", "scale": "F16", "zero": "F16"},
    "Quanto": {"weight._data": "I8", "weight._scale": "F32"},
    "EXL2": {"q_weight": "I32", "q_scale": "I32"},
    "AQLM": {"codes": "I16", "codebooks": "F16"},
}


def stored(types):
    return {name: Stored((8, 8), kind) for name, kind in types.items()}


@pytest.mark.parametrize("name", MARKS)
def test_refuse_quantised_a_format_is_refused_by_its_name(name):
    types = {NORM: "F32"} | {f"{LAYER}.{end}": kind for end, kind in MARKS[name].items()}
    with pytest.raises(UserError) as caught:
        refuse_quantised(stored(types), None, "x: ")
    assert str(caught.value).startswith(f"x: quantised ({name}: {LAYER}.")
    assert "dequantise it with" in str(caught.value)


@pytest.mark.parametrize(
    ("types", "name"),
    [
        ({"experts.gate_up_proj": "F8_E4M3", "experts.gate_up_proj_scale": "F32"}, "FP8 with scales"),
        ({"experts.gate_up_proj": "F8_E4M3", "experts.gate_up_proj_scale_inv": "F32"}, "FP8 with scales"),
        ({"experts.gate_up_proj_blocks": "U8", "experts.gate_up_proj_scales": "U8"}, "MXFP4"),
    ],
)
def test_refuse_quantised_quantised_stacks_of_experts_refused(types, name):
    with pytest.raises(UserError, match=rf"^quantised \({name}: experts\.gate_up_proj"):
        refuse_quantised(stored(types), None, "")


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
def test_refuse_quantised_accepts_scales_without_packed_weights(types):
    refuse_quantised(stored(types), None, "")


def test_refuse_quantised_unknown_format_by_its_configuration(tmp_path):
    """Where it names none, integers are left out with a note, and few integers are not weights."""
    types = {NORM: "F32", "q_proj.B": "I32", "q_proj.s": "F16"}
    refuse_quantised(stored(types), tmp_path, "x: ")
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "marlin"}}')
    with pytest.raises(UserError, match=r"^x: quantised \(quant_method marlin .*, and q_proj\.B is I32\)"):
        refuse_quantised(stored(types), tmp_path, "x: ")
    refuse_quantised({NORM: Stored((64, 64), "F32"), "position_ids": Stored((1, 8), "I64")}, tmp_path, "x: ")


def gptq():
    return {
        f"{LAYER}.qweight": torch.ones(4, 32, dtype=torch.int32),
        f"{LAYER}.qzeros": torch.ones(2, 4, dtype=torch.int32),
        f"{LAYER}.scales": torch.ones(2, 32, dtype=torch.float16),
        f"{LAYER}.g_idx": torch.zeros(32, dtype=torch.int32),
    }


def fp8():
    values = np.eye(32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return {
        f"{LAYER}.weight": torch.from_numpy(values).view(torch.float8_e4m3fn),
        f"{LAYER}.weight_scale_inv": torch.full((2, 2), 1e-3),
    }


FILES = {"GPTQ": ("gptq", gptq), "FP8 with block scales": ("fp8", fp8)}


@pytest.fixture(params=FILES)
def quantised(request, tmp_path):
    """Name of a format, a folder with a quantised layer next to plain ones, and its tensors."""
    method, make = FILES[request.param]
    tensors = {"lm_head.weight": torch.ones(96, 32), NORM: torch.ones(32), **make()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))
    return request.param, tmp_path, tensors


def test_checkpoint_refuses_to_measure_or_count_quantised(quantised):
    name, folder, tensors = quantised
    readers = (
        lambda source: list(checkpoints.Checkpoint(source).matrices()),
        lambda source: checkpoints.Checkpoint(source).sizes,
        toposcale.describe,
        lambda source: toposcale.compare(source, source),
        load_model,
    )
    for reader in readers:
        with pytest.raises(UserError, match=rf"^{folder}: quantised \({name}: {LAYER}"):
            reader(folder)
    for file in (folder / "model.safetensors", tensors):
        with pytest.raises(UserError, match=rf"quantised \({name}: {LAYER}"):
            toposcale.describe(file)


def test_inspect_a_run_reads_a_quantised_checkpoint_as_missing(quantised):
    name, folder, _ = quantised
    assert checkpoints.inspect(folder).unusable.startswith(f"{folder}: quantised ({name}: ")
