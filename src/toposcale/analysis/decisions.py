"""Finish, extend, or stop and start another size: judged by what each choice costs, the compute already spent included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import FRACTIONS
from toposcale.analysis.histories import histories_from_tables
from toposcale.analysis.regret import POLICIES, Outcome, judged, mean_regret, usual_choices
from toposcale.analysis.series import cells_of
from toposcale.forecasting.decision import (
    FINISH,
    MULTIPLES,
    Candidate,
    Option,
    candidates,
    compute_of,
    course_gap,
    rest_of,
    weigh,
)
from toposcale.forecasting.forecasters import refusal
from toposcale.forecasting.history import MINIMUM_POINTS, History
from toposcale.forecasting.joint import Joint, target_of
from toposcale.io import schemas

BUDGET_USED_UP = "the compute that is left does not pay for one step"
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
    remaining, sizes = decision["remaining"], decision["sizes"]
    considered = candidate_table(histories, fractions=fractions, remaining=remaining, sizes=sizes, seed=seed)
    decided = decision_table(histories, fractions=fractions, seed=seed)
    by_cell = decided.assign(cell=decided["model"].map(cells_of(models)))
    evaluated = mean_regret(by_cell, ["fraction"], group="cell", resamples=resamples, seed=seed)
    evaluated = schemas.TABLES["decision_evaluation"].frame(
        evaluated.drop(columns=["n_models", "n_undecided"])
    )
    return {"candidates": considered, "decisions": decided, "decision_evaluation": evaluated}


def known_at(history: History, histories: Sequence[History]) -> list[History]:
    """What a run under way can learn from: itself, and what the others of its family have shown so far."""
    others = [h for h in histories if h.family == history.family and h.model != history.model]
    return [*others, history]


def options_of(
    history: History,
    known: Sequence[History],
    *,
    remaining: float | None = None,
    sizes: Sequence[float] = MULTIPLES,
    seed: int = 0,
) -> tuple[Joint, list[Option], str]:
    """The law behind a decision, the candidates with their forecasts, best first, and why there are none."""
    joint = Joint().fit([run for run in known if len(run.loss_curve[0])])
    if not np.isfinite(history.tokens_per_step):
        return joint, [], f"set models.{history.model}.tokens_per_step, the tokens of one step"
    if joint.reason or len(history.loss_curve[0]) < MINIMUM_POINTS:
        return joint, [], joint.reason or "it has too few losses after the warm-up"
    others = [run for run in known if run.model != history.model]
    if reason := refusal(history, float(joint.predict([target_of(history)])[0][0])):
        return joint, [], reason
    options = weigh(joint, candidates(history, others, remaining, sizes), seed)
    return joint, options, "" if options else BUDGET_USED_UP


def candidate_table(
    histories: Sequence[History],
    *,
    fractions: Sequence[float] = FRACTIONS,
    remaining: float | None = None,
    sizes: Sequence[float] = MULTIPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """The `candidates` table: of runs under way now, and of finished runs as they stood at the first of `fractions`."""
    rows = []
    for history in histories:
        if not len(history.loss_curve[0]):
            continue
        is_live = not history.is_over
        share = history.last_step / history.final_step if is_live else min(fractions)
        known = known_at(history, histories) if is_live else _past(history, histories, share)
        options = options_of(known[-1], known, remaining=remaining, sizes=sizes, seed=seed)[1]
        rows += [
            {
                "model": history.model,
                "fraction": share,
                "candidate": option.candidate.name,
                "n_parameters": round(option.candidate.target.n_parameters),
                "steps": option.candidate.steps,
                "compute": option.candidate.compute,
                "loss": option.loss,
                "loss_low": option.low,
                "loss_high": option.high,
                "probability": option.probability,
                "at_stake": option.at_stake,
                "is_live": is_live,
            }
            for option in options
        ]
    return schemas.TABLES["candidates"].frame(rows)


def _past(history: History, histories: Sequence[History], fraction: float) -> list[History]:
    """What was known when a finished run stood at `fraction`: the smaller sizes, and last its own beginning."""
    smaller = [
        other
        for other in histories
        if other.family == history.family and other.n_parameters < history.n_parameters and other.is_finished
    ]
    return [*smaller, history.first(fraction)]


def decision_table(
    histories: Sequence[History], *, fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> pd.DataFrame:
    """The `decisions` table: every finished run that has a larger size in its family, at every fraction, by every policy.

    The moment: the run has come to `fraction`, the smaller sizes are finished, the larger ones have not started; what the
    run would still spend is spent either way. The advice takes the candidate with the least loss at stake where it is the
    best with a probability of `SURE`, and finishes otherwise; `stop_now` starts the next larger size; `stop_at_random`
    does so after a random part of the rest (the mean over `RANDOM_STOPS` moments). The truth of finishing was observed.
    That of a start was, where such a run was trained; else it is the joint law's, fitted to all finished runs.
    """
    rows: list[dict[str, Any]] = []
    laws: dict[str, Joint] = {}
    for history in histories:
        family = [other for other in histories if other.family == history.family and other.is_finished]
        larger = [other for other in family if other.n_parameters > history.n_parameters]
        if not larger or not history.is_finished or not np.isfinite(history.tokens_per_step):
            continue
        if history.family not in laws:
            laws[history.family] = Joint().fit(family)
        for fraction in fractions:
            known = _past(history, histories, fraction)
            rows += _decision(history, known, larger, laws[history.family], fraction, seed)
    return schemas.TABLES["decisions"].frame(rows)


def _decision(
    history: History,
    known: Sequence[History],
    larger: Sequence[History],
    law: Joint,
    fraction: float,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """The rows of one decision, or a row of every policy with the reason why there is none."""
    now = known[-1]
    # Sizes that have not started: their plan alone is known, not one loss.
    unstarted = [_unstarted(other) for other in larger]
    _, options, reason = options_of(now, [*unstarted, *known], sizes=(), seed=seed)
    moment = {
        "model": history.model,
        "fraction": fraction,
        "spent": float(compute_of(now, now.last_step)),
        "remaining": rest_of(now),
        "n_candidates": len(options),
    }
    if reason or (options[0].candidate.name == FINISH and len(options) == 1):
        for policy in POLICIES:
            yield moment | {"policy": policy, "reason": reason or "no other size can be started"}
        return
    outcomes = {option.candidate.name: _outcome(option.candidate, history, larger, law) for option in options}
    starts = [option.candidate for option in options if option.candidate.is_start]
    bigger = [candidate for candidate in starts if candidate.target.n_parameters > history.n_parameters]
    following = min(bigger, key=lambda candidate: candidate.target.n_parameters, default=None)
    if following is None:  # the rest buys no training of a larger size
        rows = judged(usual_choices(options), outcomes)
    else:
        at_random = _random_stop(now, history, following, larger, law, outcomes[FINISH])
        rows = judged(usual_choices(options, following.name), outcomes, at_random)
    for row in rows:
        yield moment | row


def _unstarted(history: History) -> History:
    return History(
        history.model,
        history.n_parameters,
        history.tokens_per_step,
        history.final_step,
        learning_rates=history.learning_rates,
        family=history.family,
        plan=history.plan,
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
