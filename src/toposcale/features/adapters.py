"""Low-rank adapters (LoRA): the scaled products of their factors, which are what they add to the matrices of their model.

The first factor is mostly its random start, so its norm says little; that of the product is what was learnt. Its norm and
its spectrum are those of a small square matrix, so that the product is never made. Its scale is alpha / r, of rsLoRA
alpha / sqrt(r), by adapter_config.json in the folder of the weights; 1 without it.
"""

import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.features.registry import Features, MatrixFunction
from toposcale.io.files import read_noted
from toposcale.io.reparametrised import PRODUCT, product_of, second_factor


class Factor(NamedTuple):
    """Factor of a product: the first (rank, n_in) or the second one (n_out, rank)."""

    name: str
    weight: np.ndarray


def is_product(layer: str) -> bool:
    """Return whether a layer is the product of two factors."""
    return layer.endswith(PRODUCT)


def layers_of_model(features: Mapping[str, Features]) -> dict[str, Features]:
    """Return the layers over which features of the model are aggregated: products in place of their factors."""
    pairs = [
        (first, second_factor(first)) for first in features if second_factor(first) and product_of(first) in features
    ]
    factors = {factor for pair in pairs for factor in pair}
    return {layer: named for layer, named in features.items() if layer not in factors}


def products(shapes: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the shapes (n_out, n_in) of the products of the factors among matrices of these shapes, by name."""
    pairs = (
        (product_of(first), first, second) for first in shapes if (second := second_factor(first)) and second in shapes
    )
    return {
        name: (shapes[second][0], shapes[first][1])
        for name, first, second in pairs
        if shapes[second][1] == shapes[first][0]
    }


def product_features(
    layer: str,
    weight: np.ndarray,
    pending: dict[str, Factor],
    functions: Collection[MatrixFunction],
    config: Mapping[str, Any],
) -> dict[str, Features]:
    """Return features of the scaled product that this factor completes, by its name; {} for any other matrix.

    functions: of the singular values, `norms` and `weight_spectra`. `pending` maps the name of a second factor to the
    factor of the two that was read before, which this matrix may become. config: see `read_config`. A product of 0, as that
    of a fresh adapter, has only a norm; one that is not finite has NaN features.
    """
    factor, second_name = Factor(layer, weight), second_factor(layer) or layer
    other = pending.pop(second_name, None)
    if other is None:
        if product_of(layer):
            pending[second_name] = factor
        return {}
    first, second = (other, factor) if layer == second_name else (factor, other)
    if second.weight.shape[1] != len(first.weight):
        return {}
    finite = np.isfinite(first.weight).all() and np.isfinite(second.weight).all()
    factors = second.weight, first.weight.T
    if not finite:
        factors = np.eye(*factors[0].shape), np.eye(*factors[1].shape)
    second_r, first_r = (np.asarray(np.linalg.qr(values.astype(np.float64), mode="r")) for values in factors)
    scale = _scale(config, first.name, len(first.weight)) or 1.0
    core = scale * (second_r @ first_r.T)  # of the same singular values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        pairs = [pair for function in functions for pair in function(core).items()]
    features = {name: value for name, value in pairs if not np.isnan(value)}
    return {product_of(first.name): features if finite else dict.fromkeys(features, np.nan)}


def read_config(files: Sequence[Path]) -> dict[str, Any]:
    """Return the adapter_config.json in the folder of the weights; {} without one."""
    return read_noted(files[0].with_name("adapter_config.json")) if files else {}


def _scale(config: Mapping[str, Any], first: str, rank: int) -> float:
    """Return the scale of the product with this first factor (rank, n_in); 0 if the configuration does not state one."""
    module = re.sub(r"[._]?lora[._].*", "", first)
    patterns = dict(config.get("alpha_pattern") or {})  # names of modules, or regular expressions of their ends
    matching = (alpha for end, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({end})", module))
    alpha = next(matching, config.get("lora_alpha"))
    root = math.sqrt if config.get("use_rslora") else float
    return alpha / root(rank) if isinstance(alpha, int | float) else 0.0


def adapter_sentences(config: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Return what an adapter is of, and what of its scale is known, by its configuration and names; [] without one.

    names: of tensors and layers.
    """
    if not any(map(is_product, names)) and not config.get("base_model_name_or_path"):
        return []
    scale = "alpha / sqrt(r), since it is rsLoRA," if config.get("use_rslora") else "alpha / r"
    if not isinstance(config.get("lora_alpha"), int | float):
        scale = "its scale, which no adapter_config.json states and which is left out,"
    sentences = [
        f"an adapter of {config.get('base_model_name_or_path') or 'a model that it does not name'}: {PRODUCT} is {scale} "
        "times the product of its factors, which it adds to a matrix of that model; the whole model is made up of the "
        "products, which have a norm and a spectrum"
    ]
    if config.get("use_dora") or any("lora_magnitude" in name for name in names):
        sentences.append(
            f"DoRA: a magnitude then rescales each row of the sum, so that {PRODUCT} is not all that the adapter changes"
        )
    return sentences
