"""The advice on a training run: continue or extend it, or train another size from scratch.

`advise_on` makes it for every door: the command, `toposcale.advise`, the workflow, the monitor and the watch page. Tables,
pages and texts only render an `Advice`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toposcale.forecasting.decision import wording
from toposcale.forecasting.decision.candidates import (
    USUAL,
    BestSize,
    Candidate,
    Decision,
    Request,
    TargetLoss,
    all_candidates,
    best_size,
    decide,
    forecast_target_loss,
)
from toposcale.forecasting.decision.decay import DecayDecision, when_to_decay
from toposcale.forecasting.decision.on_track import Reference, Track, tracks_of
from toposcale.forecasting.decision.reasons import (
    NOT_STARTED,
    PUBLISHED_RANGE,
    coverage_remarks,
    low_confidence_reasons,
)
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.law import ForecastCurve, Law
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.priors import decades_away
from toposcale.forecasting.laws.published_law import PublishedLaw
from toposcale.forecasting.laws.record import Record, record_of
from toposcale.forecasting.results import MappedResult
from toposcale.forecasting.runs.checks import refuse_objective
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast
from toposcale.io.files import finite_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

VERSION = 2
"""Version of the keys of an advice as JSON."""

FURTHEST_SIZE = 1.0
"""Decades outside the published sizes beyond which a choice needs `MIN_SIZES` sizes of the family."""

MIN_SIZES = 3
"""In the project's own decisions (3K to 46K parameters) fewer sizes had a mean regret of .1 nats, continuing .02; three
sizes had 0."""


@dataclass(frozen=True, eq=False)
class Advice(MappedResult):
    """Forecast of a training run and what to do with the compute that is left of it.

    As a mapping it has the keys of its JSON (docs/advice.md); printed, its last line says what to do.

    Parameters
    ----------
    run : TrainingRun
        The run that is decided on.
    others : tuple of TrainingRun
        Other runs of its family.
    request : Request
        Remaining compute, candidate sizes and target loss.
    law : Law or None
        Fitted law; None where there is no forecast.
    decision : Decision or None
        Candidates by expected regret; None where there is no advice.
    tracks : tuple of Track
        The present loss and its forecasts by finished runs of the family and by published runs.
    reasons : tuple of str
        Reasons for low confidence; an answer without one is confident.
    no_advice_because : str
        Reason why there is no advice.

    Examples
    --------
    >>> import toposcale
    >>> advice = toposcale.advise(n_parameters=1e9, tokens_per_step=5e5, steps=20_000)
    >>> advice["choice"], advice["confident"]
    ('start 0.5 x this run', False)
    >>> sorted({row["kind"] for row in advice["candidates"]})
    ['continue', 'scale_up']
    """

    run: TrainingRun
    others: tuple[TrainingRun, ...]
    request: Request
    law: Law | None = None
    decision: Decision | None = None
    tracks: tuple[Track, ...] = ()
    reasons: tuple[str, ...] = ()
    no_advice_because: str = ""

    @property
    def choice(self) -> str:
        """Name of the candidate to take; "" where there is no advice."""
        return self.decision.best.candidate.name if self.decision else ""

    @property
    def is_confident(self) -> bool:
        """Return whether there is a choice and no reason for low confidence."""
        return self.decision is not None and not self.reasons

    @property
    def remaining(self) -> float:
        """FLOP that will still be spent."""
        return self.run.flop_left if self.request.remaining is None else float(self.request.remaining)

    @property
    def sentence(self) -> str:
        """Recommendation in a sentence, or the reason why there is no advice."""
        if self.decision:
            return wording.what_to_do(self.decision, self.reasons)
        return wording.no_advice(self.no_advice_because)

    @property
    def on_track_sentences(self) -> list[str]:
        """Sentences that compare the loss with other runs, or the reason why there is no comparison."""
        return wording.tracks(self.tracks, self.run)

    @cached_property
    def end(self) -> Prediction | None:
        """Forecast of the loss at the end of the schedule."""
        return self.law.forecast(self.run) if self.law else None

    @cached_property
    def decay(self) -> DecayDecision | None:
        """Start and length of the decay; None if the rate decays already or is unknown, or there is no advice."""
        if self.law is None or self.decision is None or self.run.loss_curve.is_empty:
            return None
        return when_to_decay(self.law, self.run)

    @property
    def record(self) -> Record | None:
        """Record of the forecasts of published runs like this one; None without a forecast."""
        return record_of(self.run) if isinstance(self.law, Joint) else None

    def track(self, reference: Reference) -> Track | None:
        """Return the comparison of the present loss with these runs, where there is one."""
        return next((track for track in self.tracks if track.reference is reference), None)

    @cached_property
    def forecast_curve(self) -> ForecastCurve | None:
        """Forecast from the next step to the end."""
        return self.law.forecast_curve(self.run) if self.law else None

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Keys and values of the advice as JSON."""
        run, end, schedule = self.run, self.end, self.run.schedule
        candidates, dropped = (self.decision.candidates, self.decision.dropped) if self.decision else ((), ())
        return {
            "version": VERSION,
            "model": run.model,
            "step": run.progress.step,
            "final_step": run.final_step,
            "loss": finite_or_none(run.progress.loss),
            "best_loss": finite_or_none(run.best.loss),
            "best_step": run.best.step,
            "metric": run.metric,
            "spent_flop": finite_or_none(run.flop_of_steps(run.progress.step)),
            "remaining_flop": finite_or_none(self.remaining),
            "schedule_provenance": schedule.provenance.value,
            "schedule_unknown_because": schedule.unknown_because,
            "learning_rate_now": finite_or_none(schedule.rate_at(run.progress.step)),
            "learning_rate_at_the_end": finite_or_none(schedule.rate_at(run.final_step)) if schedule.is_known else None,
            **(end.columns("forecast") if end else dict.fromkeys(("forecast", "forecast_low", "forecast_high"))),
            "loss_noise": finite_or_none(run.noise) or None,
            "models_read": len(self.law.runs_) if self.law else 0,
            "forecast_curve": self.forecast_curve._asdict() if self.forecast_curve else {},
            "target_loss": self.request.target_loss if self._target else None,
            **(self._target.as_dict() if self._target else {}),
            "candidates": [weighed.as_row() | {"flop": weighed.candidate.compute} for weighed in candidates],
            "dropped_candidates": [candidate._asdict() for candidate in dropped],
            "choice": self.choice,
            "confident": self.is_confident,
            "low_confidence_reasons": list(self.reasons),
            **self._choice_values(),
            **(self._best_size.as_dict() if self._best_size else {"best_size": None}),
            "no_advice_because": self.no_advice_because,
            "assumed": list(self._assumed),
            "find_out_first": self._find_out_first,
            "decay": self.decay.as_dict() if self.decay else None,
            "on_track": [track._asdict() for track in self.tracks],
            "record": self.record.as_dict() if self.record else None,
        }

    def _choice_values(self) -> dict[str, Any]:
        """Return the numbers of the choice; all None without one: the best of one candidate is not a finding."""
        keys = ("probability", "scale_up_probability", "gain", "gain_low", "gain_high", "expected_regret")
        decision = self.decision
        if decision is None or not decision.is_a_choice:
            return dict.fromkeys(keys)
        values = decision.best.as_row() | {"scale_up_probability": decision.scale_up_probability}
        return {key: values[key] for key in keys}

    @cached_property
    def _target(self) -> TargetLoss | None:
        """Step at which the target loss was, or will be, reached; None without a target or a law."""
        loss = self.request.target_loss
        return None if self.law is None or loss is None else forecast_target_loss(self.law, self.run, loss)

    @cached_property
    def _best_size(self) -> BestSize | None:
        """Best size from scratch; of one known size it would be the prior."""
        if self.decision is None or self.law is None or self.law.n_sizes < 2 or not self.remaining > 0:
            return None
        return best_size(self.law, self.run, self.remaining)

    @property
    def _assumed(self) -> tuple[str, ...]:
        """Assumptions, one clause each; without a law the notes on the log."""
        law, notes = self.law, self.run.notes
        return wording.assumed(self.run, self.others, law, self.decision) if law else notes

    @property
    def _find_out_first(self) -> str:
        """Observation that would decide an open choice."""
        if self.law is None or self.decision is None:
            return ""
        return wording.find_out_first(self.run, self.law, self.decision, self.tracks, is_confident=self.is_confident)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        step, final_step = self.run.progress.step, self.run.final_step
        return f"<Advice on {self.run.model} at step {step:,} of {final_step:,}: {self.sentence}>"

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each candidate, the best one first; none where nothing can be forecast."""
        import pandas as pd

        return pd.DataFrame(self["candidates"])

    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the losses so far, their forecast, and the candidates at the end."""
        from toposcale.forecasting.decision.picture import draw  # most advices are only printed

        candidates = self.decision.candidates if self.decision else ()
        return draw(self.run, self.forecast_curve, candidates, self.decay, ax)

    @property
    def _summary(self) -> str:
        return f"{self.run.model}: {self.sentence}"

    def text(self, width: int | None = None) -> str:
        """Return the advice as text, wrapped to `width` columns; the last line says what to do."""
        on_track = [f"  On track   {sentence}" for sentence in self.on_track_sentences]
        if not self.run.has_steps_left and self.decision is None:
            return wording.wrapped([wording.finished_sentence(self.run), *on_track], width)
        lines = [wording.progress_sentence(self.run), f"  Schedule   {wording.schedule_clause(self.run)}"]
        if self.law and self.end:
            lines.append(f"  At its end {wording.end_forecast(self.end, self.law)}")
        lines += on_track
        if self.decision:
            lines += ["", *wording.candidate_lines(self.decision, self.remaining, width), ""]
        if self.decay:
            lines += [f"  Decay      {sentence}" for sentence in wording.decay_sentences(self.decay, self.run)]
        if self._target is not None:
            lines.append(f"  Target     {wording.target_sentence(self['target_loss'], self._target)}")
        if (best := self._best_size) and best.n_parameters > 0:
            near = f"{best.low:.2g} to {best.high:.2g} are within 0.01 nats"
            lines.append(f"  Best size from scratch: {best.n_parameters:.2g} parameters ({near})")
        if self._assumed:
            lines += ["  Assumed:", *(f"    - {clause}" for clause in self._assumed)]
        if self._find_out_first:
            lines.append(f"  Find out first: {self._find_out_first}.")
        if self.decision is None:
            known = [
                f"    - {clause}" for clause in wording.known_of_small_run(self.run, self.law, self.no_advice_because)
            ]
            lines += ["  Known all the same:", *known] if known else []
        if self.record:
            lines.append(f"  Runs like yours: {self.record}.")
        return wording.wrapped([*lines, f"  => {self.sentence}"], width)


