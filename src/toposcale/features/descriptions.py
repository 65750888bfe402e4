"""Descriptions of features: what is known of a name in the features table, and how layers add up to the model."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from toposcale.features.feature import (
    COSINE,
    CURVATURE,
    NEURAL_PERSISTENCE,
    NORM,
    OF_SOURCE,
    OF_ZEROS,
    OVER_LAYERS,
    RELATIVE_CHANGE,
    SOURCE_UNITS,
    SPECTRUM,
    SUBSPACE_OVERLAP,
    TOPOLOGY,
    UNCERTAINTIES,
    UNREGISTERED,
    WEIGHT_NORM,
    Feature,
)
from toposcale.forecasting.runs.metrics import LOSS_UNIT

_SUBSPACES = ("subspace", "quadratic")
_PLANE = rf"(?:_(?P<plane>(?:random|top|negative|mixed)_[\d.e+-]+|ball|bowl|(?:{'|'.join(_SUBSPACES)})_\d+))?"
_GRAPH = r"(?:_(?P<graph>grid4|grid8|delaunay|aknn8))?"
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_NULLS = {"_z_permuted": "against permuted entries", "_z_gaussian": "against Gaussian entries"}


class Descriptions:
    """Features by the pattern of their names. ValueError: a name that is described twice."""

    def __init__(self, features: Iterable[Feature]) -> None:
        self.by_pattern = _by_pattern(features)
        self.lookup = cache(self._lookup)

    def _lookup(self, name: str, source: str = "weights") -> Feature:
        """Return the feature of a name in the features table, with `{k}` or `{graph}` filled in and the unit of `source`.

        The suffixes `_scaled`, `_z_permuted`, `_z_gaussian`, `_spread` and `_standard_error` are known. The title of a name
        that is not registered is its words; it has no unit and no group.
        """
        if suffix := next(filter(name.endswith, (*_NULLS, *UNCERTAINTIES, "_scaled")), ""):
            base = replace(self.lookup(name.removesuffix(suffix), source), suffix=suffix)
            if suffix in _NULLS:
                title = f"{base.title} {_NULLS[suffix]}"
                return replace(base, name=name, title=title, unit="null sd", over_layers="mean", rescaling_of="")
            suffixed = replace(base, name=name, title=f"{base.title}, {suffix[1:].replace('_', ' ')}")
            if suffix in UNCERTAINTIES:
                return suffixed
            unit = base.unit if base.unit in ("count", "nats") else "mean distances"
            return replace(suffixed, unit=unit, rescaling_of=base.name)
        for pattern, feature in self.by_pattern.items():
            if match := pattern.fullmatch(name):
                return _fill_pattern(feature, name, source, match.groupdict())
        return Feature(name, name.replace("_", " "), group=UNREGISTERED, statistic=name)

    def aggregate(self, features: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the value of each feature for the whole model, over the layers that have it; NaN if it is NaN in one.

        Sums for counts and totals, as published; the root of the summed squares for norms and l2 totals, so that the
        model's Frobenius norm is the norm of its weights; the maximum for maxima; the mean for all others, neural
        persistence among them. The order of the layers does not matter, to the last bit.
        """
        by_name: dict[str, list[float]] = {}
        for layer in sorted(features):
            for name, value in features[layer].items():
                by_name.setdefault(name, []).append(value)
        return {name: float(OVER_LAYERS[self.lookup(name).over_layers](values)) for name, values in by_name.items()}


def _by_pattern(features: Iterable[Feature]) -> dict[re.Pattern[str], Feature]:
    """Return features by the pattern of their names. ValueError: a name that is described twice."""
    by_pattern: dict[re.Pattern[str], Feature] = {}
    for feature in features:
        pattern = re.compile(
            re.escape(feature.name)
            .replace(r"\{k\}", r"(?P<k>\d+)")
            .replace(r"_\{plane\}", _PLANE)
            .replace(r"_\{graph\}", _GRAPH)
        )
        if pattern in by_pattern:
            raise ValueError(f"{feature.name}: registered twice")
        by_pattern[pattern] = feature
    return by_pattern


def _fill_pattern(feature: Feature, name: str, source: str, parts: Mapping[str, str]) -> Feature:
    title, rescaling_of = feature.title, feature.rescaling_of
    plane, graph = (parts.get(part) or "" for part in ("plane", "graph"))
    kind, _, extent = plane.partition("_")
    if parts.get("k"):
        title = title.replace("{k}", parts["k"].translate(_SUBSCRIPTS))
        rescaling_of = rescaling_of.replace("{k}", parts["k"])
    if plane:
        surface = f"{kind} of dimension" if kind in _SUBSPACES else f"{kind} plane to"
        title += f", {surface} {extent}" if extent else f", {kind}"
    if graph:
        title += f", {graph}"
    if name == WEIGHT_NORM.feature and source == "weights":
        title = "weight norm"
    unit = SOURCE_UNITS.get(source, "") if feature.unit == OF_SOURCE else feature.unit
    filled = replace(feature, name=name, title=title, unit=unit, rescaling_of=rescaling_of)
    statistic = name.removesuffix("".join(f"_{part}" for part in (plane, graph) if part))
    return replace(filled, statistic=statistic, plane=plane, plane_kind=kind)


def _homology(statistic: str, title: str, unit: str, over_layers: str, rescaling_of: str = "") -> Feature:
    return Feature(f"h{{k}}_{statistic}", f"H{{k}} {title}", unit, TOPOLOGY, over_layers, rescaling_of)


