"""Quantised weights are read as the libraries that write them read them, or refused by name."""

import gc
import json
import runpy
import shutil
import weakref
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import load_file, save_file

import toposcale
from toposcale import checkpoints
from toposcale.checkpoints.language_models import load_model
from toposcale.checkpoints.matrices import stored_tensors
from toposcale.checkpoints.quantised import dequantise
from toposcale.io.errors import UserError
from toposcale.io.tensor_files import Stored

STORED = Path(__file__).parent / "quantised"
MAKE = runpy.run_path(str(STORED / "make.py"))
LAYER = MAKE["LAYER"]
FOLDERS = sorted(folder.name for folder in STORED.iterdir() if (folder / "config.json").exists())
# The libraries round in float32 in another order than (code * scale) in one product.
ROUNDING = 2.0**-22


def read(folder):
    return dict(checkpoints.iterate_matrices(folder))


def copy(name, folder, config=None, **changed):
    """Copy a stored layer with some tensors changed (None: removed), and with another config.json."""
    tensors = safetensors.torch.load_file(STORED / name / "model.safetensors")
    tensors |= {f"{LAYER}.{end}": None if value is None else torch.from_numpy(value) for end, value in changed.items()}
    kept = {key: value for key, value in tensors.items() if value is not None}
    safetensors.torch.save_file(kept, folder / "model.safetensors")
    said = json.loads((STORED / name / "config.json").read_text()) if config is None else config
    (folder / "config.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize("name", FOLDERS)
def test_the_values_are_those_of_the_library_that_wrote_the_file(name):
    values = read(STORED / name)
    assert values.keys() == {f"{LAYER}.weight"}
    expected = np.load(STORED / name / "values.npy")
    np.testing.assert_allclose(values[f"{LAYER}.weight"], expected, rtol=ROUNDING, atol=0, strict=True)
    # They are near the weights that were quantised, and not on another scale or in another order.
    error = np.linalg.norm(expected - MAKE["weight"]()) / np.linalg.norm(expected)
    assert error < 0.15
    assert checkpoints.count_parameters(STORED / name) == expected.size
    assert toposcale.describe(STORED / name).attrs["notes"][0].startswith("dequantised: 1 weight (")


@pytest.mark.parametrize("name", MAKE["WRITERS"])
def test_the_values_are_those_of_an_installed_library(name, tmp_path):
    library, write = MAKE["WRITERS"][name]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    MAKE["save"](tmp_path, *write())
    expected = np.load(tmp_path / "values.npy")
    np.testing.assert_allclose(read(tmp_path)[f"{LAYER}.weight"], expected, rtol=ROUNDING, atol=0, strict=True)


def test_mxfp4_experts_are_those_of_transformers(tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (3, 8, 2, 16), dtype=np.uint8)
    scales = random.integers(110, 130, (3, 8, 2), dtype=np.uint8)
    named = {"mlp.experts.gate_up_proj_blocks": blocks, "mlp.experts.gate_up_proj_scales": scales}
    save_file(named, tmp_path / "model.safetensors")
    values = read(tmp_path)
    expected = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    assert values.keys() == {f"mlp.experts.gate_up_proj.{expert}" for expert in range(3)}
    for expert in range(3):
        # transformers turns them round: (expert, n_in, n_out).
        np.testing.assert_array_equal(values[f"mlp.experts.gate_up_proj.{expert}"], expected[expert].T.numpy())


def fp8(rows, columns, *leading):
    weights = np.random.default_rng(1).standard_normal((*leading, rows, columns)).astype(ml_dtypes.float8_e4m3fn)
    return weights, weights.astype(np.float64)


def write_fp8(folder, weights, scales, config, end="weight_scale_inv"):
    stored = torch.from_numpy(weights.view(np.uint8)).view(torch.float8_e4m3fn)
    tensors = {f"{LAYER}.weight": stored, f"{LAYER}.{end}": torch.from_numpy(scales)}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 24]}}


