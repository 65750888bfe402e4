"""The advice on every run, and the regret of following it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import FRACTIONS, bootstrap_interval
from toposcale.analysis.series import configurations_of
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.forecasting.decision.advice import Advice, advise_on
from toposcale.forecasting.decision.candidates import CONTINUE, USUAL, Candidate, Request, candidates
from toposcale.forecasting.laws.joint import Joint, largest_run
from toposcale.forecasting.runs.learning_rate_schedule import shape_distance
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas

ADVICE = "advice"
ALWAYS_CONTINUE = "always_continue"
NEXT_SIZE = "next_size"
RANDOM_STOP = "random_stop"
POLICIES = {
    ADVICE: "the advice",
    ALWAYS_CONTINUE: "always continuing",
    NEXT_SIZE: "always the next size",
    RANDOM_STOP: "stopping at random",
}
"""Policies by their name in the tables, with their name in sentences."""
AT_RANDOM = "random stop"
"""Choice of `RANDOM_STOP`: not a candidate, but a mean over points of the rest."""

OBSERVED = "observed"
"""Truth of a decision of which every outcome is that of a trained run."""
MODELLED = "modelled"
"""Truth of a decision of which an outcome is that of a law."""
DECISION = ["model", "fraction"]
"""Columns that identify a decision, where a model has one at a point."""

MEANS = [
    "n_decisions",
    "n_models",
    "n_confident",
    "n_modelled",
    "share_best",
    "regret",
    "regret_low",
    "regret_high",
    "regret_saved",
    "regret_saved_low",
    "regret_saved_high",
]
"""Columns of `mean_regret`. regret_saved: regret of always continuing less that of the policy."""
RANDOM_STOPS = 8
"""Decision points, evenly spread over the rest of the run, whose mean is a stop at random."""

SAME_COMPUTE = 0.05
"""Largest difference in compute, as a share, of a trained run to a candidate of which it is the observed outcome."""

SAME_SHAPE = 0.1
"""Largest difference of their learning rates, in units of the peak."""


class Outcome(NamedTuple):
    """The loss at the end of a choice, and whether it was observed; if not, it is that of a law."""

    loss: float
    observed: bool = True


NO_OUTCOME = Outcome(np.nan)


class Choice(NamedTuple):
    """Candidate that a policy chose, its probability of being the best, and whether that is confident; or "" and the reason
    why there is none."""

    candidate: str
    probability: float = np.nan
    reason: str = ""
    is_confident: bool = False

    @classmethod
    def of(cls, advice: Advice) -> Self:
        """Return the choice of the advice; a run without one continues."""
        if advice.decision is None:
            return cls(CONTINUE, reason=advice.no_advice_because)
        return cls(advice.choice, advice.decision.best.probability, is_confident=advice.is_confident)


def decision_tables(
    *, fractions: Sequence[float], decision: Mapping[str, Any], seed: int, resamples: int, **tables: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the tables advice, candidates, decisions, decision_evaluation.

    decision: that section of the configuration. tables: those of `trainings_from_tables`.
    """
    trainings = trainings_from_tables(**tables)
    advised = advised_runs(trainings, fractions, Request(decision["remaining"], decision["multiples"]))
    evaluated = decision_table(trainings, fractions=fractions)
    by_configuration = evaluated.assign(configuration=evaluated["model"].map(configurations_of(tables["models"])))
    means = mean_regret(by_configuration, ["fraction"], group="configuration", resamples=resamples, seed=seed)
    return {
        "advice": advice_table(advised),
        "candidates": candidate_table(advised),
        "decisions": evaluated,
        "decision_evaluation": schemas.TABLES["decision_evaluation"].frame(means.drop(columns=["n_models"])),
    }


class AdvisedRun(NamedTuple):
    """The advice on a run at a share of its steps; is_live: whether that is the present state of a run under way."""

    fraction: float
    is_live: bool
    advice: Advice

    @property
    def key(self) -> dict[str, Any]:
        """Columns that identify the run and the share."""
        return {"model": self.advice.run.model, "fraction": self.fraction, "is_live": self.is_live}


def advised_runs(
    trainings: Sequence[TrainingRun], fractions: Sequence[float] = FRACTIONS, request: Request = USUAL
) -> list[AdvisedRun]:
    """Return the advice on runs under way now, and on finished ones at the first fraction with an advice.

    Where no fraction has one, the first of all says why.
    """
    points = []
    for training in trainings:
        if training.has_steps_left:
            share = training.progress.step / training.final_step
            points.append(AdvisedRun(share, True, advise_on(training, trainings, request)))
            continue
        smaller, earlier = _smaller(training, trainings), []
        for share in sorted(fractions):
            earlier.append(AdvisedRun(share, False, advise_on(training.first(share), smaller, request)))
            if earlier[-1].advice.decision is not None:
                break
        points.append(earlier[-1] if earlier[-1].advice.decision is not None else earlier[0])
    return points


