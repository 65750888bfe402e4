"""Weights that a layer computes from other tensors: weight and spectral normalisation of PyTorch, pruning, and adapters.

A file holds the tensors, such as `weight_g` and `weight_v`; what the layer uses is computed from them when it is read. The
product of the factors of an adapter (LoRA) is not: it is named here, and measured from its factors.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.errors import UserError, listed
from toposcale.io.tensor_files import Stored

_PARAMETRIZATION = re.compile(r"(?P<weight>(.*\.)?)parametrizations\.(?P<name>\w+)\.(?P<part>.+)")
_HOOK = re.compile(r"(?P<weight>.*\w)_(?P<part>g|v|u|orig|mask)(?P<name>)")
# Factors of a low-rank adapter (LoRA).
_FACTOR = re.compile(r"(.+[._])?lora[._]?(?P<factor>A|B|down|up)(\.\w+)?\.weight")
_SECOND = {"A": "B", "down": "up"}
PRODUCT = "lora_BA"
"""Last part of the name of a product."""
_REMEDY = (
    "save the weight itself: torch.nn.utils.parametrize.remove_parametrizations(layer, {name!r}), of older layers "
    "torch.nn.utils.remove_spectral_norm(layer), then torch.save(model.state_dict(), FILE)"
)


def is_part(name: str) -> bool:
    """Return whether the name of a tensor may be that of a part of a computed weight."""
    return bool(_PARAMETRIZATION.fullmatch(name) or _HOOK.fullmatch(name))


def _weight_normalised(magnitude: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return g v / |v|, with a norm for each entry of g; NaN where v is 0, as in the layer."""
    axes = tuple(axis for axis in range(direction.ndim) if magnitude.ndim == 0 or magnitude.shape[axis] == 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return direction * (magnitude / np.sqrt(np.square(direction).sum(axis=axes, keepdims=True)))


def _spectrally_normalised(weight: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return W / (u . W v), W with the axis of the outputs first, which is the second one of a transposed convolution."""
    first = weight if len(weight) == len(left) else np.swapaxes(weight, 0, 1)
    return weight / (left @ (first.reshape(len(left), -1) @ right))


class _Form(NamedTuple):
    """Parts that a weight is computed from, whether their shapes can be those of such parts, and the computation."""

    parts: tuple[tuple[str, ...], ...]
    fits: Callable[..., bool]
    compute: Callable[..., np.ndarray]


def _is_magnitude(magnitude: tuple[int, ...], direction: tuple[int, ...]) -> bool:
    """Return whether a shape is that of norms over all axes of another but one, or over all."""
    if len(direction) < 2 or len(magnitude) not in (0, len(direction)):
        return False
    pairs = zip(magnitude, direction, strict=False)
    return sum(length > 1 for length in magnitude) <= 1 and all(length in (1, whole) for length, whole in pairs)


_FORMS = (
    _Form((("original0", "original1"), ("g", "v")), _is_magnitude, _weight_normalised),
    _Form(
        (("original", "0._u", "0._v"), ("orig", "u", "v")),
        lambda weight, left, right: len(left) == len(right) == 1 and left[0] in weight[:2],
        _spectrally_normalised,
    ),
    _Form((("orig", "mask"),), lambda weight, mask: weight == mask, np.multiply),
)


class ComputedWeights:
    """Weights that layers compute from the tensors of a checkpoint, by name.

    Raise UserError for a parametrisation that is not known.

    part_of: what reads each tensor, by its name.
    where: prefix of messages.
    """

    def __init__(self, part_of: Mapping[str, Any], where: str) -> None:
        self._part_of = part_of
        self._sources: dict[str, tuple[_Form, tuple[str, ...]]] = {}
        for weight, named in _parts_by_weight(part_of).items():
            shapes = {part: part_of[name].stored[name].shape for part, name in named.items()}
            for form in _FORMS:
                for parts in form.parts:
                    if set(parts) == named.keys() and form.fits(*(shapes[part] for part in parts)):
                        self._sources[weight] = form, tuple(named[part] for part in parts)
            unknown = [
                name for part, name in named.items() if part.startswith("original") or {"orig", "u"} <= named.keys()
            ]
            if unknown and weight not in self._sources:
                remedy = _REMEDY.format(name=weight.rpartition(".")[2])
                raise UserError(f"{where}{weight} is computed by its layer from {listed(named.values(), 4)}; {remedy}")

    @property
    def parts(self) -> set[str]:
        """Names of the tensors that the weights are computed from."""
        return {name for _, names in self._sources.values() for name in names}

    @property
    def stored(self) -> dict[str, Stored]:
        """Shape and type of all weights, which are those of their largest part."""
        by_weight = {
            weight: [self._part_of[name].stored[name] for name in names] for weight, (_, names) in self._sources.items()
        }
        return {weight: max(parts, key=lambda part: np.prod(part.shape)) for weight, parts in by_weight.items()}

    def is_readable(self, weight: str) -> bool:
        """Return whether a weight can be computed."""
        return all(self._part_of[name].is_readable(name) for name in self._sources[weight][1])

    def values(self, weight: str) -> np.ndarray:
        """Return a weight as the layer uses it."""
        form, names = self._sources[weight]
        return form.compute(*(self._part_of[name].values(name) for name in names))

    rows = values


def _parts_by_weight(names: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the names of tensors by the weight that they may be parts of, and by their part."""
    by_weight: dict[str, dict[str, str]] = {}
    for name in names:
        if match := _PARAMETRIZATION.fullmatch(name) or _HOOK.fullmatch(name):
            by_weight.setdefault(match["weight"] + match["name"], {})[match["part"]] = name
    return {weight: named for weight, named in by_weight.items() if weight not in names}


def second_factor(first: str) -> str | None:
    """Return the name of the factor that completes a first one; None for any other matrix."""
    match = _FACTOR.fullmatch(first)
    if match is None or match["factor"] not in _SECOND:
        return None
    start, end = match.span("factor")
    return first[:start] + _SECOND[match["factor"]] + first[end:]


def product_of(factor: str) -> str:
    """Return the name of the product that a factor belongs to; "" for any other matrix."""
    match = _FACTOR.fullmatch(factor)
    return re.sub(r"lora[._]?$", PRODUCT, factor[: match.start("factor")]) if match else ""