@pytest.mark.parametrize("leading", [(), (2,)])
def test_a_block_that_is_cut_by_the_edge_has_its_own_scale(tmp_path, leading):
    weights, expected = fp8(40, 60, *leading)
    scales = np.random.default_rng(2).uniform(1, 2, (*leading, 3, 3)).astype(np.float32)
    for row in range(3):
        for column in range(3):
            block = (..., slice(16 * row, 16 * row + 16), slice(24 * column, 24 * column + 24))
            expected[block] *= scales[..., row, column, None, None]
    write_fp8(tmp_path, weights, scales, BLOCKS)
    values = list(read(tmp_path).values())
    np.testing.assert_allclose(np.reshape(values, expected.shape), expected, rtol=1e-7)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (40,), (40, 1)])
def test_scales_per_tensor_or_row_need_no_configuration(tmp_path, shape):
    weights, expected = fp8(40, 60)
    scales = np.random.default_rng(2).uniform(1, 2, shape).astype(np.float32)
    write_fp8(tmp_path, weights, np.asarray(scales), {}, end="weight_scale")
    (tmp_path / "config.json").unlink()
    expected *= np.reshape(scales, (-1, 1))
    np.testing.assert_allclose(read(tmp_path)[f"{LAYER}.weight"], expected, rtol=1e-7)
    np.testing.assert_allclose(read(tmp_path / "model.safetensors")[f"{LAYER}.weight"], expected, rtol=1e-7)


def test_blocks_of_fp8_are_128_wide_where_nothing_else_is_stated(tmp_path):
    weights, expected = fp8(130, 10)
    scales = np.array([[1.0], [3.0]], np.float32)
    write_fp8(tmp_path, weights, scales, {"quantization_config": {"quant_method": "fp8"}})
    expected[128:] *= 3
    np.testing.assert_allclose(read(tmp_path)[f"{LAYER}.weight"], expected, rtol=1e-7)


