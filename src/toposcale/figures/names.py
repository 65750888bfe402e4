"""Names of features, metrics and methods as people read them, with units.

Feature, metric and source names stand here or at the head of the figure's module, and nowhere else.
"""

from __future__ import annotations

import re

ALL_LAYERS = "all"
WEIGHT_NORM = "frobenius_norm"
NEURAL_PERSISTENCE = "neural_persistence"
TRAINING_LOSS = "training_loss"
VALIDATION_LOSS = "validation_loss"
PERPLEXITY = "perplexity"

STEP_LABEL = "training step"
PARAMETERS_LABEL = "parameters (count)"
COMPUTE_LABEL = "training compute 6ND (FLOP)"
LONGEST_LABEL = 26
SPEARMAN_LABEL = "Spearman ρ (−1 to 1)"

_METRICS = {
    TRAINING_LOSS: ("training loss", "nats per token"),
    VALIDATION_LOSS: ("validation loss", "nats per token"),
    PERPLEXITY: ("perplexity", "per token"),
}

_PLAIN_FEATURES = {
    NEURAL_PERSISTENCE: ("neural persistence", "0 to 1"),
    "neural_persistence_p2": ("neural persistence, p = 2", "dimensionless"),
    "stable_rank": ("stable rank", "dimensions"),
    "powerlaw_alpha": ("spectral power-law α", "dimensionless"),
    "effective_rank": ("effective rank", "dimensions"),
    "participation_ratio": ("participation ratio", "dimensions"),
    "eigenspectrum_decay": ("eigenspectrum decay α", "dimensionless"),
    "pca_variance_kept": ("variance kept by the PCA", "share"),
    "n_minima": ("minima", "count"),
    "n_saddles": ("saddles", "count"),
    "average_persistence": ("average persistence", "nats per token"),
    "total_persistence": ("total persistence", "nats per token"),
    "hessian_trace": ("Hessian trace", "nats per squared weight"),
    "hessian_top_1": ("leading Hessian eigenvalue", "nats per squared weight"),
    "hessian_top_2": ("second Hessian eigenvalue", "nats per squared weight"),
    "gradient_norm": ("gradient norm", "nats per weight unit"),
    "persistent_homology_dimension": ("persistent-homology dimension", "dimensionless"),
    "sharpness_max": ("largest rise of the surface", "nats per token"),
    "sharpness_mean": ("mean rise of the surface", "nats per token"),
    "sharpness_relative": ("largest rise, relative", "percent"),
    "nonfinite_count": ("points of non-finite loss", "count"),
}

_SOURCE_UNIT = {
    "weights": "weight units",
    "gradients": "gradient units",
    "embeddings": "embedding units",
    "landscape": "nats per token",
    "trajectory": "weight units",
}

_GRAPH = re.compile(r"(?P<feature>.+)_(?P<graph>grid4|grid8|delaunay|gabriel|aknn8)")

_STATISTICS = {
    "count": "bars",
    "total": "total persistence",
    "total_l2": "total persistence, L2",
    "max": "longest bar",
    "mean": "mean persistence",
    "entropy": "persistence entropy",
    "wasserstein_1": "Wasserstein-1 distance",
    "wasserstein_2": "Wasserstein-2 distance",
    "bottleneck": "bottleneck distance",
}
_UNITLESS_STATISTICS = {"count": "count", "entropy": "nats"}

_NULLS = {"_z_permuted": "against permuted entries", "_z_gaussian": "against Gaussian entries"}
_HOMOLOGY = re.compile(r"h(?P<dimension>\d)_(?P<statistic>.+)")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def metric_name(metric: str) -> str:
    """`validation_loss` -> `validation loss`."""
    return _METRICS.get(metric, (metric.replace("_", " "), ""))[0]


def metric_label(metric: str) -> str:
    """Axis label of a metric, with its unit where it is known."""
    return _with_unit(*_METRICS.get(metric, (metric.replace("_", " "), "")))


def feature_name(feature: str, source: str = "weights") -> str:
    """`h0_total_scaled` -> `H₀ total persistence, scaled`."""
    return _describe(feature, source)[0]


def feature_label(feature: str, source: str = "weights") -> str:
    """Axis label of a feature, with its unit."""
    return _with_unit(*_describe(feature, source))


def feature_unit(feature: str, source: str = "weights") -> str:
    """The unit of a feature, empty where it has none that is known."""
    return _describe(feature, source)[1]


def _describe(feature: str, source: str) -> tuple[str, str]:
    """Name and unit of a feature."""
    for suffix, meaning in _NULLS.items():
        if feature.endswith(suffix):
            return f"{_describe(feature.removesuffix(suffix), source)[0]} {meaning}", "null sd"
    if feature.endswith("_scaled"):
        name, unit = _describe(feature.removesuffix("_scaled"), source)
        return f"{name}, scaled", unit if unit in _UNITLESS_STATISTICS.values() else "mean distances"
    on_graph = _GRAPH.fullmatch(feature)
    if on_graph:
        name, unit = _describe(on_graph["feature"], source)
        return f"{name}, {on_graph['graph']}", unit
    unit = _SOURCE_UNIT.get(source, "")
    if feature == WEIGHT_NORM:
        return ("weight norm" if source == "weights" else "Frobenius norm"), unit
    if feature in _PLAIN_FEATURES:
        return _PLAIN_FEATURES[feature]
    homology = _HOMOLOGY.fullmatch(feature)
    if homology:
        dimension = f"H{homology['dimension'].translate(_SUBSCRIPTS)}"
        statistic = homology["statistic"]
        readable = _STATISTICS.get(statistic, statistic.replace("_", " "))
        return f"{dimension} {readable}", _UNITLESS_STATISTICS.get(statistic, unit)
    return feature.replace("_", " "), ""


def _with_unit(name: str, unit: str) -> str:
    """The unit in brackets, on a line of its own where one line would outgrow a panel."""
    if not unit:
        return name
    return f"{name}\n({unit})" if len(name) + len(unit) > LONGEST_LABEL else f"{name} ({unit})"


METRIC_SOURCE = "metric"
"""Value of the `source` column where a table of analyses holds metrics beside features."""


def series_name(source: str, feature: str) -> str:
    """Name of a feature or, with source "metric", of a metric; other sources than weights are told."""
    if source == METRIC_SOURCE:
        return metric_name(feature)
    name = feature_name(feature, source)
    return name if source == "weights" else f"{name}  [{source}]"