def advise_on(
    run: TrainingRun,
    others: Sequence[TrainingRun] = (),
    request: Request = USUAL,
    *,
    among: Sequence[Candidate] | None = None,
) -> Advice:
    """Return the advice on a run as it stands.

    Parameters
    ----------
    run : TrainingRun
        The run that is decided on.
    others : sequence of TrainingRun, optional
        Finished runs, runs under way and sizes that have not started; those of another family are not read.
    request : Request, optional
        Compute to come, multiples of the size and target loss.
    among : sequence of Candidate, optional
        The candidates, where the request does not name them.

    Returns
    -------
    Advice
        Forecast and decision.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, RunFacts, TrainingRun, advise_on
    >>> schedule = LearningRateSchedule(4000, np.full(4001, 1e-3))
    >>> run = TrainingRun(RunFacts("25M", 25_000_000, tokens_per_step=500_000), schedule)
    >>> print(advise_on(run).sentence)
    No advice: it has no losses yet.
    """
    family = tuple(
        other
        for other in others
        if other.family == run.family and other.model != run.model and not run.is_the_same_as(other)
    )
    # Of a run that is over the family says nothing more.
    advice = Advice(run, family, request, tracks=tracks_of(run, family if run.has_steps_left else ()))
    law = None
    try:
        law = Joint().fit(run, family)
        refuse_choice(run, law)
        decision = decide(law, run, all_candidates(run, family, request) if among is None else among)
    except NoForecast as error:
        because = str(error) if run.has_steps_left else wording.finished_sentence(run)
        return replace(advice, law=law, no_advice_because=because)
    reasons = low_confidence_reasons(run, law, decision, advice.tracks)
    return replace(advice, law=law, decision=decision, reasons=reasons)


def refuse_choice(run: TrainingRun, law: Joint) -> None:
    """Raise NoForecast where neither published runs nor the family determine how the loss scales with size."""
    if law.n_sizes < MIN_SIZES and decades_away(run.n_parameters) > FURTHEST_SIZE:
        raise NoForecast(
            f"{run.n_parameters:,} parameters are far outside the sizes of published runs, {PUBLISHED_RANGE}, so how the "
            "loss scales with size is unknown here; give finished runs of two more sizes (--known; in a run under models)"
            + "".join(f"; {remark}" for remark in coverage_remarks(run))
        )


def advise_before_start(run: TrainingRun, others: Sequence[TrainingRun] = (), request: Request = USUAL) -> Advice:
    """Return the advice on a run that has not started: that of the published scaling law, and never confident."""
    advice, law = Advice(run, tuple(others), request), PublishedLaw()
    try:
        refuse_objective(run)
        decision = decide(law, run, all_candidates(run, others, request))
        return replace(advice, law=law, decision=decision, reasons=(NOT_STARTED,))
    except NoForecast as error:
        return replace(advice, no_advice_because=str(error))
