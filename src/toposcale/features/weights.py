"""Features of the weight matrices of a model: topology, and the functions of `registry`."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from toposcale import homology
from toposcale.features.adapters import (
    Factor,
    adapter_sentences,
    is_product,
    layers_of_model,
    product_features,
    products,
    read_config,
)
from toposcale.features.feature import NAMED_AS_MODEL, NORM, SPECTRUM, TOPOLOGY
from toposcale.features.registry import MATRIX_FEATURES, Features, norms, registry, weight_spectra
from toposcale.io.errors import UserError, listed
from toposcale.io.schemas import ALL_LAYERS

if TYPE_CHECKING:
    from toposcale.checkpoints import Checkpoint

Matrices = Iterable[tuple[str, np.ndarray]]
Progress = Callable[[Matrices, int], Matrices]
"""Function of the matrices and their number that returns the same matrices, such as `rich.progress.track`."""

Diagrams = list[np.ndarray]
MatrixDescription = tuple[Features, Diagrams, np.ndarray]

CHOOSABLE_GROUPS = {"topology": TOPOLOGY, "norms": NORM, "spectra": SPECTRUM}
"""Values of `weights.features` and their groups in the registry; other groups are always computed."""

# Feed-forward blocks whose second matrix has not been read yet; in a model of another layout it may never come.
_MAX_PENDING = 4

# The two matrices of a feed-forward block, by the last part of their names before `.weight`. Of a gated block it is the
# branch without the gate.
_PROJECTION_OF = {
    "dense_h_to_4h": "dense_4h_to_h",
    "c_fc": "c_proj",
    "fc1": "fc2",
    "fc_in": "fc_out",
    "up_proj": "down_proj",
    "expansion": "projection",
}
_EXPANSION_OF = {projection: expansion for expansion, projection in _PROJECTION_OF.items()}


@dataclass(frozen=True)
class WeightSettings:
    """Choice of features and matrices; the fields are the keys of `weights:` in the configuration.

    TypeError: a number that is not an integer.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    features: tuple[str, ...] = tuple(CHOOSABLE_GROUPS)
    max_points: int = 200
    max_dimension: int = 1
    null_draws: int = 0
    surrogate_draws: int = 0
    whole_layers: bool = False
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("max_points", "max_dimension", "null_draws", "surrogate_draws", "seed"):
            if not isinstance(value := getattr(self, name), Integral) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, got {value!r}")

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings of a configuration, which has the keys of `layers` one level down."""
        flat = {"features": CHOOSABLE_GROUPS, **settings, **settings["layers"]}
        tuples = {key: tuple(flat[key]) for key in ("include", "exclude", "features")}
        return cls(**{key: value for key, value in (flat | tuples).items() if key != "layers"})

    def wants(self, layer: str) -> bool:
        """Return whether a matrix of that name is described."""
        included, excluded = (any(fnmatchcase(layer, glob) for glob in globs) for globs in (self.include, self.exclude))
        return included and not excluded

    def computes(self, group: str) -> bool:
        """Return whether features of a group of the registry are computed."""
        return all(name in self.features for name, chosen in CHOOSABLE_GROUPS.items() if chosen == group)


class Measurement(NamedTuple):
    """Features, diagrams and shapes (n_out, n_in) by layer, and notes on what was left out."""

    features: dict[str, Features]
    diagrams: dict[str, Diagrams]
    shapes: dict[str, tuple[int, int]]
    notes: list[str]


def measure(
    checkpoint: "Checkpoint",
    settings: WeightSettings,
    frozen: Collection[str] = (),
    *,
    names: Collection[str] = (),
    progress: Progress | None = None,
) -> Measurement:
    """Return `compute_features` of a checkpoint without its `frozen` weights; the notes are on its adapter and features."""
    shapes = checkpoint.matrix_shapes(frozen)
    matrices: Matrices = checkpoint.matrices(frozen)
    if progress:
        matrices = progress(matrices, len(shapes))
    chosen = {layer: shape for layer, shape in shapes.items() if settings.wants(layer)}
    chosen |= products(chosen)
    config = read_config(checkpoint.files)
    notes = adapter_sentences(config, {*chosen, *checkpoint.tensors})
    features, diagrams = compute_features(matrices, settings, names=names, adapter_config=config)
    notes += undefined_sentences(features)
    return Measurement(features, diagrams, {layer: chosen[layer] for layer in features if layer != ALL_LAYERS}, notes)


def compute_features(
    matrices: Matrices,
    settings: WeightSettings,
    *,
    largest_elsewhere: float = 0.0,
    names: Collection[str] = (),
    adapter_config: Mapping[str, Any] = {},
) -> tuple[dict[str, Features], dict[str, Diagrams]]:
    """Return the features and diagrams of every chosen matrix by layer, and the model's aggregates under "all".

    Matrices are read one at a time and need not fit in memory together. Those that `settings` leave out have no features,
    but count for the scale of `neural_persistence_p2`, the largest |weight| of the model, as does `largest_elsewhere`, that
    of weights that are not handed over. The rows that enter a Vietoris-Rips complex depend only on (seed, layer), not on
    the step or the model. A matrix with a NaN or an infinity, or with squares that overflow, has NaN features, one NaN
    bar a diagram, and a RuntimeWarning that names it. Features that a shape leaves undefined (of one row or column,
    exponents of fewer than 16 eigenvalues) are missing, and not in the aggregates. The products of the factors of an
    adapter, scaled by its configuration, are layers with a norm and a spectrum, and are aggregated in place of the factors,
    of which no diagrams are returned. Features of both matrices of a feed-forward block belong to the second one, the
    projection. If only features of some `names` are asked for, functions of a matrix that return none of them are not
    called.
    """
    names_read: list[str] = []
    features: dict[str, Features] = {}
    diagrams: dict[str, Diagrams] = {}
    trees: dict[str, np.ndarray] = {}
    factors: dict[str, Factor] = {}
    product_layers: dict[str, Features] = {}
    product_functions = [
        function for function, group in ((norms, NORM), (weight_spectra, SPECTRUM)) if settings.computes(group)
    ]
    pending: dict[tuple[str, str], tuple[str, np.ndarray]] = {}
    scale = largest_elsewhere if np.isfinite(largest_elsewhere) else np.nan
    for layer, weight in matrices:
        names_read.append(layer)
        largest = _largest_entry(weight)
        scale = float(np.maximum(scale, largest))  # NaN stays
        if not settings.wants(layer):
            continue
        if layer == ALL_LAYERS:
            raise UserError(NAMED_AS_MODEL)
        features[layer], diagrams[layer], trees[layer] = _describe_matrix(weight, largest, layer, settings, names)
        if settings.computes(TOPOLOGY) and (pair := _feed_forward_pair(layer, weight, pending)):
            projection, first, second = pair
            finite = np.isfinite(first).all() and np.isfinite(second).all()
            value = homology.deep_graph_persistence(first, second) if finite else float("nan")
            features[projection]["deep_graph_persistence"] = value
        product_layers |= product_features(layer, weight, factors, product_functions, adapter_config)
    if not names_read:
        raise UserError("there is no matrix of weights in it")
    if not features:
        names = ", ".join(names_read[:4]) + (" ..." if len(names_read) > 4 else "")
        raise UserError(f"no matrix is left: weights.layers chooses none of {names}")
    if settings.computes(TOPOLOGY):
        # The second convention of neural persistence shares one scale among all matrices, known only now.
        if np.isnan(scale) and not any(np.isnan(tree).any() for tree in trees.values()):
            message = "a matrix that is not chosen holds NaN or infinity, so neural_persistence_p2 is NaN"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        for layer, tree in trees.items():
            value = np.nan if np.isnan(scale) else homology.neural_persistence_of_tree(tree, p=2, scale=scale)
            features[layer]["neural_persistence_p2"] = value
    features |= product_layers
    aggregated = layers_of_model(features)
    features[ALL_LAYERS] = registry().aggregate(aggregated)
    return features, {layer: bars for layer, bars in diagrams.items() if layer in aggregated}


def computed_names(features: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Return the names of the computed features, including those for which every matrix is too small."""
    names = set().union(*features.values())
    return names.union(*(one.names for one in MATRIX_FEATURES if not one.names.isdisjoint(names)))