def advice_table(advised: Iterable[AdvisedRun]) -> pd.DataFrame:
    """Return the table `advice`: what to do, a row a run."""
    columns = schemas.TABLES["advice"].names
    return schemas.TABLES["advice"].frame(
        {name: value for name, value in advice.items() if name in columns}
        | {"sentence": advice.sentence, "on_track": "; ".join(advice.on_track_sentences)}
        | {"low_confidence_reasons": "; ".join(advice.reasons), "record": str(advice.record or "")}
        | point.key
        for point in advised
        for advice in [point.advice]
    )


def candidate_table(advised: Iterable[AdvisedRun]) -> pd.DataFrame:
    """Return the table `candidates`: a row for each candidate for the remaining compute."""
    rows = []
    for point in advised:
        advice, decision = point.advice, point.advice.decision
        if decision is None:
            rows.append(point.key | {"candidate": "", "is_confident": False, "reason": advice.no_advice_because})
            continue
        for weighed in decision.candidates:
            facts = {"compute": weighed.candidate.compute, "reason": ""}
            is_confident = advice.is_confident and weighed is decision.best
            rows.append(point.key | weighed.as_row() | facts | {"is_confident": is_confident})
    return schemas.TABLES["candidates"].frame(rows)


def _finished_of_family(training: TrainingRun, trainings: Sequence[TrainingRun]) -> list[TrainingRun]:
    return [other for other in trainings if other.family == training.family and other.is_finished]


