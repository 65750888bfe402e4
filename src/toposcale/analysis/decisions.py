"""Finish, extend, or stop and start another size: judged by what each choice costs, the compute already spent included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import FRACTIONS
from toposcale.analysis.histories import histories_from_tables
from toposcale.analysis.regret import (
    POLICIES,
    Choice,
    Outcome,
    judged,
    mean_regret,
    usual_choices,
)
from toposcale.analysis.series import cells_of
from toposcale.forecasting.advice import USUAL, Question, decide, trusted_law
from toposcale.forecasting.candidates import (
    FINISH,
    Candidate,
    candidates,
    compute_of,
    course_gap,
    rest_of,
)
from toposcale.forecasting.history import History
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.prediction import NoForecast
from toposcale.io import schemas

RANDOM_STOPS = 8
"""Moments, evenly spread over the rest of the run, that stand for a stop at random."""

SAME_COMPUTE = 0.05
"""A run that was trained counts as a candidate's truth where its compute differs by at most this share."""


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
    """The tables candidates, decisions and decision_evaluation; `decision` is that section of the configuration."""
    histories = histories_from_tables(features, metrics, training, models, schedules=schedules)
    question = Question(decision["remaining"], decision["sizes"])
    considered = candidate_table(histories, fractions=fractions, question=question, seed=seed)
    decided = decision_table(histories, fractions=fractions, seed=seed)
    by_cell = decided.assign(cell=decided["model"].map(cells_of(models)))
    evaluated = mean_regret(by_cell, ["fraction"], group="cell", resamples=resamples, seed=seed)
    evaluated = schemas.TABLES["decision_evaluation"].frame(evaluated.drop(columns=["n_models"]))
    return {"candidates": considered, "decisions": decided, "decision_evaluation": evaluated}


def candidate_table(
    histories: Sequence[History],
    *,
    fractions: Sequence[float] = FRACTIONS,
    question: Question = USUAL,
    seed: int = 0,
) -> pd.DataFrame:
    """The `candidates` table: of runs under way now, and of finished runs as they stood at the first of `fractions`."""
    rows = []
    for history in histories:
        is_live = not history.is_over
        share = history.last_step / history.final_step if is_live else min(fractions)
        if is_live:
            others = [run for run in _family(history, histories) if run.model != history.model]
        else:
            others = _smaller(history, histories)
        try:
            now = history if is_live else history.first(share)
            decision = decide(trusted_law(now, others), now, others, question, seed)
        except NoForecast as error:
            rows.append(
                {
                    "model": history.model,
                    "fraction": share,
                    "candidate": "",
                    "reason": str(error),
                    "is_live": is_live,
                }
            )
            continue
        rows += [
            {
                "model": history.model,
                "fraction": share,
                **option.told,
                "compute": option.candidate.compute,
                "is_sure": option.is_sure and history.plan_known and len(decision.options) > 1,
                "is_live": is_live,
                "reason": "",
            }
            for option in decision.options
        ]
    return schemas.TABLES["candidates"].frame(rows)


def _family(history: History, histories: Sequence[History]) -> list[History]:
    return [other for other in histories if other.family == history.family]


def _smaller(history: History, histories: Sequence[History]) -> list[History]:
    """What is taken as known at a moment of a finished run, beside its own beginning: the smaller sizes."""
    return [
        other
        for other in _family(history, histories)
        if other.n_parameters < history.n_parameters and other.is_finished
    ]