_FEW_EIGENVALUES = "nothing to do: fewer than 16 eigenvalues are left, which have no exponent"
_SUMMARIES = (
    _homology("count", "bars", "count", "sum"),
    _homology("total", "total persistence", OF_SOURCE, "sum"),
    _homology("total_l2", "total persistence, L2", OF_SOURCE, "norm"),
    _homology("max", "longest bar", OF_SOURCE, "max"),
    _homology("mean", "mean persistence", OF_SOURCE, "mean", "h{k}_total"),
    _homology("entropy", "persistence entropy", "nats", "mean"),
)

FEATURES = (
    Feature(NEURAL_PERSISTENCE.feature, "neural persistence", "0 to 1", TOPOLOGY, when_nan=OF_ZEROS),
    Feature("neural_persistence_p2", "neural persistence, p = 2", "dimensionless", TOPOLOGY, when_nan=OF_ZEROS),
    Feature("deep_graph_persistence", "deep graph persistence", "0 to 1", TOPOLOGY),
    Feature("rtd", "representation topology divergence", "dimensionless", TOPOLOGY),
    *_SUMMARIES,
    _homology("wasserstein_1", "Wasserstein-1 distance", OF_SOURCE, "sum"),
    _homology("wasserstein_2", "Wasserstein-2 distance", OF_SOURCE, "norm"),
    # Every bar is moved at most once, by half a unit at most, in the bottleneck metric, so the largest layer counts.
    _homology("bottleneck", "bottleneck distance", OF_SOURCE, "max"),
    *(
        replace(feature, name=f"{feature.name}_whole", title=f"{feature.title}, all rows", rescaling_of="")
        for feature in _SUMMARIES
    ),
    Feature("h0_surrogate_z", "H0 total persistence against surrogates of the spectrum", "null sd", TOPOLOGY),
    Feature("persistence_image", "persistence image", "", TOPOLOGY),
    Feature("persistence_landscape", "persistence landscape", "", TOPOLOGY),
    Feature(RELATIVE_CHANGE, "relative change of the weights", "share of the norm", NORM),
    Feature(COSINE, "cosine of the weights with those before", "dimensionless", NORM),
    Feature(SUBSPACE_OVERLAP, "overlap of the leading subspaces", "share", SPECTRUM),
    Feature("effective_rank", "effective rank", "dimensions", SPECTRUM),
    Feature("participation_ratio", "participation ratio", "dimensions", SPECTRUM),
    Feature("eigenspectrum_decay", "α-ReQ exponent", "dimensionless", SPECTRUM, when_nan=_FEW_EIGENVALUES),
    Feature("pca_variance_kept", "variance kept by the PCA", "share", SPECTRUM),
    Feature("gradient_norm", "gradient norm", "nats per weight unit", NORM),
    Feature(
        "persistent_homology_dimension",
        "persistent-homology dimension",
        "dimensionless",
        TOPOLOGY,
        when_nan="the window of sketches is too short for an estimate: raise trajectory.window",
    ),
    Feature("n_minima_{plane}_{graph}", "minima", "count", TOPOLOGY),
    Feature("n_saddles_{plane}_{graph}", "saddles", "count", TOPOLOGY),
    Feature("n_components_{plane}_{graph}", "components", "count", TOPOLOGY),
    Feature("average_persistence_{plane}_{graph}", "average persistence", OF_SOURCE, TOPOLOGY),
    Feature("average_persistence_closed_{plane}_{graph}", "average persistence, closed", OF_SOURCE, TOPOLOGY),
    Feature("total_persistence_{plane}_{graph}", "total persistence", OF_SOURCE, TOPOLOGY),
    Feature("h{k}_count_{plane}_{graph}", "H{k} bars", "count", TOPOLOGY),
    Feature("h{k}_total_{plane}_{graph}", "H{k} total persistence", OF_SOURCE, TOPOLOGY),
    Feature("h{k}_max_{plane}_{graph}", "H{k} longest bar", OF_SOURCE, TOPOLOGY),
    Feature("hessian_trace", "Hessian trace", "nats per squared weight", CURVATURE),
    Feature("hessian_max", "highest Hessian eigenvalue", "nats per squared weight", CURVATURE),
    Feature("hessian_min", "lowest Hessian eigenvalue", "nats per squared weight", CURVATURE),
    Feature("hessian_top_1", "leading Hessian eigenvalue", "nats per squared weight", CURVATURE),
    Feature("hessian_top_2", "second Hessian eigenvalue", "nats per squared weight", CURVATURE),
    Feature("hessian_top_{k}", "Hessian eigenvalue {k}", "nats per squared weight", CURVATURE),
    Feature("sharpness_max_{plane}", "largest rise of the surface", LOSS_UNIT, CURVATURE),
    Feature("sharpness_mean_{plane}", "mean rise of the surface", LOSS_UNIT, CURVATURE),
    Feature("sharpness_relative_{plane}", "largest rise, relative", "percent", CURVATURE),
    Feature("nonfinite_count_{plane}", "points of non-finite loss", "count"),
)
"""Features that are not functions of one matrix: those stand with their functions, in `registry`."""

WITHOUT_MATRICES = Descriptions(FEATURES)
"""Descriptions and aggregation where no function of a matrix is computed."""