def _smaller(training: TrainingRun, trainings: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Return the runs that are known at a decision point of a finished run: the finished smaller sizes."""
    family = _finished_of_family(training, trainings)
    return [other for other in family if other.n_parameters < training.n_parameters]


class Hindsight(NamedTuple):
    """A finished run, the larger sizes of its family, and the law that was fitted to all of them."""

    training: TrainingRun
    larger: list[TrainingRun]
    law: Joint

    def outcome(self, candidate: Candidate) -> Outcome:
        """Return the outcome of a candidate: observed where such a run was trained, else the loss that the law gives."""
        if candidate.name == CONTINUE:
            return Outcome(self.training.progress.loss)
        for other in self.larger:
            if (
                other.n_parameters == candidate.target.n_parameters
                and other.schedule.is_known
                and abs(other.flop_of_steps(other.final_step) / candidate.compute - 1) <= SAME_COMPUTE
                and shape_distance(other.schedule.every_rate, candidate.target.learning_rates) <= SAME_SHAPE
            ):
                return Outcome(other.progress.loss)
        return Outcome(float(self.law.predict_jointly([candidate.target]).losses[0]), False)

    def random_stop(self, run: TrainingRun, size: float) -> Outcome:
        """Return the mean outcome of stopping at evenly spread points and training this size with the remaining compute."""
        unstarted = next(other for other in self.larger if other.n_parameters == size).unstarted()
        outcomes = []
        for share in (np.arange(RANDOM_STOPS) + 0.5) / RANDOM_STOPS:
            run_candidates = candidates(run, [unstarted], Request((1 - share) * run.flop_left, ()))
            start = next((candidate for candidate in run_candidates if candidate.from_scratch), None)
            # Too little is left to start anything: the run is as good as continued.
            outcomes.append(self.outcome(start) if start else Outcome(self.training.progress.loss))
        return Outcome(float(np.mean([o.loss for o in outcomes])), all(o.observed for o in outcomes))


def decision_table(trainings: Sequence[TrainingRun], *, fractions: Sequence[float] = FRACTIONS) -> pd.DataFrame:
    """Return the table `decisions`: every finished run with a larger size in its family, by fraction and policy.

    At the decision point the run has come to `fraction`, the smaller sizes are finished, the larger ones have not started;
    what the run would still spend is spent either way. The advice takes the candidate of the least expected regret, and
    continues where there is none; `next_size` starts the next larger size; `random_stop` does so after a random part of
    the rest (the mean over `RANDOM_STOPS` points). The outcome of continuing was observed. That of a start was, where such
    a run was trained; else it is the joint law's, fitted to all finished runs.
    """
    rows: list[dict[str, Any]] = []
    laws: dict[str, Joint] = {}
    for training in trainings:
        family = _finished_of_family(training, trainings)
        larger = [other for other in family if other.n_parameters > training.n_parameters]
        if not larger or not training.is_finished or not np.isfinite(training.tokens_per_step):
            continue
        if training.family not in laws:
            laws[training.family] = Joint(check=False).fit(
                largest_run(family), family
            )  # to all finished runs that it reads
        hindsight = Hindsight(training, larger, laws[training.family])
        for fraction in fractions:
            rows += _rows_of_decision(hindsight, _smaller(training, trainings), fraction)
    return schemas.TABLES["decisions"].frame(rows)


def _rows_of_decision(
    hindsight: Hindsight, smaller: Sequence[TrainingRun], fraction: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one decision, or a row of every policy with the reason why there is none."""
    training, run = hindsight.training, hindsight.training.first(fraction)
    # Of sizes that have not started only the schedule is known, not one loss.
    other_runs = [*(other.unstarted() for other in hindsight.larger), *smaller]
    run_candidates = candidates(run, other_runs, Request(multiples=()))
    starts = [candidate for candidate in run_candidates if candidate.from_scratch]
    point = {
        "model": training.model,
        "fraction": fraction,
        "spent": run.flop_of_steps(run.progress.step),
        "remaining": run.flop_left,
        "n_candidates": len(run_candidates),
    }
    if not starts or run.loss_curve.is_empty:
        reason = "no other size can be started" if not starts else "no loss"
        yield from (point | {"policy": policy, "reason": reason} for policy in POLICIES)
        return
    outcomes = {candidate.name: hindsight.outcome(candidate) for candidate in run_candidates}
    bigger = [candidate for candidate in starts if candidate.target.n_parameters > training.n_parameters]
    next_size = min(bigger, key=lambda candidate: candidate.target.n_parameters, default=None)
    advice = advise_on(run, other_runs, Request(multiples=()))
    choices = usual_choices(Choice.of(advice), next_size.name if next_size else "")
    random_outcome = hindsight.random_stop(run, next_size.target.n_parameters) if next_size else NO_OUTCOME
    for row in rows_of_policies(choices, outcomes, random_outcome):
        yield point | row


def usual_choices(advised: Choice, next_start: str = "") -> dict[str, Choice]:
    """Return the choice of each of `POLICIES`; without `next_start`, only those of policies that do not need one."""
    choices = {ADVICE: advised, ALWAYS_CONTINUE: Choice(CONTINUE)}
    if next_start:
        choices |= {NEXT_SIZE: Choice(next_start), RANDOM_STOP: Choice(AT_RANDOM)}
    return choices


def best_of(outcomes: Mapping[str, Outcome]) -> str:
    """Return the candidate with the least loss; of equal ones the first of the alphabet."""
    return min(outcomes, key=lambda name: (outcomes[name].loss, name))


def rows_of_policies(
    choices: Mapping[str, Choice], outcomes: Mapping[str, Outcome], random_outcome: Outcome = NO_OUTCOME
) -> list[dict[str, Any]]:
    """Return a row of the table `decisions` for each policy, with the columns from policy on.

    choices: of each policy, a candidate or `AT_RANDOM`. outcomes: of every candidate; all spend the same compute in total.
    """
    best = best_of(outcomes)
    outcome_of = {**outcomes, AT_RANDOM: random_outcome, "": NO_OUTCOME}
    # Which choice was best is observed only where all of them were.
    all_observed = all(outcome.observed for outcome in outcomes.values())
    return [
        {
            "policy": policy,
            "choice": choice.candidate,
            "probability": choice.probability,
            "is_confident": choice.is_confident,
            "loss": outcome.loss,
            "best": best,
            "best_loss": outcomes[best].loss,
            "regret": outcome.loss - outcomes[best].loss,
            "truth": OBSERVED if outcome.observed and all_observed else MODELLED,
            "reason": choice.reason,
        }
        for policy, choice in choices.items()
        for outcome in [outcome_of[choice.candidate]]
    ]


def mean_regret(
    decisions: pd.DataFrame, by: Sequence[str], *, group: str = "model", resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Return the mean regret of each policy within each combination of the columns `by`, and the regret it saves.

    decisions: rows of `rows_of_policies` with model and fraction, which name a decision. group: a column; decisions that
    share its value are not independent, so they are averaged first, and the 95% bootstrap intervals are over these means.
    Columns: those of `by`, policy, and `MEANS`. A row without a regret is not counted.
    """
    rows = decisions.dropna(subset=["regret"])
    continued = rows.loc[rows["policy"] == ALWAYS_CONTINUE, [*DECISION, "regret"]].rename(
        columns={"regret": "continued"}
    )
    rows = rows.merge(continued, on=DECISION, how="left", validate="many_to_one")
    rows["regret_saved"] = rows["continued"] - rows["regret"]
    means = []
    for values, group_rows in rows.groupby([*by, "policy"], sort=True):
        row: dict[str, Any] = dict(zip([*by, "policy"], values, strict=True)) | {
            "n_decisions": len(group_rows),
            "n_models": group_rows["model"].nunique(),
            "n_confident": int(group_rows["is_confident"].sum()),
            "n_modelled": int((group_rows["truth"] == MODELLED).sum()),
            "share_best": float((group_rows["regret"] <= 0).mean()),
        }
        for column in ("regret", "regret_saved"):
            by_group = group_rows.dropna(subset=[column]).groupby(group)[column].mean().to_numpy(np.float64)
            row[column] = float(by_group.mean()) if len(by_group) else np.nan
            row[f"{column}_low"], row[f"{column}_high"] = bootstrap_interval(by_group, resamples, seed)
        means.append(row)
    return pd.DataFrame(means, columns=[*by, "policy", *MEANS])