def test_parts_of_a_layer_may_be_in_two_shards_and_one_layer_is_in_memory_at_a_time(tmp_path):
    names = {}
    for block in range(3):
        for shard, (name, values) in enumerate(sorted(load_file(STORED / "gptq/model.safetensors").items())):
            names.setdefault(f"model-0000{shard + 1}-of-00004.safetensors", {})[name.replace("0", str(block))] = values
    for file, tensors in names.items():
        save_file(tensors, tmp_path / file)
    index = {"weight_map": {name: file for file, tensors in names.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copy(STORED / "gptq/config.json", tmp_path)
    expected, before, n = np.load(STORED / "gptq/values.npy"), None, 0
    for _, values in checkpoints.iterate_matrices(tmp_path):
        np.testing.assert_array_equal(values, expected)
        gc.collect()
        assert before is None or before() is None
        before, n = weakref.ref(values.base), n + 1
        del values
    assert n == 3


def test_an_adapted_layer_of_mlx_has_its_own_width(tmp_path):
    config = {"quantization": {"group_size": 64, "bits": 8, LAYER: {"group_size": 32, "bits": 4}}}
    copy("mlx", tmp_path, config)
    np.testing.assert_array_equal(read(tmp_path)[f"{LAYER}.weight"], np.load(STORED / "mlx/values.npy"))


def test_the_second_version_of_gptq_stores_the_zero_points_themselves(tmp_path):
    config = json.loads((STORED / "gptq/config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    copy("gptq", tmp_path, config)
    tensors = load_file(STORED / "gptq/model.safetensors")
    scales = tensors[f"{LAYER}.scales"].astype(np.float32).T[:, tensors[f"{LAYER}.g_idx"]]
    # No zero point of this layer is 0, which the first version would store as 15.
    np.testing.assert_allclose(
        read(tmp_path)[f"{LAYER}.weight"], np.load(STORED / "gptq/values.npy") + scales, atol=1e-7
    )


def test_compare_says_which_of_the_two_was_dequantised(tmp_path):
    save_file({f"{LAYER}.weight": np.load(STORED / "gptq/values.npy")}, tmp_path / "model.safetensors")
    for table in (toposcale.compare(STORED / "gptq", tmp_path), toposcale.changes_of(STORED / "gptq", tmp_path)):
        assert table.attrs["notes"] == ["before: dequantised: 1 weight (GPTQ)"]
    assert toposcale.compare(tmp_path, STORED / "gptq").attrs["notes"] == ["dequantised: 1 weight (GPTQ)"]
    assert toposcale.compare(STORED / "gptq", tmp_path).loc[f"{LAYER}.weight", "frobenius_norm"] == 0


def test_arrays_in_memory_are_dequantised_too():
    named = load_file(STORED / "int8_channel/model.safetensors")
    expected = np.linalg.norm(np.load(STORED / "int8_channel/values.npy").astype(np.float64))
    for tensors in (named, {name: torch.from_numpy(values) for name, values in named.items()}):
        table = toposcale.describe(tensors)
        assert table.loc[f"{LAYER}.weight", "frobenius_norm"] == pytest.approx(expected, rel=1e-6)
        assert table.attrs["notes"] == ["dequantised: 1 weight (int8 with scales)"]


def test_a_model_is_not_run_with_quantised_weights():
    with pytest.raises(UserError, match=r"quantised weights \(GPTQ\) can be described, but the model is not run"):
        load_model(STORED / "gptq")


INT = np.int32
# What is missing or contradicts the rest, and a word of the reason.
MISFITS = {
    "mlx": [
        ({}, {}, "its group_size in the config.json beside it is missing"),
        ({"quantization": {"group_size": "x"}}, {}, "do not fit together"),
        ({"quantization": {"group_size": 24}}, {}, "do not fit together"),
        ({"quantization": {"group_size": 1 << 60}}, {}, "do not fit together"),
        ({"quantization": {"group_size": 32, "mode": "mxfp8"}}, {}, "its mode .* is 'mxfp8', which is not supported"),
        (None, {"biases": np.ones((32, 3), np.float16)}, "do not fit together"),
    ],
    "gptq": [
        ({}, {}, "its quant_method in the config.json beside it is missing"),
        (None, {"g_idx": np.full(64, -1, INT)}, "do not fit together"),
        (None, {"g_idx": np.full(64, 9, INT)}, "do not fit together"),
        (None, {"g_idx": np.zeros(63, INT)}, "do not fit together"),
        (None, {"qzeros": np.zeros((2, 3), INT)}, "do not fit together"),
        (None, {"scales": np.ones((2, 32), np.int8)}, "its scales of type i8 are not supported"),
        ({"quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"}}, {}, "is 'marlin'"),
    ],
    "awq": [
        ({"quantization_config": {"version": "gemv"}}, {}, "its version .* is 'gemv'"),
        (None, {"qzeros": np.zeros((2, 3), INT)}, "do not fit together"),
        (None, {"scales": np.ones((2, 33), np.float16)}, "do not fit together"),
    ],
    "fp8_block": [
        ({}, {}, "its weight_block_size in the config.json beside it is missing"),
        ({"quantization_config": {"weight_block_size": [16, 16]}}, {}, "not one per block of 16 x 16"),
        ({"quantization_config": {"weight_block_size": [0, 16]}}, {}, "do not fit together"),
        ({"quantization_config": {"weight_block_size": 16}}, {}, "do not fit together"),
        (None, {"weight_scale": np.ones((2, 2), np.uint8)}, "its scales of type u8 are not supported"),
    ],
    "int4_group_zeros": [
        ({"quantization_config": {"num_bits": 4, "group_size": 0}}, {}, "do not fit together"),
        ({}, {}, "its num_bits in the config.json beside it is missing"),
        ({"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 3}}}}}, {}, "its num_bits .* is 3"),
        (
            {"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 4}}}}},
            {},
            "its group_size .* is missing",
        ),
        *(
            ({"quantization_config": {"config_groups": groups}}, {}, "its num_bits .* is missing")
            for groups in ([1], {}, {"a": 1}, {"a": {}}, {"a": {"weights": [4]}})
        ),
        (
            {
                "quantization_config": {
                    "config_groups": {n: {"weights": {"num_bits": n, "group_size": 32}} for n in (4, 8)}
                }
            },
            {},
            "its num_bits .* is missing",
        ),
        (None, {"weight_shape": np.array([1 << 40, 1 << 40])}, "do not fit together"),
        (None, {"weight_shape": np.array([-32, -64])}, "do not fit together"),
        (None, {"weight_shape": np.array([16, 64])}, "do not fit together"),
    ],
    "bitsandbytes_int8": [(None, {"SCB": np.ones(31, np.float32)}, "do not fit together")],
    "bitsandbytes_nf4_nested": [
        (None, {"weight.quant_state.bitsandbytes__nf4": None}, "its quant_state is missing"),
        (None, {"weight.quant_state.bitsandbytes__nf4": np.zeros(9, np.uint8)}, "do not fit together"),
        *(
            (
                None,
                {"weight.quant_state.bitsandbytes__nf4": np.frombuffer(state, np.uint8).copy()},
                "do not fit together",
            )
            for state in (b'{"shape": []}', b'{"shape": [1e9, 1e9]}', b'{"shape": [32, 64], "blocksize": 0}')
        ),
        (None, {"weight.absmax": np.zeros(31, np.uint8)}, "do not fit together"),
        (None, {"weight.quant_map": None}, "whose stored numbers are not the weights; dequantise"),
    ],
}


@pytest.mark.parametrize(
    ("name", "config", "changed", "reason"), [(name, *case) for name, cases in MISFITS.items() for case in cases]
)
def test_what_does_not_fit_together_is_refused_by_name(tmp_path, name, config, changed, reason):
    copy(name, tmp_path, config, **changed)
    for use in (read, toposcale.describe):
        with pytest.raises(UserError, match=reason) as caught:
            use(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path}: quantised weights (")
        assert "dequantise them first (transformers: load" in str(caught.value)


def test_a_damaged_configuration_is_none(tmp_path):
    copy("mlx", tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"its group_size in the config\.json beside it is missing"):
        read(tmp_path)


REFUSED = {
    "GPTQ or AWQ": {"qweight": "I32", "scales": "F16"},
    "FP8 with scales": {"weight": "torch.float8_e4m3fn", "scale_weight": "torch.bfloat16"},
    "MLX": {"weight": "U32", "scales": "U8"},
    "compressed-tensors": {"weight_packed": "U8", "weight_scale": "F8_E4M3", "weight_global_scale": "F32"},
    "int8 with scales": {"weight": "I8", "scale": "F32"},
    "NVFP4": {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32"},
    "bitsandbytes 4-bit": {"weight": "BF16", "weight.absmax": "F32", "weight.quant_map": "F32"},
    "HQQ": {"W_q": "U8", "scale": "F16", "zero": "F16"},
}


def tensors_of(types):
    return {name: Stored((8, 8), kind) for name, kind in types.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_other_formats_are_refused_by_name(name):
    types = {"norm.weight": "F32"} | {f"layers.0.q_proj.{end}": kind for end, kind in REFUSED[name].items()}
    with pytest.raises(UserError, match=r"^x: quantised weights \(") as caught:
        dequantise(tensors_of(types), {}.__getitem__, None, "x: ")
    assert f"({name}: layers.0.q_proj." in str(caught.value)
    assert "stored numbers are not the weights; dequantise" in str(caught.value)


@pytest.mark.parametrize("end", ["_scale", "_scale_inv"])
def test_stacked_experts_in_fp8_with_scales_are_refused(end):
    types = {"experts.gate_up_proj": "F8_E4M3", f"experts.gate_up_proj{end}": "F32"}
    with pytest.raises(UserError, match=rf"experts\.gate_up_proj is F8_E4M3 beside experts\.gate_up_proj{end}\)"):
        dequantise(tensors_of(types), {}.__getitem__, None, "x: ")


def test_an_unknown_format_that_the_configuration_names_is_refused(tmp_path):
    """Where the configuration names none, integers are left out with a note."""
    types = {"norm.weight": "F32", "q_proj.B": "I32", "q_proj.s": "F16"}
    assert dequantise(tensors_of(types), {}.__getitem__, tmp_path, "x: ").tensors == tensors_of(types)
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "marlin"}}')
    with pytest.raises(UserError, match=r"^x: quantised weights \(quant_method marlin .*, and q_proj\.B is I32\)"):
        dequantise(tensors_of(types), {}.__getitem__, tmp_path, "x: ")
    few = {"norm.weight": Stored((64, 64), "F32"), "position_ids": Stored((1, 8), "I64")}
    assert dequantise(few, {}.__getitem__, tmp_path, "x: ").tensors == few


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
    contents = dequantise(tensors_of(types), {}.__getitem__, None, "")
    assert contents.tensors == tensors_of(types)
    assert not contents.dequantised


def test_scales_are_not_layers():
    assert stored_tensors(STORED / "gptq").keys() == {f"{LAYER}.weight"}
    assert list(toposcale.describe(STORED / "gptq").index) == [f"{LAYER}.weight", "all"]
