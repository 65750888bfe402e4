"""Roles of layers, and odd layers: outliers among the same layers of other blocks."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

ODD_SHARE = 0.3
"""Least difference of an odd layer from the median, as a share of it."""

ODD_Z = 5.0
"""Robust z-score from which one of many layers is odd."""

MIN_LAYERS = 5
"""Fewest layers that are compared."""


class Role(StrEnum):
    """Role of a layer in a transformer, by its name."""

    ATTENTION = "attention"
    FEED_FORWARD = "feed-forward"
    EMBEDDING = "embedding"
    OTHER = "other"


_PATTERNS = {
    Role.ATTENTION: re.compile(r"attn|attention|[qkvo]_proj|query|key_|value_"),
    Role.FEED_FORWARD: re.compile(r"mlp|feed_?forward|ffn|experts|(gate|up|down)_proj|fc\d|intermediate"),
    Role.EMBEDDING: re.compile(r"embed|wte|wpe|lm_head|token"),
}

_OUTPUT = re.compile(r"lm_head|embed_out|unembed|output")


def role_of(layer: str) -> Role:
    """Return the role of a layer by its name."""
    return next((role for role, pattern in _PATTERNS.items() if pattern.search(layer.lower())), Role.OTHER)


def network_order(layer: str) -> tuple[int, str, list[int], int]:
    """Return a key that sorts embeddings first, then the blocks, attention before feed-forward, and the output last."""
    numbers, index = [int(number) for number in re.findall(r"\d+", layer)], list(Role).index(role_of(layer))
    if numbers:
        return 1, re.split(r"\d", layer)[0], numbers, index
    is_input = role_of(layer) is Role.EMBEDDING and not _OUTPUT.search(layer.lower())
    return 0 if is_input else 2, "", numbers, index


class OddLayer(NamedTuple):
    """A layer with a feature that is an outlier among the same layers of other blocks, by its robust z-score."""

    layer: str
    feature: str
    value: float
    median: float
    z: float
    role: Role

    @property
    def reason(self) -> str:
        """Feature, value and z-score in words."""
        side = "above" if self.z > 0 else "below"
        compared = f"{side} the median {self.median:.3g} of such {self.role} layers"
        return f"{self.feature} {self.value:.3g}, {compared} (z {self.z:+.0f})"

    def __str__(self) -> str:
        return f"{self.layer}: {self.reason}"


def odd_layers(
    features: Mapping[str, Mapping[str, float]], shapes: Mapping[str, Sequence[int]] | None = None
) -> list[OddLayer]:
    """Return the odd layers of features[layer][feature], largest |z| first; only finite values are compared.

    z = (value - median) / (1.4826 MAD) over the layers of one name in other blocks (h.0.mlp.c_fc with h.1.mlp.c_fc) whose
    matrices have one shape. Where the shapes are not known, the layers of a list (net.0.weight, net.2.weight) are not
    compared, since its ends have other shapes. If more than half of n layers agree exactly, the MAD is 0 and none is
    odd. The bound is `ODD_Z` (1 + 8 / n), since the MAD of few values is uncertain: for Gaussian values its false-positive
    rate is 0.3% per group of 8 to 48 layers; without the second factor it is 5% for 8 layers. A layer
    that differs from the median by less than `ODD_SHARE` of it is never odd.
    """
    odd = []
    for layers in comparable_layers(features, shapes):
        for name in dict.fromkeys(name for layer in layers for name in features[layer]):
            values = {layer: features[layer].get(name, np.nan) for layer in layers}
            finite = {layer: value for layer, value in values.items() if np.isfinite(value)}
            if len(finite) < MIN_LAYERS:
                continue
            numbers = np.array(list(finite.values()))
            median = float(np.median(numbers))
            scale = 1.4826 * float(np.median(np.abs(numbers - median)))
            if scale <= 1e-12 * abs(median):
                continue
            odd += [
                OddLayer(layer, name, value, median, (value - median) / scale, role_of(layer))
                for layer, value in finite.items()
                if abs(value - median) >= max(ODD_Z * (1 + 8 / len(finite)) * scale, ODD_SHARE * abs(median))
            ]
    return sorted(odd, key=lambda one: (-abs(one.z), one.layer, one.feature))


def comparable_layers(layers: Iterable[str], shapes: Mapping[str, Sequence[int]] | None = None) -> list[list[str]]:
    """Return the layers that are the same in different blocks, of which at least `MIN_LAYERS` are compared."""
    siblings: dict[Hashable, list[str]] = {}
    for layer in layers:
        siblings.setdefault(_siblings(layer, shapes), []).append(layer)
    return [group for group in siblings.values() if len(group) >= MIN_LAYERS]


def _siblings(layer: str, shapes: Mapping[str, Sequence[int]] | None) -> Hashable:
    """Return a key that the same layers of all blocks share: the name without the number of the block, and the shape.

    Only a whole part of the name is a number: w1, w2 and w3 of a feed-forward block are three layers.
    """
    name = ".".join("*" if part.isdecimal() else part for part in layer.split("."))
    if shapes is None:
        return layer if re.search(r"(^|\.)\*\.weight$", name) else name
    return name, tuple(shapes[layer])
