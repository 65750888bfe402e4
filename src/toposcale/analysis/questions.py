"""Registry of the questions that are asked of every feature.

Verdicts, positive controls, answers, figures and pages read it; a new question is one entry.
"""

from dataclasses import dataclass

from toposcale.analysis.controls import NOTHING

LEVEL = 0.05
"""A question that is tested is answered yes where q is at most this."""
FOLLOWS_RHO = 0.5
"""A feature follows the metric where the Spearman correlation is at least so large, with one sign in every
configuration."""
YES, NO, NOT_TESTED = "yes", "no", "not tested"
FEW_CHECKPOINTS, FEW_OF_EACH = 40, 25
"""Checkpoints of one model, or of each of five, from which on a correlation of prewhitened residuals of 0.7 is found."""
NEEDED = (
    "at least 10 evenly spaced checkpoints after twice the warm-up. To find a correlation of 0.7 among 33 features in 80% "
    f"of cases takes {FEW_CHECKPOINTS} checkpoints of one model, or {FEW_OF_EACH} of each of five; for 0.5, 90 or 30"
)
"""Measured by `python -m studies.nulls.checkpoints_needed`; docs/statistics.md has the table."""


@dataclass(frozen=True)
class Question:
    """One question about a feature and a metric, told by docs/statistics.md.

    estimate: a column of `correlations` and `pooled_correlations`.
    """

    name: str
    control: str  # what is held fixed
    beyond: str = ""  # what a feature would add to
    needs: str = ""  # data needed
    given: str = ""  # words for the legend of figures
    estimate: str = "residual_correlation"

    @property
    def title(self) -> str:
        """Name in words: "beyond the norm"."""
        return self.name.replace("_", " ")

    @property
    def is_tested(self) -> bool:
        """True if a p-value decides, and not the size of the estimate."""
        return self.estimate != "spearman"


QUESTIONS = {
    question.name: question
    for question in (
        Question("follows_the_loss", NOTHING, needs="4 checkpoints with a loss", given="as it is", estimate="spearman"),
        Question("beyond_the_norm", "weight_norm", "the norm of the weights", NEEDED, "given the weight norm"),
        Question(
            "beyond_the_spectrum",
            "weight_norm_and_spectrum",
            "the spectrum of the weights",
            given="given norm and spectrum",
        ),
        Question("beyond_the_variance", "weight_norm_and_variance", "the variance of the weights"),
    )
}
"""Every question by name, in the order of the report."""
