"""Display names of features and metrics, with units."""

import re

from toposcale.features.registry import lookup
from toposcale.forecasting.runs.metrics import LOSS_UNIT, METRICS, metric_name
from toposcale.io.schemas import METRIC_SOURCE

STEP_LABEL = "training step"
PARAMETERS_LABEL = "parameters (count)"
SPEARMAN_LABEL = "Spearman ρ (−1 to 1)"
_MAX_LABEL_LENGTH = 26


def metric_label(metric: str, *, in_nats: bool = True) -> str:
    """Return the axis label of a metric, with its unit if it is known."""
    return _with_unit(metric_name(metric), unit_of(METRIC_SOURCE, metric, in_nats=in_nats))


def feature_name(feature: str, source: str = "weights") -> str:
    """Return the display name of a feature: `h0_total_scaled` -> `H₀ total persistence, scaled`."""
    return lookup(feature, source).title


def feature_label(feature: str, source: str = "weights") -> str:
    """Return the axis label of a feature, with its unit."""
    described = lookup(feature, source)
    return _with_unit(described.title, described.unit)


def display_name(source: str, name: str) -> str:
    """Return the display name of a feature or, for source "metric", of a metric."""
    return metric_name(name) if source == METRIC_SOURCE else feature_name(name, source)


def unit_of(source: str, name: str, *, in_nats: bool = True) -> str:
    """Return the unit of a feature or, for source "metric", of a metric; "" if it has none or it is not known.

    in_nats: whether all losses are known to be in nats per token.
    """
    if source != METRIC_SOURCE:
        return lookup(name, source).unit
    unit = METRICS.get(name, ("", ""))[1]
    return unit if in_nats or unit != LOSS_UNIT else ""


def series_name(source: str, name: str) -> str:
    """Return the display name of a metric (source "metric") or feature; sources other than weights are named."""
    source_words = "" if source in (METRIC_SOURCE, "weights") else f"  [{source}]"
    return display_name(source, name) + source_words


def short_layer(layer: str) -> str:
    """Return the name of a layer without the common prefix and suffix of names; a mark " *" at its end is kept."""
    return re.sub(r"^(model|transformer|gpt_neox)\.|\.weight(?= \*|$)", "", layer)


def sentence(text: str) -> str:
    """Return the text with its first letter in upper case, but for a symbol such as α."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


def _with_unit(name: str, unit: str) -> str:
    """Append the unit in brackets, on a second line if one line is too long for a panel."""
    if not unit:
        return name
    return f"{name}\n({unit})" if len(name) + len(unit) > _MAX_LABEL_LENGTH else f"{name} ({unit})"
