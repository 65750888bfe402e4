"""Controls: the covariates that a correlation or a test holds fixed, and the question that it answers.

A new one is an entry of `CONTROLS`. Verdicts, positive controls, answers, figures and pages read the questions, and
docs/statistics.md tells them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.io.schemas import ALL_LAYERS

NOTHING = "nothing"
"""The control of a plain correlation."""
NUCLEAR_NORM = "nuclear_norm"
"""Feature of weights that stands for their spectrum: the sum of the singular values (docs/research.md)."""
VARIANCE = "weight_variance"
"""Feature of weights that explains most of neural persistence (Girrbach et al. 2023)."""
LEVEL = 0.05
"""A question that is tested is answered yes where q is at most this."""
FOLLOWS_RHO = 0.5
"""A feature follows the metric where the Spearman correlation is at least so large, with one sign in every
configuration."""
YES = "yes"
NO = "no"
NOT_TESTED = "not tested"
FEW_CHECKPOINTS = 40
"""Checkpoints of one model from which on a correlation of prewhitened residuals of 0.7 is found."""
FEW_OF_EACH = 25
"""The same of each of five models."""
NEEDED = (
    "at least 10 evenly spaced checkpoints after twice the warm-up. To find a correlation of 0.7 among 33 features in 80% "
    f"of cases takes {FEW_CHECKPOINTS} checkpoints of one model, or {FEW_OF_EACH} of each of five; for 0.5, 90 or 30"
)
"""Measured by `python -m studies.nulls.checkpoints_needed`; docs/statistics.md has the table."""


@dataclass(frozen=True)
class Control:
    """Control: the covariates that are held fixed, features of the model or of the layer, and possibly the step."""

    name: str
    of_model: tuple[str, ...] = ()
    of_layer: tuple[str, ...] = ()
    step: bool = False  # in the partial rank correlation, not in the test
    past_of_metric: bool = True  # for a metric that leads the features its past is their future
    asked_of: tuple[str, ...] = ()  # the only features that have this control; none for all
    missing: str = ""  # the reason if a series to hold fixed was not measured
    question: str = ""  # its name in the tables, if one is asked
    adds_to: str = ""  # what a feature would add information to
    needs: str = ""  # data needed
    legend: str = ""  # words for the legend of figures

    @property
    def title(self) -> str:
        """Name of the question in words: "beyond the norm"."""
        return self.question.replace("_", " ")

    @property
    def estimate(self) -> str:
        """Column of `correlations` and `pooled_correlations` that answers the question."""
        return "residual_correlation" if self.is_tested else "spearman"

    @property
    def is_tested(self) -> bool:
        """True if the test of prewhitened residuals is made given this control, and its p-value decides."""
        # Given only the trend in the step it has false positives: runs share it (docs/statistics.md).
        return bool(self.of_model)

    def is_asked_of(self, keys: Mapping[str, NDArray[np.object_]]) -> NDArray[np.bool_]:
        """Return which keys of source, layer and feature have this control."""
        is_named = (keys["source"] == WEIGHT_NORM.source) & np.isin(keys["feature"], self.asked_of)
        return is_named if self.asked_of else np.ones(len(is_named), dtype=bool)

    def keys(self, layer: str) -> dict[tuple[str, str, str], bool]:
        """Return the series that are held fixed for a layer, and whether each is required; a layer may have no norm."""
        source = WEIGHT_NORM.source
        needed = dict.fromkeys(((source, ALL_LAYERS, name) for name in self.of_model), True)
        for name in self.of_layer:
            needed.setdefault((source, layer, name), name not in self.of_model)
        return needed


_NORM = WEIGHT_NORM.feature

PLAIN = Control(NOTHING, question="follows_the_loss", needs="4 checkpoints with a loss", legend="as it is")
"""Nothing is held fixed."""
CONTROLS = {
    control.name: control
    for control in (
        Control("step", step=True),
        Control(
            "weight_norm",
            (_NORM,),
            (_NORM,),
            missing="no weight norm at these checkpoints",
            question="beyond_the_norm",
            adds_to="the norm of the weights",
            needs=NEEDED,
            legend="given the weight norm",
        ),
        Control(
            "weight_norm_and_spectrum",
            (_NORM, NUCLEAR_NORM),
            (_NORM, NUCLEAR_NORM),
            missing="no norm or nuclear norm of the weights at these checkpoints",
            question="beyond_the_spectrum",
            adds_to="the spectrum of the weights",
            legend="given norm and spectrum",
        ),
        Control(
            "weight_norm_and_variance",
            (_NORM,),
            (_NORM, VARIANCE),
            asked_of=(NEURAL_PERSISTENCE.feature, "neural_persistence_p2"),
            missing="no norm or variance of the weights at these checkpoints",
            question="beyond_the_variance",
            adds_to="the variance of the weights",
        ),
    )
}
"""Every control by name. The squares of what is held fixed are held fixed by the tests of prewhitened residuals, too."""


def questions() -> list[Control]:
    """Return the controls with a question, in the order of the report."""
    return [PLAIN, *(control for control in CONTROLS.values() if control.question)]
