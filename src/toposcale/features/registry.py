"""Registry of features: every feature that this library computes."""

from toposcale.features.descriptions import FEATURES, Descriptions
from toposcale.features.feature import UNREGISTERED
from toposcale.features.matrix_features import MATRIX_FEATURES

REGISTRY = Descriptions([*(feature for one in MATRIX_FEATURES for feature in one.features), *FEATURES])
lookup, aggregate = REGISTRY.lookup, REGISTRY.aggregate


def group_of(name: str) -> str:
    """Return topology, spectrum, norm, curvature or other. LookupError: a name that is not registered."""
    group = lookup(name).group
    if group == UNREGISTERED:
        raise LookupError(f"{name}: no feature of this name is registered")
    return group