def undefined_sentences(features: Mapping[str, Features]) -> list[str]:
    """Return a sentence per set of features that some of the matrices lack, with the names of these layers."""
    computed = computed_names(features) - {"deep_graph_persistence"}
    layers_without: dict[tuple[str, ...], list[str]] = {}
    for layer, named in features.items():
        if layer != ALL_LAYERS and not is_product(layer) and (names := sorted(computed - named.keys())):
            layers_without.setdefault(tuple(names), []).append(layer)
    sentences = []
    for missing, layers in layers_without.items():
        # Titles have commas of their own.
        titles = [registry().lookup(name).title for name in missing]
        features_text = listed(titles, 3) if len(titles) <= 3 else f"{len(titles)} features"
        sentences.append(f"no {features_text} (too small): {listed(layers, 3)}")
    return sentences


def rows_of_cloud(n_rows: int, layer: str, settings: WeightSettings) -> np.ndarray:
    """Return the ascending indices of a matrix's rows in its Vietoris-Rips complex, the same for a layer in every model."""
    return homology.subsample_rows(n_rows, settings.max_points, seed=(settings.seed, layer))


def h0_of_surrogates(weight: np.ndarray, layer: str, settings: WeightSettings) -> list[Features]:
    """Return the H0 features of `settings.surrogate_draws` surrogates of a matrix, on the rows of `rows_of_cloud`."""
    rows = rows_of_cloud(len(weight), layer, settings)
    seeds = ((settings.seed, layer, draw) for draw in range(settings.surrogate_draws))
    surrogates = (homology.spectrum_surrogate(weight, seed=seed) for seed in seeds)
    return [homology.cloud_features(surrogate[rows], maxdim=0)[0] for surrogate in surrogates]


