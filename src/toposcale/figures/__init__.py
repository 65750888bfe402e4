"""Figures: one function per figure, from tables to a matplotlib Figure.

`FIGURES` lists them without importing anything heavy; `load` imports the one that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class FigureEntry(NamedTuple):
    """Where the function of a figure is, the tables it takes (keyword arguments of these names), its title.

    Without features of `source` the figure only says that there is nothing to show; that of "metrics" needs none.
    A figure `of` "model" shows one model, one `of` "checkpoint" one checkpoint of one model: their functions take the
    keywords `model` and `step` too, and choose the largest model and the last step without them.
    """

    function: str
    tables: tuple[str, ...]
    title: str
    category: str
    source: str = "weights"
    of: str = "run"


def _entries(category: str, source: str, *entries: tuple[str, ...]) -> dict[str, FigureEntry]:
    """Entries (function, tables, title[, of]) of one category; a figure has the name of its function."""
    return {
        function.split(".")[1]: FigureEntry(function, tuple(tables.split()), title, category, source, *of)
        for function, tables, title, *of in entries
    }


FIGURES: dict[str, FigureEntry] = {
    **_entries(
        "Overview",
        "weights",
        (
            "training.overview",
            "metrics features correlations models",
            "Loss, neural persistence and H0 over training, and their correlation beside that of the plain norm",
        ),
        (
            "verdicts.verdict",
            "verdicts",
            "What is left of each feature's correlation with the loss, given the weight norm and given the step",
        ),
    ),
    **_entries(
        "Training",
        "metrics",
        (
            "training.loss_curves",
            "training metrics models",
            "Training and validation loss, and the learning rate",
        ),
    ),
    **_entries(
        "Weights",
        "weights",
        (
            "weights.neural_persistence",
            "features models",
            "Neural persistence over training, both conventions",
        ),
        ("weights.homology", "features models", "Total persistence of H0 and H1, as measured and scale-free"),
        (
            "weights.weights_validation",
            "features models",
            "Neural persistence, H0 and the plain norm over the steps",
        ),
        ("layers.layer_heat_map", "features models", "Features layer by layer over training", "model"),
        (
            "layers.attention_and_feed_forward",
            "features models",
            "Neural persistence of attention matrices beside that of feed-forward ones",
        ),
    ),
    **_entries(
        "Statistics",
        "weights",
        (
            "statistics.correlation_heat_map",
            "correlations models",
            "Spearman correlation of every feature with the loss, model by model",
        ),
        ("verdicts.ranking", "ranking", "Features ranked by how closely they follow the loss"),
        (
            "statistics.scaling",
            "features metrics scaling models",
            "Final loss, H0, neural persistence and norm against model size, with their power laws",
        ),
        (
            "statistics.transitions",
            "transitions change_points models",
            "When each series changes most, when it settles, and its change points",
        ),
    ),
    **_entries(
        "Forecasts and decisions",
        "metrics",
        (
            "forecasting.forecast_comparison",
            "forecast_evaluation",
            "Mean absolute error of each forecasting method at each fraction of training",
        ),
        (
            "forecasting.loss_against_compute",
            "metrics decisions models",
            "Loss against compute, with the true and the forecast switch points",
        ),
    ),
    **_entries(
        "Forecasts and decisions",
        "weights",
        (
            "forecasting.early_stopping",
            "early_stopping_summary",
            "Steps saved and loss given up by stopping on a feature",
        ),
    ),
    **_entries(
        "Embeddings",
        "embeddings",
        (
            "embeddings.embedding_summary",
            "features metrics models",
            "H0, H1 and effective rank of the embedded texts, and perplexity",
        ),
        ("embeddings.topological_evolution", "features models", "Topology of the embeddings over training"),
        ("embeddings.spectral_evolution", "features models", "Spectra of the embeddings over training"),
        (
            "embeddings.topology_against_perplexity",
            "features metrics models",
            "Embedding features against perplexity",
        ),
        (
            "embeddings.topology_and_spectra",
            "ranking",
            "Topological beside spectral correlations of embeddings",
        ),
        (
            "embeddings.wasserstein_rate",
            "features models",
            "Rate of change of the diagrams of the embeddings",
        ),
        (
            "embeddings.embedding_layer_heat_map",
            "features models",
            "Embeddings layer by layer over training (with embeddings.layers: all)",
            "model",
        ),
        ("training.perplexity_curves", "metrics models", "Perplexity of the probe texts over training"),
        ("layers.crocker", "diagrams models", "CROCKER plot: Betti numbers by step and radius", "model"),
    ),
    **_entries(
        "Loss landscape",
        "landscape",
        (
            "landscape.surface_and_merge_tree",
            "surfaces models",
            "Loss surface with the merge tree of its sublevel sets",
            "checkpoint",
        ),
        (
            "landscape.persistence_diagram",
            "diagrams models",
            "Persistence diagram of the loss surface",
            "checkpoint",
        ),
        ("landscape.spectral_density", "densities models", "Spectral density of the Hessian"),
        (
            "landscape.contour_with_path",
            "surfaces trajectories models",
            "Contours of the loss surface with the way of training on it",
            "checkpoint",
        ),
        (
            "landscape.landscape_profile",
            "profiles models",
            "Landscape profile: the basins and their mass",
            "checkpoint",
        ),
        (
            "landscape.landscape_evolution",
            "features models",
            "Shape and curvature of the landscape over training",
        ),
        (
            "landscape.property_evaluation",
            "features metrics models",
            "Shape of the landscape against performance and curvature",
        ),
    ),
}
"""Every figure by name: the name is that of its function and of its files."""


def load(name: str) -> Callable[..., Any]:
    """The function that draws the figure `name`; KeyError for a name that is not in `FIGURES`."""
    module, function = FIGURES[name].function.split(".")
    drawing: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), function)
    return drawing
