"""The published scaling law with the scatter of runs around it: forecasts without a curve, the usual level of a loss."""

from collections.abc import Sequence
from math import ceil
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.law import JointForecast, Law
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.runs.curves import Curve
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast


def published_loss(n_parameters: float, n_tokens: float) -> float:
    """Return the loss of Hoffmann et al. 2022 at N parameters and D tokens, nats per token."""
    return _published_floor(n_parameters) + published_reducible_loss(n_tokens)


def published_reducible_loss(n_tokens: float) -> float:
    """Return by how much that law lies above its value after infinitely many tokens, nats per token."""
    return float(_B / n_tokens**_BETA)


def published_tokens(n_parameters: float, loss: float) -> float:
    """Return the tokens after which that law has a loss; infinite where it never has."""
    above = loss - _published_floor(n_parameters)
    return float((_B / above) ** (1 / _BETA)) if above > 0 else np.inf


_B, _BETA = 410.7, 0.28
"""Constants of the published scaling law in D tokens, nats per token."""


def _published_floor(n_parameters: float) -> float:
    """Return the loss of that law after infinitely many tokens."""
    return float(1.69 + 406.4 / n_parameters**0.34)


class PublishedLaw(Law):
    """Law of a run that has not started: Hoffmann et al. 2022 (arXiv 2203.15556) with the scatter of published runs.

    It is not fitted: it reads no curve and knows no schedule.
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Read nothing."""
        return self

    def predict_jointly(self, targets: Sequence[Target]) -> JointForecast:
        """Return the losses of the published scaling law, whose errors a family shares in part."""
        tokens = np.array([target.cost.tokens(target.step) for target in targets])
        return JointForecast(published_losses(targets), np.diag(_run_sd(tokens) ** 2) + priors.LEVEL_SD**2)


def _run_sd(tokens: np.ndarray | float) -> np.ndarray:
    """Return the standard deviations of runs around the level of their family after some tokens, nats."""
    return np.hypot(priors.RUN_SD, priors.YOUNG_SD_PER_DECADE * np.maximum(np.log10(priors.YOUNG_TOKENS / tokens), 0.0))


def _level_sd(tokens: np.ndarray | float) -> np.ndarray:
    """Return the standard deviations of runs of any family around the law after some tokens, nats."""
    return np.hypot(priors.LEVEL_SD, _run_sd(tokens))


def published_losses(targets: Sequence[Target]) -> np.ndarray:
    """Return the losses of the published scaling law, nats per token."""
    return np.array([published_loss(end.n_parameters, end.cost.tokens(end.step)) for end in targets])


def has_published_level(run: TrainingRun) -> bool:
    """Return whether the usual loss of a run of this size is known from published runs."""
    # The law holds beyond the largest published run, but models that are much smaller may read letters.
    return run.n_parameters >= priors.SIZES_KNOWN[0] and bool(np.isfinite(run.tokens_per_step))


LOWEST_DEVIATION = -4.0
"""Deviation of the first losses from the published law, in standard deviations, below which they are not those of training
from scratch: of 736 published next-token runs the lowest is -2.8."""


def _first_medians(run: TrainingRun) -> Curve:
    """Return the medians of the first three logged losses and of the three from the second on."""
    rows = Curve.finite(run.steps, run.losses).since(1)
    if len(rows.steps) < 3:
        return rows
    medians = np.median(sliding_window_view(rows.losses[:4], 3), axis=1)
    return Curve(rows.steps[1 : 1 + len(medians)], medians)


def refuse_level(run: TrainingRun) -> None:
    """Raise NoForecast where the first losses, the present loss or its trend are not those of training from scratch."""
    if not has_published_level(run):
        return
    # A loss in the warm-up has no upper bound, so only lower bounds apply at first; the first row may be of another text.
    for step, loss in zip(*_first_medians(run), strict=True):
        usual = _usual_level(run, step)
        deviation = (loss - usual) / float(_level_sd(run.cost.tokens(step)))
        if loss < priors.MIN_LEVEL_RATIO * usual or deviation < LOWEST_DEVIATION:
            raise NoForecast(_unusual_level(run, step, loss))
    step, loss = run.progress.step, run.loss_curve.level
    if not priors.MIN_LEVEL_RATIO <= loss / _usual_level(run, step) <= priors.MAX_LEVEL_RATIO:
        raise NoForecast(_unusual_level(run, step, loss))
    recent = run.loss_curve.since(run.progress.step / 3)
    if len(recent.steps) < MINIMUM_POINTS:
        return
    above = recent.losses - [_usual_level(run, step) for step in recent.steps]
    tokens = run.cost.tokens(recent.steps[-1:])
    # Next-token runs that stand so far above fall 2.5 times as fast as the law; masked ones have a plateau there.
    is_outside = np.median(above[-3:]) > NORMAL * float(_level_sd(tokens)[0])
    if is_outside and np.polyfit(np.log(recent.steps), above, 1)[0] >= 0:
        raise NoForecast(f"{_unusual_level(run, *run.progress)}; nor does it approach that")


def _usual_level(run: TrainingRun, step: float) -> float:
    """Return the usual loss of training from scratch at a step."""
    return min(published_loss(run.n_parameters, run.cost.tokens(step)), priors.UNIFORM_LOSS)


def _unusual_level(run: TrainingRun, step: float, loss: float) -> str:
    """Return the reason why a loss is not that of training from scratch."""
    return (
        f"{run.n_parameters:,} parameters reach a loss of about {_usual_level(run, step):.3g} nats per token after "
        f"{run.cost.tokens(step):.2g} tokens from scratch, and this run has {loss:.4g}: the law is for the "
        "pretraining of language models on the next token, not for fine-tuning, continued pretraining or other losses"
    )


def _least_progress(run: TrainingRun) -> tuple[float, float]:
    """Return the steps and tokens that a forecast needs."""
    if run.n_parameters <= priors.MAX_SMALL_SIZE:
        return priors.MIN_SMALL_STEPS, 0.0
    return priors.MIN_STEPS, min(priors.MIN_TOKENS, priors.MIN_TOKENS_PER_PARAMETER * run.n_parameters)


def first_step(run: TrainingRun) -> int:
    """Return the first step that is not too young for a forecast."""
    steps, tokens = _least_progress(run)
    return ceil(np.nanmax([steps, run.cost.steps_of_tokens(tokens)]))


def refuse_young(run: TrainingRun) -> None:
    """Raise NoForecast where a run has taken fewer steps or tokens than a forecast needs."""
    step, first = run.progress.step, first_step(run)
    if not run.has_steps_left or step >= first:
        return
    steps, tokens = _least_progress(run)
    seen, needed = f"{step:,} steps", f"{steps:g} steps"
    if tokens:
        needed += f" and {tokens:.2g} tokens"
        seen += f" and {run.cost.tokens(step):.2g} tokens" if np.isfinite(run.tokens_per_step) else ""
    advice = (
        f"ask again from step {first:,} on"
        if first < run.final_step
        else "this run ends before that: compare it with other runs at equal steps (curves)"
    )
    raise NoForecast(f"{seen} are too few for a forecast, whose intervals hold from {needed} on; {advice}")
