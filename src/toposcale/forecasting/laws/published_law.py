"""The published scaling law with the scatter of runs around it: forecasts without a curve, the usual level of a loss."""

from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.laws.law import JointForecast, Law
from toposcale.forecasting.laws.priors import SIZES_KNOWN
from toposcale.forecasting.laws.published_surface import published_surface
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

LEVEL_SCATTER, RUN_SCATTER = 0.34, 0.106
"""Standard deviations around the published surface, nats: the one that the runs of a family share (text, tokenizer), and
the one of each run. The 95% intervals cover 21 of 22 published families, and 95% of the differences between 845 published
pairs of ends. At decision points of other sources than the one that is judged they are .30 to .34 and .10 to .13, web texts
alone (`python -m studies.decisions standing`)."""

YOUNG, YOUNG_SCATTER = 1e8, 1.2
"""Tokens seen below which runs scatter more, and the standard deviation that each decade below adds, nats. Chosen so that
98 of the 99 decision points of the one young source, cs336-zli12 on web text, lie inside; no other source judges it."""

LEVELS = (0.5, 1.45)
"""Losses over that of the published surface at so many parameters and tokens, beyond which a curve is no pretraining of a
language model from scratch. Of 684 published runs all next-token losses lie from .56 (code) to 1.40, past the warm-up."""

UNIFORM = 11.0
"""Nats per token of a uniform guess among 60,000 tokens, with which a training from scratch begins."""


class PublishedLaw(Law):
    """Law of a run that has not started: Hoffmann et al. 2022 (arXiv 2203.15556) with the scatter of published runs.

    It is not fitted: it reads no curve and knows no schedule.
    """

    def predict_jointly(self, targets: Sequence[Target]) -> JointForecast:
        """Return the losses of the published scaling law, whose errors a family shares in part."""
        tokens = np.array([target.step * target.tokens_per_step for target in targets])
        young = YOUNG_SCATTER * np.maximum(np.log10(YOUNG / tokens), 0.0)
        return JointForecast(published_losses(targets), np.diag(RUN_SCATTER**2 + young**2) + LEVEL_SCATTER**2)

    def compare(self, targets: Sequence[Target], _reference: int) -> JointForecast:
        """Return `predict_jointly`: what all targets share cancels in their differences."""
        return self.predict_jointly(targets)


def published_losses(targets: Sequence[Target]) -> np.ndarray:
    """Return the losses of the published surface, nats per token."""
    return np.array([published_surface(end.n_parameters, end.step * end.tokens_per_step) for end in targets])


def has_published_level(run: TrainingRun) -> bool:
    """Return whether published runs tell the usual level of a run's loss."""
    # The published surface holds beyond the largest published run, but models that are much smaller may read letters.
    return run.n_parameters >= SIZES_KNOWN[0] and bool(np.isfinite(run.tokens_per_step))


def refuse_level(run: TrainingRun) -> None:
    """Raise NoForecast where the loss, at first or now, is none that so many parameters and tokens give from scratch."""
    if not has_published_level(run):
        return
    logged = np.isfinite(run.losses) & (run.steps > 0)
    # A loss in the warm-up has no upper bound, so only the lower bound applies at first.
    points = [(float(run.progress.step), run.loss_curve.level, LEVELS[1])]
    if logged.any():
        points.insert(0, (float(np.median(run.steps[logged][:3])), float(np.median(run.losses[logged][:3])), np.inf))
    for step, loss, highest in points:
        tokens = step * run.tokens_per_step
        usual = min(published_surface(run.n_parameters, tokens), UNIFORM)
        if not LEVELS[0] * usual <= loss <= highest * usual:
            raise NoForecast(
                f"{run.n_parameters:,} parameters reach a loss of about {usual:.3g} nats per token after {tokens:.2g} "
                f"tokens from scratch, and this run has {loss:.4g}: the law is for the pretraining of language models on "
                "the next token, not for fine-tuning, continued pretraining or other losses"
            )
