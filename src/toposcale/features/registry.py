"""Registry of features: every feature that this library computes."""

from collections.abc import Collection, Iterable

from toposcale.features.descriptions import FEATURES, Descriptions
from toposcale.features.feature import UNREGISTERED, Feature
from toposcale.features.matrix_features import MATRIX_FEATURES

REGISTRY = Descriptions([*(feature for one in MATRIX_FEATURES for feature in one.features), *FEATURES])
lookup, aggregate = REGISTRY.lookup, REGISTRY.aggregate


def on_planes(names: Iterable[str], statistic: str, kinds: Collection[str]) -> list[Feature]:
    """Return those of the names that are a statistic of a loss surface on a plane of one of these kinds."""
    features = [lookup(name, "landscape") for name in names]
    return [one for one in features if one.statistic == statistic and one.plane_kind in kinds and not one.suffix]


def group_of(name: str) -> str:
    """Return topology, spectrum, norm, curvature or other. LookupError: a name that is not registered."""
    group = lookup(name).group
    if group == UNREGISTERED:
        raise LookupError(f"{name}: no feature of this name is registered")
    return group