def _feed_forward_pair(
    layer: str, weight: np.ndarray, pending: dict[tuple[str, str], tuple[str, np.ndarray]]
) -> tuple[str, np.ndarray, np.ndarray] | None:
    """Return the projection's name and both matrices of the block that this matrix completes; None if it completes none.

    Shapes: (n_hidden, n_in) and (n_out, n_hidden). `pending` maps (block, name in it) to (layer, matrix) of those whose
    partner has not been read yet; this one may join them.
    """
    block, _, name = layer.removesuffix(".weight").rpartition(".")
    partner = _PROJECTION_OF.get(name) or _EXPANSION_OF.get(name)
    if partner is None:
        return None
    if (block, partner) not in pending:
        pending[block, name] = layer, weight
        if len(pending) > _MAX_PENDING:
            del pending[next(iter(pending))]
        return None
    pair = [pending.pop((block, partner)), (layer, weight)]
    (_, first), (projection, second) = pair if name in _EXPANSION_OF else pair[::-1]
    return (projection, first, second) if len(first) == second.shape[1] else None


def _largest_entry(weight: np.ndarray) -> float:
    """Return max|weight| of a matrix; NaN if an entry is NaN or infinite, or the squared distance of two rows could be."""
    largest = float(np.maximum(weight.max(), -weight.min()))
    return largest if np.isfinite(4.0 * weight.size * largest * largest) else np.nan


def _describe_matrix(
    weight: np.ndarray, largest: float, layer: str, settings: WeightSettings, names: Collection[str]
) -> MatrixDescription:
    """Return features, diagrams and edge weights of the spanning tree; the last two are empty without topology."""
    if np.isnan(largest):
        reason = f"{layer} holds NaN or infinity, or its squares overflow"
        warnings.warn(f"{reason}: its features are NaN", RuntimeWarning, stacklevel=3)
        features, diagrams = homology.nan_features(
            lambda matrix: _describe_matrix(matrix, _largest_entry(matrix), layer, settings, names)[:2], weight.shape
        )
        return features, diagrams, np.full(1, np.nan)
    is_vector = 1 in weight.shape and bool(weight.any())
    with warnings.catch_warnings():
        if is_vector:
            warnings.simplefilter("ignore")  # what one row or column lacks is left out
        features, diagrams, tree = _describe_finite(weight, layer, settings, names)
    if is_vector:
        features = {name: value for name, value in features.items() if not np.isnan(value)}
    return features, diagrams, tree


def _describe_finite(
    weight: np.ndarray, layer: str, settings: WeightSettings, names: Collection[str]
) -> MatrixDescription:
    features: Features = {}
    diagrams: Diagrams = []
    tree = np.empty(0)
    if settings.computes(TOPOLOGY):
        rows = rows_of_cloud(len(weight), layer, settings)
        features, diagrams, tree = _topology(weight, rows, settings)
        if settings.null_draws:
            features |= homology.null_z_scores(
                weight,
                lambda matrix: _compared_with_nulls(_topology(matrix, rows, settings)[0]),
                draws=settings.null_draws,
                seed=(settings.seed, layer),
                observed=_compared_with_nulls(features),
            )
        if settings.surrogate_draws:
            surrogate_totals = [values["h0_total"] for values in h0_of_surrogates(weight, layer, settings)]
            features["h0_surrogate_z"] = homology.z_score(features["h0_total"], surrogate_totals)
        if settings.whole_layers:  # of all rows, without a subsample: exact by a spanning tree
            lifetimes = homology.h0_lifetimes(weight)
            summary = homology.summarize_diagram(np.column_stack([np.zeros_like(lifetimes), lifetimes]))
            features |= {f"h0_{name}_whole": value for name, value in summary.items()}
    for entry in MATRIX_FEATURES:
        if settings.computes(entry.features[0].group) and (not names or not entry.names.isdisjoint(names)):
            features |= entry.function(weight)
    return features, diagrams, tree


def _compared_with_nulls(features: Features) -> Features:
    """Return the features with a null score: all but the number of H0 bars, which is n - 1 for any n distinct points."""
    return {name: value for name, value in features.items() if name != "h0_count"}


def _topology(weight: np.ndarray, rows: np.ndarray, settings: WeightSettings) -> MatrixDescription:
    """Return neural persistence and the Vietoris-Rips features of some rows, their diagrams, and the spanning tree."""
    tree = homology.spanning_tree_weights(weight)
    persistence = {"neural_persistence": homology.neural_persistence_of_tree(tree)}
    features, diagrams = homology.cloud_features(weight[rows], maxdim=settings.max_dimension)
    return persistence | features, diagrams, tree