def decision_table(
    histories: Sequence[History], *, fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> pd.DataFrame:
    """The `decisions` table: every finished run that has a larger size in its family, at every fraction, by every policy.

    The moment: the run has come to `fraction`, the smaller sizes are finished, the larger ones have not started; what the
    run would still spend is spent either way. The advice takes the candidate of the least expected regret, and finishes
    where there is no forecast to be believed; `stop_now` starts the next larger size; `stop_at_random` does so after a
    random part of the rest (the mean over `RANDOM_STOPS` moments). The truth of finishing was observed. That of a start
    was, where such a run was trained; else it is the joint law's, fitted to all finished runs.
    """
    rows: list[dict[str, Any]] = []
    laws: dict[str, Joint] = {}
    for history in histories:
        family = [other for other in _family(history, histories) if other.is_finished]
        larger = [other for other in family if other.n_parameters > history.n_parameters]
        if not larger or not history.is_finished or not np.isfinite(history.tokens_per_step):
            continue
        if history.family not in laws:
            laws[history.family] = Joint().fit(family)  # to all finished runs that it reads
        for fraction in fractions:
            smaller = _smaller(history, histories)
            rows += _decision(history, smaller, larger, laws[history.family], fraction, seed)
    return schemas.TABLES["decisions"].frame(rows)


def _decision(
    history: History,
    smaller: Sequence[History],
    larger: Sequence[History],
    law: Joint,
    fraction: float,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """The rows of one decision, or a row of every policy with the reason why there is none."""
    now = history.first(fraction)
    # Sizes that have not started: their plan alone is known, not one loss.
    others = [*(_unstarted(other) for other in larger), *smaller]
    found = candidates(now, others, multiples=())
    starts = [candidate for candidate in found if candidate.is_start]
    moment = {
        "model": history.model,
        "fraction": fraction,
        "spent": float(compute_of(now, now.last_step)),
        "remaining": rest_of(now),
        "n_candidates": len(found),
    }
    if not starts or not len(now.loss_curve[0]):
        for policy in POLICIES:
            yield moment | {
                "policy": policy,
                "reason": "no other size can be started" if not starts else "no loss",
            }
        return
    outcomes = {candidate.name: _outcome(candidate, history, larger, law) for candidate in found}
    bigger = [candidate for candidate in starts if candidate.target.n_parameters > history.n_parameters]
    following = min(bigger, key=lambda candidate: candidate.target.n_parameters, default=None)
    choices = usual_choices(_advised(now, others, seed), following.name if following else "")
    at_random = Outcome(np.nan)
    if following:  # else the rest buys no training of a larger size
        at_random = _random_stop(now, history, following, larger, law, outcomes[FINISH])
    for row in judged(choices, outcomes, at_random):
        yield moment | row


def _advised(now: History, others: Sequence[History], seed: int) -> Choice:
    """The advice; a run of which there is no forecast goes on as planned."""
    try:
        best = decide(trusted_law(now, others), now, others, Question(sizes=()), seed).best
    except NoForecast as error:
        return Choice(FINISH, reason=str(error))
    return Choice(best.candidate.name, best.probability)


def _unstarted(history: History) -> History:
    nothing = np.empty(0)
    return replace(
        history,
        steps=nothing,
        losses=nothing,
        gradient_norms=nothing,
        checkpoint_steps=nothing,
        checkpoint_losses=nothing,
        features={},
    )


def _outcome(candidate: Candidate, history: History, larger: Sequence[History], law: Joint) -> Outcome:
    if candidate.name == FINISH:
        return Outcome(history.final_loss)
    for other in larger:
        whole = float(compute_of(other, other.final_step))
        same_size = other.n_parameters == candidate.target.n_parameters
        if same_size and other.plan_known and abs(whole / candidate.compute - 1) <= SAME_COMPUTE:
            plan = other.rates_to(other.final_step)
            if course_gap(plan, candidate.target.learning_rates) <= 0.1:
                return Outcome(other.final_loss)
    return Outcome(float(law.predict([candidate.target])[0][0]), False)


def _random_stop(
    now: History,
    history: History,
    following: Candidate,
    larger: Sequence[History],
    law: Joint,
    finished: Outcome,
) -> Outcome:
    """Mean loss of stopping at evenly spread moments of the rest and starting the next size with what is then left."""
    like = [other for other in larger if other.n_parameters == following.target.n_parameters]
    truths = []
    for share in (np.arange(RANDOM_STOPS) + 0.5) / RANDOM_STOPS:
        found = candidates(now, [_unstarted(like[0])], (1 - share) * rest_of(now), ())
        starts = [candidate for candidate in found if candidate.is_start]
        # Too little is left to start anything: it was as good as finished.
        truths.append(_outcome(starts[0], history, like, law) if starts else finished)
    return Outcome(float(np.mean([t.loss for t in truths])), all(t.observed for t in truths))
