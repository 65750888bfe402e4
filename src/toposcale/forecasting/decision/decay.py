"""Choose start, length and shape of the decay of a run whose learning rate is still at its peak."""

from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.decision.candidates import Candidate, CandidateKind, WeighedCandidate, weigh
from toposcale.forecasting.laws.law import Law
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.schedules import DECAY_SHAPES, Schedule
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.files import finite_or_none

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Candidate lengths of the decay, as shares of the whole training."""

SHAPES = tuple(shape for shape in DECAY_SHAPES if shape != "exponential")
"""Shapes that can end at 0."""

CONSTANT = 0.01
"""Largest relative difference of the present rate from the peak before the decay."""

COOLDOWN = 0.2
"""Length of a cooldown that begins now, as a share of the training so far."""

BILLION = 1e9


class DecayDecision(NamedTuple):
    """Decays that end with the training, and the forecast of a cooldown now."""

    candidates: tuple[WeighedCandidate, ...]  # in ascending order of expected regret
    cooldown_loss: Prediction  # at the end of a linear decay from now on over `COOLDOWN` of the training so far
    nats_per_billion_tokens: float  # its decrease per further billion tokens at the present rate; NaN if unknown

    @property
    def best(self) -> WeighedCandidate:
        """Candidate of lowest expected regret."""
        return self.candidates[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the object `decay` of the advice as JSON."""
        loss = self.cooldown_loss
        cooldown = {"cooled_loss": loss.value, "cooled_low": loss.low, "cooled_high": loss.high}
        rows = [
            {
                "start": row.candidate.decay_start,
                "shape": row.candidate.name,
                **row.loss.columns("loss"),
                "probability": row.probability,
                "expected_regret": row.expected_regret,
            }
            for row in self.candidates
        ]
        return {"candidates": rows, **cooldown, "nats_per_billion_tokens": finite_or_none(self.nats_per_billion_tokens)}


def has_not_decayed(run: TrainingRun) -> bool:
    """Return whether the learning rate of a run is known, past its warm-up and still at its peak."""
    rates = run.schedule.rates_to(run.progress.step)
    is_warm = run.progress.step > run.schedule.warmup_steps
    return run.has_known_rates and is_warm and bool(rates[-1] >= (1 - CONSTANT) * rates.max())


def when_to_decay(
    law: Law, run: TrainingRun, shapes: tuple[str, ...] = SHAPES, shares: tuple[float, ...] = SHARES
) -> DecayDecision | None:
    """Compare decays of a run at a constant rate that all end with its training; None: it decays, is unknown, or is over.

    law: fitted to the run. shares: lengths of the decay, as shares of the whole training; those that would have begun
    already are left out, and one that begins now is added.
    """
    if not run.has_steps_left or not has_not_decayed(run):
        return None
    end, steps = run.final_step, run.final_step - run.progress.step
    lengths = {round(share * end) for share in shares} | {steps}
    starts = sorted({end - length for length in lengths if 0 < length <= steps})
    decays = [
        Candidate(CandidateKind.DECAY, shape, _decay_target(run, start, end, shape), steps, run.flop_left, start)
        for shape in shapes
        for start in starts
    ]
    # A cooldown now, and one after a further billion tokens.
    further_steps = max(round(run.cost.steps_of_tokens(BILLION)), 1) if np.isfinite(run.tokens_per_step) else 0
    cooldowns = [
        _decay_target(run, start, start + max(round(COOLDOWN * run.progress.step), 1), "linear")
        for start in (run.progress.step, run.progress.step + further_steps)
    ]
    forecast = law.predict_jointly(cooldowns)
    further_tokens = run.cost.tokens(further_steps) if further_steps else np.nan
    nats_per_billion_tokens = float(forecast.losses[0] - forecast.losses[1]) * BILLION / further_tokens
    return DecayDecision(weigh(law, decays).candidates, forecast.prediction(0), nats_per_billion_tokens)


def _decay_target(run: TrainingRun, start: int, end: int, shape: str) -> Target:
    """Return the target of a decay to 0, before which the rate stays constant."""
    rates = run.schedule.rates_to(start)
    decay = Schedule("wsd", float(rates[-1]), end - start, 0, 0.0, 0, shape).rates()
    return Target(run.n_parameters, np.concatenate([rates[:-1], decay]), end, run.tokens_per_step, run.model)
