"""Figures of the weights of whole models over training: neural persistence and homology."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import feature_grid
from toposcale.figures.style import styled


@styled
def neural_persistence(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Neural persistence over training, mean over the matrices, in both conventions."""
    return feature_grid(
        features,
        models,
        [(NEURAL_PERSISTENCE.feature, "Equation 1, scaled matrix by matrix"),
         ("neural_persistence_p2", "Authors’ code, scaled by the model")],
        title=title_of("neural_persistence"),
        columns=2,
    )  # fmt: skip


@styled
def homology(features: pd.DataFrame, models: pd.DataFrame, *, source: str = "weights") -> Figure:
    """Total persistence of H0 and H1 over training: as measured, and on clouds of unit mean distance."""
    return feature_grid(
        features,
        models,
        [("h0_total", "H₀, as measured"), ("h0_total_scaled", "H₀, scale-free"),
         ("h1_total", "H₁, as measured"), ("h1_total_scaled", "H₁, scale-free")],
        title=title_of("homology"),
        columns=2,
        source=source,
    )  # fmt: skip


@styled
def weights_validation(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Neural persistence, H0 and the norm over the steps, as the paper shows them for Pythia."""
    return feature_grid(
        features,
        models,
        [(NEURAL_PERSISTENCE.feature, "Neural persistence"), ("h0_total", "H₀ total persistence"),
         (WEIGHT_NORM.feature, "Weight norm")],
        title=title_of("weights_validation"),
        columns=3,
    )  # fmt: skip
