"""Write the fixtures of this folder with the libraries that write the formats: python make.py [FORMAT ...]."""

import importlib
import importlib.util
import json
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
LAYER = "model.layers.0.mlp.up_proj"
ROWS, COLUMNS = 32, 64


def weight(rows=ROWS, columns=COLUMNS):
    """Return weights of a small layer, with rows of different sizes, that float16 holds."""
    random = np.random.default_rng(7)
    return (
        (random.standard_normal((rows, columns)) * random.uniform(0.01, 0.1, (rows, 1)))
        .astype(np.float16)
        .astype(np.float32)
    )


def _module(package, path):
    """Import a module of a package without the package's own imports, which need a GPU or old releases of others."""
    folder = Path(importlib.util.find_spec(package).submodule_search_locations[0])
    parts = path.split(".")
    for index in range(len(parts)):
        name = ".".join([package, *parts[:index]])
        if name not in sys.modules:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(folder.joinpath(*parts[:index]))]
            sys.modules[name] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.{path}")


def gptq(bits=4):
    import torch

    linear, group = torch.nn.Linear(COLUMNS, ROWS, bias=False), 32
    linear.weight.data = torch.from_numpy(weight())
    grouped = linear.weight.data.reshape(ROWS, -1, group)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).half().float()
    zeros = torch.round(-low / scales).clamp(1, 2**bits - 1)
    layer = _module("auto_gptq", "nn_modules.qlinear.qlinear_cuda_old").QuantLinear(
        bits, group, COLUMNS, ROWS, bias=False, weight_dtype=torch.float32
    )
    layer.pack(linear, scales, zeros.clone(), None)
    values = layer(torch.eye(COLUMNS)).T
    tensors = {f"{LAYER}.{name}": tensor for name, tensor in layer.state_dict().items()}
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": False}
    return tensors, {"quantization_config": config}, values


def awq():
    import torch

    linear, group = torch.nn.Linear(COLUMNS, ROWS, bias=False), 32
    linear.weight.data = torch.from_numpy(weight())
    grouped = linear.weight.data.reshape(ROWS, -1, group)
    low, high = grouped.amin(-1), grouped.amax(-1)
    scales = ((high - low) / 15).half().float()
    zeros = torch.round(-low / scales).clamp(0, 15)
    gemm = _module("awq", "modules.linear.gemm").WQLinear_GEMM
    layer = gemm.from_linear(linear, 4, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
    unpack = _module("awq", "utils.packing_utils").dequantize_gemm
    values = unpack(layer.qweight, layer.qzeros, layer.scales.float(), 4, group).T
    tensors = {f"{LAYER}.{name}": tensor for name, tensor in layer.state_dict().items()}
    return tensors, {"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemm"}}, values


def mlx(bits=4, group=32):
    import mlx.core as mx
    import torch

    packed, scales, biases = mx.quantize(mx.array(weight()).astype(mx.float16), group_size=group, bits=bits)
    # In float32, since mlx would round its values to float16.
    values = mx.dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits)
    named = {"weight": packed, "scales": scales, "biases": biases}
    tensors = {f"{LAYER}.{name}": torch.from_numpy(np.array(array)) for name, array in named.items()}
    return tensors, {"quantization": {"group_size": group, "bits": bits}}, np.array(values)


