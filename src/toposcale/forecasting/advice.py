"""The advice on one training under way: finish it, extend it, or stop it and start another size.

`advise_on` makes it, for every door: the command, `toposcale.advise`, the workflow, the monitor and the watch page. An
`Advice` holds the law, the decision and what speaks against being sure; tables, pages and texts only render it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from toposcale.forecasting import words
from toposcale.forecasting.decision import USUAL, Candidate, Decision, Request, best_size, decide, steps_to
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.prediction import NoForecast, Prediction
from toposcale.forecasting.training_run import TrainingRun
from toposcale.forecasting.trust import doubts, refuse_choice, trusted_law

COURSE_POINTS = 48


@dataclass(frozen=True, eq=False)
class Advice(Mapping[str, Any]):
    """What is known of a training and what to do. As a mapping it has the keys of advice.json; printed, it is text.

    law and decision are None where there is none, and `no_advice_because` says why; `doubts` are the reasons why the
    answer is not sure.
    """

    training: TrainingRun
    others: tuple[TrainingRun, ...]
    request: Request
    law: Joint | None = None
    decision: Decision | None = None
    doubts: tuple[str, ...] = ()
    no_advice_because: str = ""

    @property
    def choice(self) -> str:
        """The candidate to take; "" where there is no advice."""
        return self.decision.best.candidate.name if self.decision else ""

    @property
    def is_sure(self) -> bool:
        """Whether nothing speaks against the choice."""
        return self.decision is not None and not self.doubts

    @property
    def remaining(self) -> float:
        """FLOP that will still be spent."""
        return self.training.compute_left if self.request.remaining is None else float(self.request.remaining)

    @property
    def sentence(self) -> str:
        """What to do, in a sentence, or why there is no advice."""
        if self.decision:
            return words.what_to_do(self.decision, self.doubts)
        return words.no_advice(self.no_advice_because)

    @cached_property
    def end(self) -> Prediction | None:
        """The forecast of the end of the plan."""
        return self.law.forecast(self.training) if self.law else None

    @cached_property
    def course(self) -> list[tuple[int, Prediction]]:
        """Steps from the next one to the end, each with its forecast."""
        if self.law is None:
            return []
        steps = np.geomspace(self.training.last_step + 1, self.training.final_step, COURSE_POINTS)
        return [(int(step), self.law.forecast(self.training, int(step))) for step in np.unique(np.rint(steps))]

    def as_rows(self) -> list[dict[str, Any]]:
        """A row for each option."""
        options = self.decision.options if self.decision else ()
        return [option.as_row() | {"flop": option.candidate.compute} for option in options]

    @cached_property
    def _values(self) -> dict[str, Any]:
        training, end = self.training, self.end
        return {
            "model": training.model,
            "step": training.last_step,
            "final_step": training.final_step,
            "loss": plain(training.last_loss),
            "metric": training.metric,
            "spent_flop": plain(training.compute(training.last_step)),
            "remaining_flop": plain(self.remaining),
            "plan": training.plan if training.plan_known else "",
            "plan_unknown_because": words.why_no_plan(training),
            "learning_rate_now": plain(training.rate_at(training.last_step)),
            "learning_rate_at_the_end": plain(training.rate_at(training.final_step)) if training.plan_known else None,
            "forecast": end.value if end else None,
            "forecast_low": end.low if end else None,
            "forecast_high": end.high if end else None,
            "models_read": len(self.law.runs) if self.law else 0,
            "course": self._course_values(),
            **self._target_values(),
            "candidates": self.as_rows(),
            "choice": self.choice,
            "sure": self.is_sure,
            "unsure_because": list(self.doubts),
            **self._choice_values(),
            **self._size_values(),
            "no_advice_because": self.no_advice_because,
            "assumed": list(self._assumed),
            "find_out_first": self._find_out_first,
        }

    def _course_values(self) -> dict[str, list[float]]:
        columns: dict[str, list[float]] = {"step": [step for step, _ in self.course]}
        for name, end in {"loss": "value", "low": "low", "high": "high"}.items():
            columns[name] = [getattr(forecast, end) for _, forecast in self.course]
        return columns if self.course else {}

    def _choice_values(self) -> dict[str, float | None]:
        names = ("probability", "stop_probability", "gain", "gain_low", "gain_high", "at_stake", "cost_if_wrong")
        if self.decision is None or not self.decision.is_a_choice:  # the best of one is no finding
            return dict.fromkeys(names)
        best = self.decision.best
        gain = (best.gain.value, best.gain.low, best.gain.high)
        values = (best.probability, self.decision.stop, *gain, best.at_stake, best.cost_if_wrong)
        return dict(zip(names, values, strict=True))

    @cached_property
    def _target(self) -> tuple[float | None, tuple[float, float, float], float]:
        """The step at which the target loss was reached, or else the steps at which it will be, and the compute to it."""
        steps, losses = self.training.loss_curve
        loss = self.request.target_loss
        if self.law is None or loss is None:
            return None, (np.inf,) * 3, np.nan
        if (losses <= loss).any():
            return float(steps[np.argmax(losses <= loss)]), (np.inf,) * 3, np.nan
        ahead = steps_to(self.law, self.training, loss)
        return None, ahead, self.training.compute(ahead[0])

    def _target_values(self) -> dict[str, float | None]:
        reached_at, ahead, flop = self._target
        if self.law is None or self.request.target_loss is None:
            return {"target_loss": None}
        if reached_at is not None:
            return {"target_loss": self.request.target_loss, "target_reached_at": reached_at}
        names = ("target_step", "target_step_earliest", "target_step_latest")
        steps = {name: plain(step) for name, step in zip(names, ahead, strict=True)}
        return {"target_loss": self.request.target_loss, **steps, "target_flop": plain(flop)}

    def _size_values(self) -> dict[str, float | None]:
        # Of one size the best size would be the prior alone.
        if self.decision is None or self.law is None or self.law.n_sizes < 2 or not self.remaining > 0:
            return {"best_size": None}
        size, low, high = best_size(self.law, self.training, self.remaining)
        return {"best_size": plain(size), "best_size_low": plain(low), "best_size_high": plain(high)}

    @property
    def _assumed(self) -> tuple[str, ...]:
        return words.assumed(self.training, self.others, self.law, self.decision) if self.law else ()

    @property
    def _find_out_first(self) -> str:
        if self.law is None or self.decision is None:
            return ""
        return words.find_out_first(self.training, self.law, self.decision, is_sure=self.is_sure)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        """The advice, the last line of it what to do."""
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The same for a terminal: no line is longer than `width` columns, where that is known."""
        if self.training.is_over and self.decision is None:
            return words.fitted([words.finished(self.training)], width)
        lines = [words.standing(self.training), f"  Plan       {words.plan(self.training)}"]
        if self.law and self.end:
            lines.append(f"  At its end {words.end(self.end, self.law)}")
        if self.decision:
            lines += ["", *words.table(self.decision, self.remaining, width), ""]
        if self["target_loss"] is not None:
            lines.append(f"  Target     {words.target(self['target_loss'], *self._target)}")
        if self["best_size"]:
            near = f"{self['best_size_low']:.2g} to {self['best_size_high']:.2g} are within 0.01 nats"
            lines.append(f"  Best size for a fresh start: {self['best_size']:.2g} parameters ({near})")
        if self._assumed:
            lines += ["  Assumed:", *(f"    - {clause}" for clause in self._assumed)]
        if self._find_out_first:
            lines.append(f"  Find out first: {self._find_out_first}.")
        return words.fitted([*lines, f"  => {self.sentence}"], width)


def advise_on(
    training: TrainingRun,
    others: Sequence[TrainingRun] = (),
    request: Request = USUAL,
    *,
    ways: Sequence[Candidate] | None = None,
) -> Advice:
    """The advice on a training as it stands.

    others: finished trainings, trainings under way and sizes that have not started; those of another family are not read.
    ways: the candidates, where the request does not name them.
    """
    family = tuple(
        other
        for other in others
        if other.family == training.family and other.model != training.model and not training.is_the_same_as(other)
    )
    advice = Advice(training, family, request)
    law = None
    try:
        law = trusted_law(training, family)
        refuse_choice(training, law)
        decision = decide(law, training, family, request, ways)
    except NoForecast as error:
        reason = words.finished(training) if training.is_over else str(error)
        return replace(advice, law=law, no_advice_because=reason)
    return replace(advice, law=law, decision=decision, doubts=doubts(training, law, decision))


def plain(value: float) -> float | None:
    """A number as JSON can hold it; None where it is not finite."""
    return float(value) if np.isfinite(value) else None
