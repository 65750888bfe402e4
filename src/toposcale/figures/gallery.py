"""Registry of figures: titles, captions, chapters, and the tables that each needs.

`FIGURES` lists them without importing anything heavy; `load` imports the one that is drawn.
"""

from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any, NamedTuple


class FigureEntry(NamedTuple):
    """A figure: the module and function that draw it, its title and caption.

    subject: the chapter of the report.
    source: the figure needs features of this source; "metrics" needs no features.
    tables: the keyword arguments, by default the features and the models.
    of: "run", or "model" for a figure of one model: the largest, at its last step if it shows one checkpoint.
    settings: further keyword arguments, such as "tasks".
    """

    subject: str
    source: str
    module: str
    title: str
    caption: str
    tables: tuple[str, ...] = ("features", "models")
    of: str = "run"
    settings: tuple[str, ...] = ()

    def full_caption(self, n_models: int) -> str:
        """Return the caption, with the model that is drawn where the run has several."""
        return (
            f"{self.caption} Of a model of the largest size." if self.of == "model" and n_models > 1 else self.caption
        )


_overview = partial(FigureEntry, "Overview", "weights")
_training = partial(FigureEntry, "Training", "metrics")
_weights = partial(FigureEntry, "Weights", "weights")
_statistics = partial(FigureEntry, "Statistics", "weights")
_forecasts = partial(FigureEntry, "Forecasts and decisions", "metrics", "forecasting")
_embeddings = partial(FigureEntry, "Embeddings", "embeddings")
_landscape = partial(FigureEntry, "Loss landscape", "landscape", "landscape")


FIGURES: dict[str, FigureEntry] = {
    "overview": _overview(
        "training",
        "Topology of the weights over training",
        "Neural persistence (Rieck et al., 2019) is the mean over the weight matrices, H₀ total persistence (Vietoris–Rips "
        "homology) the sum; the scale-free one is in units of the mean distance between the rows, which pure growth of the "
        "weights does not change. Where a loss is known: its rank correlation with each, with moving-block intervals. If "
        "the norm lies as far from 0 as a topological feature, the feature follows the loss no better than the norm does.",
        tables=("metrics", "features", "correlations", "models"),
        settings=("tasks",),
    ),
    "verdict": _overview(
        "statistics",
        "Correlation with the loss, and partial correlations",
        "Left, for each feature of the whole model: its rank correlation with the loss (median over "
        "configurations; the line spans the lowest to the highest), and the medians of its partial correlations given the "
        "norm of the weights, and given the norm and the spectrum. Right: the answers. The test of prewhitened "
        "residuals decides whether a feature predicts the loss beyond the norm, corrected for the number of features. "
        '"Not tested" does not mean "no".',
        tables=("verdicts", "pooled_correlations"),
        settings=("tasks",),
    ),
    "loss_curves": _training(
        "training",
        "Loss over training",
        "Training loss (a running median where it has many rows), validation loss at the checkpoints, and the learning "
        "rate, as far as they are known.",
        tables=("training", "metrics", "models"),
    ),
    "layer_heat_map": _weights(
        "layers",
        "Features layer by layer over training",
        "Features layer by layer over training, each layer relative to its first checkpoint.",
        of="model",
    ),
    "scaling": _statistics(
        "statistics",
        "Scaling with model size, at the last checkpoint",
        "Values at the last checkpoint against the number of parameters, on logarithmic axes, with the "
        "fitted power laws.",
        tables=("features", "metrics", "scaling", "models"),
    ),
    "forecast_comparison": _forecasts(
        "Forecasts of the final loss from the first part of training",
        "Mean absolute error, over the models, of each forecast of the final loss from the "
        "first part of training, with 95% intervals. They are wide if there are few models.",
        tables=("forecast_evaluation",),
    ),
    "forecast_fans": _forecasts(
        "Forecasts of the final loss, with intervals",
        "The loss of each model, and the final loss that was forecast from the first part of training: the line leads to "
        "the forecast, the fan to its 95% interval; the table forecasts has its empirical coverage. The method is the "
        "joint law of all sizes if it makes a forecast, and the power law, without an interval, otherwise. Below: the "
        "learning-rate schedule.",
        tables=("forecasts", "metrics", "models", "schedules"),
    ),
    "decision_candidates": _forecasts(
        "Forecast loss of each candidate for the remaining compute",
        "For every run that is not finished (if all are finished: as each stood at the first share of training with an "
        "advice): the forecast final loss if the run is continued, is extended, or is stopped to train another size, with "
        "the 95% intervals of the law. The best candidate is in colour.",
        tables=("candidates", "models"),
    ),
    "embeddings_over_training": _embeddings(
        "training",
        "Topology and spectra of the embeddings over training",
        "Topology and spectra of the embedded probe texts over training.",
    ),
    "crocker": _embeddings(
        "layers",
        "CROCKER plot: Betti numbers by step and radius",
        "CROCKER plot: Betti numbers of the embedded texts by step and radius.",
        tables=("diagrams", "models"),
        of="model",
    ),
    "surface_and_merge_tree": _landscape(
        "Loss surface and its merge tree",
        "The loss around the last checkpoint, on a fixed probe batch, and next to it "
        "the merge tree of its sublevel sets: the minima, and the loss at which their basins meet. One row for each "
        "plane: the one that distinguishes checkpoints best, and a random one, as published.",
        tables=("surfaces", "models"),
        of="model",
    ),
    "spectral_density": _landscape(
        "Spectral density of the Hessian",
        "Density of the Hessian's eigenvalues at the last checkpoint of every model, by stochastic "
        "Lanczos quadrature. Most eigenvalues are near 0, and few are far from it.",
        tables=("densities", "models"),
    ),
    "contour_with_path": _landscape(
        "Training trajectory on the loss surface",
        "Training trajectory in the plane through its last checkpoint that contains most of "
        "the trajectory (principal components of the differences), and the loss of the probe batch in that plane.",
        tables=("path_surfaces", "trajectories", "models"),
        of="model",
    ),
    "landscape_profile": _landscape(
        "Landscape profile: the basins and their mass",
        "Landscape profiles (Geniesse et al. 2024) of the last checkpoint: on each plane, along "
        "the line from the previous checkpoint, and, if the configuration has landscape.ball_points, of random points "
        "in a ball, with a quadratic bowl. The width of a basin is the share of the sampled points below the level.",
        tables=("profiles", "models"),
        of="model",
    ),
}
"""Every figure by name: the name is that of its function and of its files."""


def load(name: str) -> Callable[..., Any]:
    """Return the function that draws a figure, in this project's style and with its title. KeyError: not in `FIGURES`."""
    entry = FIGURES[name]
    module, style, panels = (import_module(f"{__package__}.{part}") for part in (entry.module, "style", "panels"))
    drawing = getattr(module, name)

    @style.styled
    @wraps(drawing)
    def draw(*tables: Any, **named_tables: Any) -> Any:
        figure = drawing(*tables, **named_tables)
        panels.set_title(figure, ": ".join(filter(None, [entry.title, figure.get_suptitle()])))
        return figure

    return draw
