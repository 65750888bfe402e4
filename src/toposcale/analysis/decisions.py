"""Finish, extend, or stop and start another size: the advice on every run, and what following it would have cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import FRACTIONS
from toposcale.analysis.regret import NO_OUTCOME, POLICIES, Choice, Outcome, judged, mean_regret, usual_choices
from toposcale.analysis.series import configurations_of
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.decision.advice import Advice, advise_on
from toposcale.decision.expected_regret import FINISH, USUAL, Candidate, Request, candidates, course_gap
from toposcale.io import schemas
from toposcale.laws.joint import Joint
from toposcale.runs.training_run import TrainingRun

RANDOM_STOPS = 8
"""Moments, evenly spread over the rest of the run, that stand for a stop at random."""

SAME_COMPUTE, SAME_COURSE = 0.05, 0.1
"""A run that was trained counts as a candidate's truth where its compute differs by at most this share, and its rate, in
units of the peak, by at most so much."""


def decision_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    training: pd.DataFrame,
    schedules: pd.DataFrame,
    *,
    fractions: Sequence[float],
    decision: Mapping[str, Any],
    seed: int,
    resamples: int,
) -> dict[str, pd.DataFrame]:
    """The tables advice, candidates, decisions, decision_evaluation; `decision` is that section of the configuration."""
    trainings = trainings_from_tables(features, metrics, training, models, schedules=schedules)
    advised = moments(trainings, fractions, Request(decision["remaining"], decision["sizes"]))
    evaluated = decision_table(trainings, fractions=fractions)
    by_configuration = evaluated.assign(configuration=evaluated["model"].map(configurations_of(models)))
    means = mean_regret(by_configuration, ["fraction"], group="configuration", resamples=resamples, seed=seed)
    return {
        "advice": advice_table(advised),
        "candidates": candidate_table(advised),
        "decisions": evaluated,
        "decision_evaluation": schemas.TABLES["decision_evaluation"].frame(means.drop(columns=["n_models"])),
    }


class Moment(NamedTuple):
    """The advice on a training at a share of its steps; is_live: as it stands now, else as it stood then."""

    share: float
    is_live: bool
    advice: Advice

    @property
    def key(self) -> dict[str, Any]:
        """The columns that name it."""
        return {"model": self.advice.training.model, "fraction": self.share, "is_live": self.is_live}


def moments(
    trainings: Sequence[TrainingRun], fractions: Sequence[float] = FRACTIONS, request: Request = USUAL
) -> list[Moment]:
    """Of trainings under way now, and of finished ones as they stood at the first of `fractions`."""
    made = []
    for training in trainings:
        if training.is_over:
            share = min(fractions)
            advice = advise_on(training.first(share), _smaller(training, trainings), request)
        else:
            share = training.last_step / training.final_step
            advice = advise_on(training, trainings, request)
        made.append(Moment(share, not training.is_over, advice))
    return made


def advice_table(advised: Iterable[Moment]) -> pd.DataFrame:
    """The `advice` table: what to do, a row a training."""
    columns = schemas.TABLES["advice"].names
    return schemas.TABLES["advice"].frame(
        {name: value for name, value in advice.items() if name in columns}
        | {"sentence": advice.sentence, "unsure_because": "; ".join(advice.doubts)}
        | moment.key
        for moment in advised
        for advice in [moment.advice]
    )


def candidate_table(advised: Iterable[Moment]) -> pd.DataFrame:
    """The `candidates` table: a row for each way to spend the compute that is left."""
    rows = []
    for moment in advised:
        advice, decision = moment.advice, moment.advice.decision
        if decision is None:
            rows.append(moment.key | {"candidate": "", "is_sure": False, "reason": advice.no_advice_because})
            continue
        for option in decision.options:
            facts = {"compute": option.candidate.compute, "reason": ""}
            is_sure = advice.is_sure and option is decision.best
            rows.append(moment.key | option.as_row() | facts | {"is_sure": is_sure})
    return schemas.TABLES["candidates"].frame(rows)


def _finished_of_family(training: TrainingRun, trainings: Sequence[TrainingRun]) -> list[TrainingRun]:
    return [other for other in trainings if other.family == training.family and other.is_finished]


def _smaller(training: TrainingRun, trainings: Sequence[TrainingRun]) -> list[TrainingRun]:
    """What is taken as known at a moment of a finished run, beside its own beginning: the smaller sizes."""
    family = _finished_of_family(training, trainings)
    return [other for other in family if other.n_parameters < training.n_parameters]


class Hindsight(NamedTuple):
    """A finished run, the larger sizes of its family, and the law that was fitted to all of them."""

    training: TrainingRun
    larger: list[TrainingRun]
    law: Joint

    def outcome(self, candidate: Candidate) -> Outcome:
        """What a candidate led to: observed where such a run was trained, else the loss that the law gives."""
        if candidate.name == FINISH:
            return Outcome(self.training.final_loss)
        for other in self.larger:
            if (
                other.n_parameters == candidate.target.n_parameters
                and other.plan_known
                and abs(other.compute(other.final_step) / candidate.compute - 1) <= SAME_COMPUTE
                and course_gap(other.whole_plan, candidate.target.learning_rates) <= SAME_COURSE
            ):
                return Outcome(other.final_loss)
        return Outcome(float(self.law.predict([candidate.target])[0][0]), False)

    def random_stop(self, now: TrainingRun, size: float) -> Outcome:
        """The mean over stops at evenly spread moments of the rest, each starting this size with what is then left."""
        plan = next(other for other in self.larger if other.n_parameters == size).unstarted()
        outcomes = []
        for share in (np.arange(RANDOM_STOPS) + 0.5) / RANDOM_STOPS:
            ways = candidates(now, [plan], (1 - share) * now.compute_left, ())
            start = next((candidate for candidate in ways if candidate.is_start), None)
            # Too little is left to start anything: it was as good as finished.
            outcomes.append(self.outcome(start) if start else Outcome(self.training.final_loss))
        return Outcome(float(np.mean([o.loss for o in outcomes])), all(o.observed for o in outcomes))


def decision_table(trainings: Sequence[TrainingRun], *, fractions: Sequence[float] = FRACTIONS) -> pd.DataFrame:
    """The `decisions` table: every finished run that has a larger size in its family, at every fraction, by every policy.

    The moment: the run has come to `fraction`, the smaller sizes are finished, the larger ones have not started; what the
    run would still spend is spent either way. The advice takes the candidate of the least expected regret, and finishes
    where there is none; `stop_now` starts the next larger size; `stop_at_random` does so after a
    random part of the rest (the mean over `RANDOM_STOPS` moments). The truth of finishing was observed. That of a start
    was, where such a run was trained; else it is the joint law's, fitted to all finished runs.
    """
    rows: list[dict[str, Any]] = []
    laws: dict[str, Joint] = {}
    for training in trainings:
        family = _finished_of_family(training, trainings)
        larger = [other for other in family if other.n_parameters > training.n_parameters]
        if not larger or not training.is_finished or not np.isfinite(training.tokens_per_step):
            continue
        if training.family not in laws:
            laws[training.family] = Joint().fit(family)  # to all finished runs that it reads
        hindsight = Hindsight(training, larger, laws[training.family])
        for fraction in fractions:
            rows += _decision(hindsight, _smaller(training, trainings), fraction)
    return schemas.TABLES["decisions"].frame(rows)


def _decision(hindsight: Hindsight, smaller: Sequence[TrainingRun], fraction: float) -> Iterator[dict[str, Any]]:
    """The rows of one decision, or a row of every policy with the reason why there is none."""
    training, now = hindsight.training, hindsight.training.first(fraction)
    # Sizes that have not started: their plan alone is known, not one loss.
    others = [*(other.unstarted() for other in hindsight.larger), *smaller]
    ways = candidates(now, others, multiples=())
    starts = [candidate for candidate in ways if candidate.is_start]
    moment = {
        "model": training.model,
        "fraction": fraction,
        "spent": now.compute(now.last_step),
        "remaining": now.compute_left,
        "n_candidates": len(ways),
    }
    if not starts or not now.has_begun:
        reason = "no other size can be started" if not starts else "no loss"
        yield from (moment | {"policy": policy, "reason": reason} for policy in POLICIES)
        return
    outcomes = {candidate.name: hindsight.outcome(candidate) for candidate in ways}
    bigger = [candidate for candidate in starts if candidate.target.n_parameters > training.n_parameters]
    following = min(bigger, key=lambda candidate: candidate.target.n_parameters, default=None)
    advice = advise_on(now, others, Request(sizes=()))
    choices = usual_choices(Choice.of(advice), following.name if following else "")
    at_random = hindsight.random_stop(now, following.target.n_parameters) if following else NO_OUTCOME
    for row in judged(choices, outcomes, at_random):
        yield moment | row