def _compressed(settings):
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    arguments = QuantizationArgs(**settings["weights"])
    compressor = BaseCompressor.get_value_from_registry(settings["format"])
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    values, (rows, columns) = torch.from_numpy(weight()), settings["grid"]
    blocks = values.reshape(rows, ROWS // rows, columns, COLUMNS // columns)
    low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    top = 448 if arguments.type == "float" else 2 ** (arguments.num_bits - 1) - 1
    state = {"weight": values, "weight_scale": torch.maximum(-low, high) / top}
    if not arguments.symmetric:
        state["weight_scale"] = (high - low) / (2 * top + 1)
        state["weight_zero_point"] = torch.round(-low / state["weight_scale"] - top - 1).to(torch.int8)
    if settings["grid"] == (1, 1):
        state = {name: tensor if name == "weight" else tensor.reshape(1) for name, tensor in state.items()}
    stored = compressor.compress(state, scheme)
    restored = compressor.decompress(stored, scheme)["weight"].float()
    tensors = {f"{LAYER}.{name}": tensor for name, tensor in stored.items()}
    groups = {"group_0": {"targets": ["Linear"], "weights": json.loads(arguments.model_dump_json())}}
    config = {"quant_method": "compressed-tensors", "format": settings["format"], "config_groups": groups}
    return tensors, {"quantization_config": config}, restored


def fp8_tensor():
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
    return _compressed({"format": "float-quantized", "grid": (1, 1), "weights": weights})


def fp8_channel():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    return _compressed({"format": "float-quantized", "grid": (ROWS, 1), "weights": weights})


def fp8_block():
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32], "symmetric": True}
    return _compressed({"format": "float-quantized", "grid": (2, 2), "weights": weights})


def int8_channel():
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}
    return _compressed({"format": "int-quantized", "grid": (ROWS, 1), "weights": weights})


def int4_group():
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    return _compressed({"format": "pack-quantized", "grid": (ROWS, 2), "weights": weights})


def int4_group_zeros():
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}
    return _compressed({"format": "pack-quantized", "grid": (ROWS, 2), "weights": weights})


def bitsandbytes_int8():
    import bitsandbytes
    import torch

    layer = bitsandbytes.nn.Linear8bitLt(COLUMNS, ROWS, bias=False, has_fp16_weights=False)
    layer.load_state_dict({"weight": torch.from_numpy(weight())})
    layer.to("cpu")
    state = {f"{LAYER}.{name}": tensor for name, tensor in layer.state_dict().items()}
    values = bitsandbytes.functional.int8_vectorwise_dequant(state[f"{LAYER}.weight"], state[f"{LAYER}.SCB"])
    return state, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, values


def _four_bits(kind, nested):
    import bitsandbytes
    import torch

    layer = bitsandbytes.nn.Linear4bit(COLUMNS, ROWS, bias=False)
    settings = {"quant_type": kind, "compress_statistics": nested, "blocksize": 64}
    layer.weight = bitsandbytes.nn.Params4bit(torch.from_numpy(weight()), requires_grad=False, **settings)
    layer.to("cpu")
    values = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    state = {f"{LAYER}.{name}": tensor for name, tensor in layer.state_dict().items()}
    return state, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, values.float()


def bitsandbytes_nf4():
    return _four_bits("nf4", nested=False)


def bitsandbytes_nf4_nested():
    return _four_bits("nf4", nested=True)


def bitsandbytes_fp4():
    return _four_bits("fp4", nested=True)


# The formats, and the library that writes each; those of STORED are in this folder.
STORED = (gptq, awq, mlx, fp8_block, int8_channel, int4_group_zeros, bitsandbytes_int8, bitsandbytes_nf4_nested)
WRITERS = {
    **{f"gptq {bits} bits": ("auto_gptq", partial(gptq, bits)) for bits in (2, 3, 4, 8)},
    "awq": ("awq", awq),
    **{
        f"mlx {bits} bits, groups of {n}": ("mlx", partial(mlx, bits, n))
        for bits in (2, 3, 4, 5, 6, 8)
        for n in (32, 64)
    },
    **{
        write.__name__: ("compressed_tensors", write)
        for write in (fp8_tensor, fp8_channel, fp8_block, int8_channel, int4_group, int4_group_zeros)
    },
    **{
        write.__name__: ("bitsandbytes", write)
        for write in (bitsandbytes_int8, bitsandbytes_nf4, bitsandbytes_nf4_nested, bitsandbytes_fp4)
    },
}


def save(folder, tensors, config, values):
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    np.save(folder / "values.npy", np.asarray(values.detach() if hasattr(values, "detach") else values, np.float32))


if __name__ == "__main__":
    for write in STORED:
        if write.__name__ in sys.argv[1:] or not sys.argv[1:]:
            save(FOLDER / write.__name__, *write())
