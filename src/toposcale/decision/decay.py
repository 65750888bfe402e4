"""When to decay: the start, length and shape of the decay of a run whose learning rate is still constant."""

from typing import Any, NamedTuple

import numpy as np

from toposcale.decision.candidates import Candidate, CandidateKind
from toposcale.decision.expected_regret import weigh
from toposcale.laws.joint import Joint
from toposcale.laws.prediction import Prediction
from toposcale.runs.training_run import Target, TrainingRun
from toposcale.training.schedules import DECAY_SHAPES, Schedule

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Lengths of a decay that are compared, as shares of the whole training."""

SHAPES = tuple(shape for shape in DECAY_SHAPES if shape != "exponential")
"""Shapes that may end at 0."""

CONSTANT = 0.01
"""Difference of the present rate to the peak, as a share of it, up to which the decay has not begun."""

COOLED = 0.2
"""Length of the decay with which the present is cooled, as a share of the training so far."""

BILLION = 1e9


class DecayOption(NamedTuple):
    """A decay and the loss at its end.

    Parameters
    ----------
    start : int
        Step at which the decay begins; it ends with the training.
    shape : str
        Shape of the decay.
    loss : Prediction
        Loss at the end, nats per token.
    probability : float
        Probability of being the best one.
    expected_regret : float
        Mean difference of its loss to that of the best one, nats per token.
    """

    start: int
    shape: str
    loss: Prediction
    probability: float
    expected_regret: float


class DecayDecision(NamedTuple):
    """Decays that end with the training, and what decaying now would give.

    Parameters
    ----------
    options : tuple of DecayOption
        In the order of their expected regret.
    cooled : Prediction
        Loss of a linear decay from now over `COOLED` of the training so far.
    worth : float
        Decrease of the cooled loss by a further billion tokens at the present rate, nats per token; NaN where the tokens
        of a step are not known.
    """

    options: tuple[DecayOption, ...]
    cooled: Prediction
    worth: float

    @property
    def best(self) -> DecayOption:
        """Option of the least expected regret."""
        return self.options[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the keys of advice.json."""
        rows = [
            {"start": option.start, "shape": option.shape, "loss": option.loss.value, "loss_low": option.loss.low}
            | {
                "loss_high": option.loss.high,
                "probability": option.probability,
                "expected_regret": option.expected_regret,
            }
            for option in self.options
        ]
        worth = self.worth if np.isfinite(self.worth) else None
        ends = {"cooled_loss": self.cooled.value, "cooled_low": self.cooled.low, "cooled_high": self.cooled.high}
        return {"options": rows, **ends, "nats_per_billion_tokens": worth}


def has_not_decayed(run: TrainingRun) -> bool:
    """Return whether the learning rate of a run is known, past its warm-up, and still at its peak."""
    rates = run.schedule.rates_to(run.last_step)
    return run.rates_known and run.last_step > run.schedule.warmup_steps and rates[-1] >= (1 - CONSTANT) * rates.max()


def when_to_decay(
    law: Joint, run: TrainingRun, shapes: tuple[str, ...] = SHAPES, shares: tuple[float, ...] = SHARES
) -> DecayDecision | None:
    """Compare decays of a run at a constant rate that all end with its training.

    Parameters
    ----------
    law : Joint
        Law that was fitted to the run.
    run : TrainingRun
        The run as it stands.
    shapes : tuple of str
        Shapes of the decay.
    shares : tuple of float
        Lengths of the decay, as shares of the whole training; those that would have begun already are left out, and one
        that begins now stands beside them.

    Returns
    -------
    DecayDecision or None
        None where the rate has begun to decay, is not known, or too little of the training is left.
    """
    if run.is_over or not has_not_decayed(run):
        return None
    lengths = {round(share * run.final_step) for share in shares} | {run.final_step - run.last_step}
    starts = sorted({run.final_step - length for length in lengths if 0 < length <= run.final_step - run.last_step})
    options = [
        Candidate(CandidateKind.CONTINUE, f"{shape} {start}", _decayed(run, start, run.final_step, shape), 0, 0.0)
        for shape in shapes
        for start in starts
    ]
    by_name = {option.candidate.name: option for option in weigh(law, options).options}
    rows = [
        DecayOption(start, shape, option.loss, option.probability, option.expected_regret)
        for shape in shapes
        for start in starts
        for option in [by_name[f"{shape} {start}"]]
    ]
    return DecayDecision(tuple(sorted(rows, key=lambda row: (row.expected_regret, -row.start))), *_cooled(law, run))


def _cooled(law: Joint, run: TrainingRun) -> tuple[Prediction, float]:
    """Return the loss of a decay from now, and by how much a billion tokens more would lower it."""
    more = max(round(BILLION / run.tokens_per_step), 1) if np.isfinite(run.tokens_per_step) else 0
    targets = [
        _decayed(run, start, start + max(round(COOLED * run.last_step), 1), "linear")
        for start in (run.last_step, run.last_step + more)
    ]
    losses, covariance = law.predict(targets)
    worth = float(losses[0] - losses[1]) * BILLION / (more * run.tokens_per_step) if more else np.nan
    return Prediction.of(float(losses[0]), float(np.sqrt(covariance[0, 0]))), worth


def _decayed(run: TrainingRun, start: int, end: int, shape: str) -> Target:
    """Return the loss at the end of a decay to 0; the rate is constant from now to its start."""
    rates = run.schedule.rates_to(start)
    decay = Schedule("wsd", float(rates[-1]), end - start, 0, 0.0, 0, shape).rates()
    return Target(run.n_parameters, np.concatenate([rates[:-1], decay]), end, run.tokens_per_step, run.model)
