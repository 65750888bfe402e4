"""Low-rank adapters (LoRA): the products of their factors, which are what they add to the matrices of their model.

The first factor is mostly its random start, so its norm says little; that of the product is what was learnt. Its norm and
its spectrum are those of a small square matrix, so that the product is never made.
"""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toposcale.features.matrix_features import Features, MatrixFunction
from toposcale.io.factors import PRODUCT, product_of, second_factor
from toposcale.io.job_files import read_noted


class _Factor(NamedTuple):
    """First factor (rank, n_in) of a product."""

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
    layer: str, weight: np.ndarray, pending: dict[str, _Factor], functions: Collection[MatrixFunction]
) -> dict[str, Features]:
    """Return features of the product that this factor completes, by its name; {} for any other matrix.

    functions: of the singular values alone, `norms` and `weight_spectra`. `pending` maps the name of a second factor to the
    first one, which this matrix may join. A product of 0, as that of a fresh adapter, has a norm alone; one that is not
    finite has NaN features.
    """
    if second := second_factor(layer):
        pending[second] = _Factor(layer, weight)
        return {}
    first = pending.pop(layer, None)
    if first is None or weight.shape[1] != len(first.weight):
        return {}
    finite = np.isfinite(weight).all() and np.isfinite(first.weight).all()
    factors = (weight, first.weight.T) if finite else (np.eye(*weight.shape), np.eye(*first.weight.T.shape))
    second_r, first_r = (np.asarray(np.linalg.qr(factor.astype(np.float64), mode="r")) for factor in factors)
    core = second_r @ first_r.T  # of the same singular values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        pairs = [pair for function in functions for pair in function(core).items()]
    features = {name: value for name, value in pairs if not np.isnan(value)}
    return {product_of(first.name): features if finite else dict.fromkeys(features, np.nan)}


def adapter_sentences(checkpoint: str | Path, layers: Mapping[str, object]) -> list[str]:
    """Return a sentence with the base model of a checkpoint that is an adapter, by its layers; [] if it is not one."""
    folder = Path(checkpoint) if Path(checkpoint).is_dir() else Path(checkpoint).parent
    base = read_noted(folder / "adapter_config.json").get("base_model_name_or_path")
    if not base and not any(map(is_product, layers)):
        return []
    return [
        f"an adapter of {base or 'a model that it does not name'}: {PRODUCT} is the product of its factors, which it adds "
        "to a matrix of that model; the whole model is made up of the products, which have a norm and a spectrum alone"
    ]
