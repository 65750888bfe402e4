"""Figures: one function per figure, from tables to a matplotlib Figure.

`FIGURES` lists them without importing anything heavy; `load` imports the one that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class FigureEntry(NamedTuple):
    """A figure: the module and function that draw it, the tables it takes as keyword arguments, and its words.

    subject: the chapter of the report. source: without features of that source there is nothing to draw; "metrics" needs
    none. of: "model" for a figure of one model and "checkpoint" for one of one checkpoint. Their functions take the
    keywords `model` and `step` too, and choose the largest model and the last step without them.
    """

    module: str
    tables: tuple[str, ...]
    title: str
    caption: str
    subject: str
    source: str = "weights"
    of: str = "run"


def _figure(
    module: str, tables: str, title: str, caption: str, subject: str, source: str = "weights", of: str = "run"
) -> FigureEntry:
    return FigureEntry(module, tuple(tables.split()), title, caption, subject, source, of)


FIGURES: dict[str, FigureEntry] = {
    "overview": _figure(
        "training",
        "metrics features correlations models",
        "Topology of the weights over training",
        "The run on one page. (a) Validation loss. (b) Neural persistence, mean over the weight matrices. "
        "(c) Total persistence of the H0 classes of the rows of the weight matrices, summed over the "
        "matrices. (d) How closely topology follows the validation loss, beside how closely the plain norm "
        "of the weights does, model by model, with moving-block intervals. Where the mark of the norm is as far out, "
        "topology follows the loss no better than the norm does.",
        "Overview",
    ),
    "verdict": _figure(
        "verdicts",
        "verdicts",
        "What is left of the correlation with the loss",
        "Left, for each feature of the whole model: its rank correlation with the validation loss (median over cells, "
        "line: lowest to highest cell), and the medians of the partial ones given the norm of the weights and given the "
        "training step. Right: the answers. Beyond is judged by the innovation test, corrected for the number of "
        "features; not tested is not no.",
        "Overview",
    ),
    "power": _figure(
        "statistics",
        "power sensitivity verdicts",
        "What this run could have found",
        "Curve: of simulated features whose innovations correlate with those of the validation loss, the share that "
        "the test finds in runs of this number and length, corrected for the number of features. Dotted: 80%, and the "
        "correlation that it takes. Strokes below: the features that were measured. Diamond: the positive control, the "
        "loss itself with noise.",
        "Overview",
    ),
    "loss_curves": _figure(
        "training",
        "training metrics models",
        "Loss over training",
        "Training loss of every step (smoothed), validation loss at the checkpoints, and the learning rate.",
        "Training",
        source="metrics",
    ),
    "neural_persistence": _figure(
        "weights",
        "features models",
        "Neural persistence of the weights over training",
        "Neural persistence over training, as the paper defines it and as its authors' code computes it "
        "(one scale for all matrices).",
        "Weights",
    ),
    "homology": _figure(
        "weights",
        "features models",
        "Vietoris–Rips homology of the weight rows over training, sum over layers",
        "Total persistence of the H0 and H1 classes over training; below, the same in units of the mean "
        "distance between the points: a cloud that only grows keeps those.",
        "Weights",
    ),
    "weights_validation": _figure(
        "weights",
        "features models",
        "Neural persistence, H₀ and the plain norm over training",
        "Neural persistence, H0 and the plain norm of the weights side by side.",
        "Weights",
    ),
    "layer_heat_map": _figure(
        "layers",
        "features models",
        "Features layer by layer over training",
        "Features layer by layer over training, for the largest model.",
        "Weights",
        source="weights",
        of="model",
    ),
    "attention_and_feed_forward": _figure(
        "layers",
        "features models",
        "Neural persistence by part of the block",
        "Neural persistence of the attention matrices beside that of the feed-forward matrices.",
        "Weights",
    ),
    "correlation_heat_map": _figure(
        "statistics",
        "correlations models",
        "Spearman correlation of every feature with the loss",
        "Spearman correlation of every feature of the whole model with the validation loss. Both series drift with "
        "training, so most are high: compare a row with that of the plain norm.",
        "Statistics",
    ),
    "ranking": _figure(
        "verdicts",
        "ranking",
        "Features ranked by correlation with the loss",
        "Features ranked by how closely they follow the validation loss, with moving-block intervals, coloured by "
        "group: topology, spectrum, norm, curvature.",
        "Statistics",
    ),
    "scaling": _figure(
        "statistics",
        "features metrics scaling models",
        "Scaling with model size, at the last checkpoint",
        "Values at the last checkpoint against the number of parameters, on logarithmic axes, with the "
        "fitted power laws.",
        "Statistics",
    ),
    "transitions": _figure(
        "statistics",
        "transitions change_points models",
        "Transitions during training",
        "The step at which each series changes most, the step at which it settles (published rule), and "
        "the breaks of its slope.",
        "Statistics",
    ),
    "forecast_comparison": _figure(
        "forecasting",
        "forecast_evaluation",
        "Forecasts of the final loss from the first part of training",
        "Mean absolute error, over the models, of each forecast of the final validation loss from the "
        "first part of training. With few models the intervals are wide.",
        "Forecasts and decisions",
        source="metrics",
    ),
    "loss_against_compute": _figure(
        "forecasting",
        "metrics decisions models",
        "Loss against compute: where the next size takes over",
        "Loss against compute for every size. Where the next size's curve crosses below a model's own, "
        "the larger model is better at the same compute. Below: where that point was forecast to be from "
        "the first part of training.",
        "Forecasts and decisions",
        source="metrics",
    ),
    "early_stopping": _figure(
        "forecasting",
        "early_stopping_summary",
        "Early stopping on a feature, against stopping on the validation loss",
        "Stopping once a feature has not improved for some checkpoints, against the same rule on the "
        "validation loss: steps saved, and loss given up.",
        "Forecasts and decisions",
    ),
    "embedding_summary": _figure(
        "embeddings",
        "features metrics models",
        "Embeddings over training",
        "The embedded probe texts over training: H0, H1, effective rank, and the perplexity of the same "
        "texts.",
        "Embeddings",
        source="embeddings",
    ),
    "topological_evolution": _figure(
        "embeddings",
        "features models",
        "Topology of the embeddings over training",
        "Topology of the embedded probe texts over training.",
        "Embeddings",
        source="embeddings",
    ),
    "spectral_evolution": _figure(
        "embeddings",
        "features models",
        "Spectra of the embeddings over training",
        "Spectra of the embedded probe texts over training.",
        "Embeddings",
        source="embeddings",
    ),
    "topology_against_perplexity": _figure(
        "embeddings",
        "features metrics models",
        "Embedding features against perplexity",
        "Features of the embedded texts against their perplexity, a point a checkpoint.",
        "Embeddings",
        source="embeddings",
    ),
    "topology_and_spectra": _figure(
        "embeddings",
        "ranking",
        "Embeddings: topology and spectra ranked by correlation",
        "How closely topological and spectral features of the embeddings follow the metrics.",
        "Embeddings",
        source="embeddings",
    ),
    "wasserstein_rate": _figure(
        "embeddings",
        "features models",
        "Rate of change of the diagrams of the embeddings",
        "How far the persistence diagrams of the embeddings move from one checkpoint to the next.",
        "Embeddings",
        source="embeddings",
    ),
    "embedding_layer_heat_map": _figure(
        "embeddings",
        "features models",
        "Embeddings layer by layer over training",
        "Embeddings layer by layer over training, for the largest model; needs the configuration "
        "embeddings.layers: all.",
        "Embeddings",
        source="embeddings",
        of="model",
    ),
    "perplexity_curves": _figure(
        "training",
        "metrics models",
        "Perplexity over training",
        "Perplexity of the probe texts over training.",
        "Embeddings",
        source="embeddings",
    ),
    "crocker": _figure(
        "layers",
        "diagrams models",
        "CROCKER plot: Betti numbers by step and radius",
        "CROCKER plot of the largest model: Betti numbers of the embedded texts by step and radius.",
        "Embeddings",
        source="embeddings",
        of="model",
    ),
    "surface_and_merge_tree": _figure(
        "landscape",
        "surfaces models",
        "Loss surface and its merge tree",
        "The loss around the last checkpoint of the largest model, on a fixed probe batch, and beside it "
        "the merge tree of its sublevel sets: the minima, and the loss at which their basins meet.",
        "Loss landscape",
        source="landscape",
        of="checkpoint",
    ),
    "persistence_diagram": _figure(
        "landscape",
        "diagrams models",
        "Persistence diagram of the loss surface",
        "Valleys (H0) and enclosed hills (H1) of the loss surface of the largest model's last checkpoint: "
        "the loss at which each is born, and at which it merges or is filled.",
        "Loss landscape",
        source="landscape",
        of="checkpoint",
    ),
    "spectral_density": _figure(
        "landscape",
        "densities models",
        "Spectral density of the Hessian",
        "Density of the Hessian's eigenvalues at the last checkpoint of every model, by stochastic "
        "Lanczos quadrature. Most are near 0; few are far out.",
        "Loss landscape",
        source="landscape",
    ),
    "contour_with_path": _figure(
        "landscape",
        "path_surfaces trajectories models",
        "Training trajectory on the loss surface",
        "Training trajectory of the largest model in the plane through its last checkpoint that holds "
        "most of it (principal components of the differences), and the loss of the probe batch in that "
        "plane.",
        "Loss landscape",
        source="landscape",
        of="model",
    ),
    "landscape_profile": _figure(
        "landscape",
        "profiles models",
        "Landscape profile: the basins and their mass",
        "Landscape profiles (Geniesse et al. 2024) of the largest model: along the line from the "
        "checkpoint before, and along the leading eigenvector of the Hessian at the last checkpoint. Each "
        "basin is as wide as the share of the line that lies below the level.",
        "Loss landscape",
        source="landscape",
        of="checkpoint",
    ),
    "landscape_evolution": _figure(
        "landscape",
        "features models",
        "Loss landscape over training",
        "Minima, saddles and persistence of the loss surface, and its curvature, over training.",
        "Loss landscape",
        source="landscape",
    ),
    "property_evaluation": _figure(
        "landscape",
        "features metrics models",
        "Shape of the landscape against performance and curvature",
        "Each shape feature of the loss surface against the validation loss and against two measures of "
        "curvature, a marker a checkpoint.",
        "Loss landscape",
        source="landscape",
    ),
}
"""Every figure by name: the name is that of its function and of its files."""


def title_of(name: str, detail: str | None = "") -> str:
    """What stands above a figure: its title, and what this drawing of it shows."""
    return f"{FIGURES[name].title}: {detail}" if detail else FIGURES[name].title


def load(name: str) -> Callable[..., Any]:
    """The function that draws the figure `name`; KeyError for a name that is not in `FIGURES`."""
    drawing: Callable[..., Any] = getattr(import_module(f"{__name__}.{FIGURES[name].module}"), name)
    return drawing
