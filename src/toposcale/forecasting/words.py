"""The words of an advice: sentences on its parts, the same in the report, on the watch page and in the terminal."""

import textwrap
from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.decision import BUDGET_USED_UP, EXTEND, FINISH, SHORTEST_START, Decision, Option
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.prediction import Prediction
from toposcale.forecasting.training_run import TrainingRun
from toposcale.forecasting.trust import SURE, is_checkable

NAME_ANOTHER_SIZE = (
    "To compare, name another size (--size; in a run an entry of `kind: planned`, or a multiple in decision.sizes), of "
    f"which the compute that is left buys at least {SHORTEST_START} steps"
)

NO_WARMUP = "none was stated and no rates are logged; state its steps (--warmup, warmup_steps), or 0"

LITTLE = 0.005
"""Loss at stake, in nats, below which a choice is not worth waiting for."""


def what_to_do(decision: Decision, doubts: Sequence[str] = ()) -> str:
    """What to do, in a sentence: "Start 100M: 0.040 nats better than finishing (-0.020 to 0.110); sure: 91%".

    doubts: why it is not sure.
    """
    best = decision.best
    what = {FINISH: "finish", EXTEND: "extend it to use all of the compute"}.get(
        best.candidate.name, best.candidate.name
    )
    if not decision.is_a_choice:
        return f"{what.capitalize()}: there is nothing to choose between. {NAME_ANOTHER_SIZE}."
    gained = "" if best.candidate.name == FINISH else f": {_gain(best.gain)}"
    likely = percent(best.probability)
    if not doubts:
        return f"{what[:1].upper()}{what[1:]}{gained}; sure: {likely}.{_any_start(decision)}"
    wrong = f"if that is wrong it costs {best.cost_if_wrong:.3f} nats"
    # A low probability speaks for itself.
    because = f" Not sure: {doubts[0]}." if best.probability >= SURE else ""
    return f"Leans to {what} ({likely}){gained}; {wrong}.{because}{_any_start(decision)}"


def no_advice(because: str) -> str:
    """That there is no advice, and why."""
    return f"No advice: {because}.{' The run ends here.' if because == BUDGET_USED_UP else ''}"


def percent(share: float) -> str:
    """A probability; none is called certain."""
    return "over 99%" if share > 0.99 else "below 1%" if share < 0.01 else f"{share:.0%}"


def _gain(gain: Prediction) -> str:
    if gain.value >= 0:
        return f"{gain.value:.3f} nats better than finishing ({gain.low:.3f} to {gain.high:.3f})"
    return f"{-gain.value:.3f} nats worse than finishing ({-gain.high:.3f} to {-gain.low:.3f})"


def _any_start(decision: Decision) -> str:
    """That stopping is clearer than which size to start, where several sizes share its probability."""
    best = decision.best
    if best.candidate.is_start and decision.stop - best.probability >= 0.1:
        return f" That some start is better than finishing: {percent(decision.stop)}."
    return ""


def standing(training: TrainingRun) -> str:
    """How far a training is, its present loss and what was spent on it."""
    share = training.last_step / max(training.final_step, 1)
    text = f"{training.model}: step {training.last_step:,} of {training.final_step:,} ({share:.0%})"
    if np.isfinite(training.last_loss):
        text += f", {training.metric} {training.last_loss:.4g}"
        if training.measured_until != training.last_step:
            text += f" at step {training.measured_until:,}"
    spent = training.compute(training.last_step)
    return text + (f", {spent:.3g} FLOP spent" if spent > 0 else "")


def finished(training: TrainingRun) -> str:
    """One line on a training that has nothing left to decide."""
    text = f"{training.model}: finished at step {training.last_step:,}"
    if np.isfinite(training.last_loss):
        text += f", {training.metric} {training.last_loss:.4g}"
    if training.plan_known and training.plan != "rows":
        return text
    return f"{text}; if it goes on after that step, give its schedule"


def why_no_plan(training: TrainingRun) -> str:
    """Why the learning rate is not known to the end; "" where it is."""
    return "" if training.plan_known else training.plan or "no learning rate is known"


def plan(training: TrainingRun) -> str:
    """The learning rate now and at the end, and where it is known from."""
    if not training.plan_known:
        return f"unknown: {why_no_plan(training)}"
    now, end = training.rate_at(training.last_step), training.rate_at(training.final_step)
    course = "stays to the end" if abs(end - now) <= 0.01 * now else f"goes to {end:.3g} by the end"
    sources = {"given": "as given", "rows": "from the table", "recognised": "recognised in the logged rates"}
    return f"learning rate {now:.3g} now, {course} ({sources.get(training.plan, training.plan)})"


def end(forecast: Prediction, law: Joint) -> str:
    """The forecast of the end, and from how many trainings it is."""
    others = len(law.runs) - 1
    read = f", from this run and {others} other{'s' * (others > 1)}" if others > 0 else ""
    return f"{forecast.value:.4g} ({forecast.low:.4g} to {forecast.high:.4g}){read}"


def table(decision: Decision, remaining: float, width: int | None = None) -> list[str]:
    """A line for each option under a line of titles.

    Where that is wider than `width`, a line for each number under the name of its option.
    """
    head = [f"with {remaining:.3g} FLOP to come", "loss at the end", "better than finishing by"]
    rows = [[*head, "best", "at stake", "FLOP"], *(_cells(option) for option in decision.options)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if width is None or max(map(len, lines)) <= width:
        return lines
    titles, *options = rows
    longest = max(map(len, titles[1:]))
    lines = [f"  {titles[0]}:"]
    for name, *cells in options:
        lines.append(f"  {name}")
        lines += [f"    {title.ljust(longest)}  {cell}" for title, cell in zip(titles[1:], cells, strict=True) if cell]
    return lines


def fitted(lines: Sequence[str], width: int | None) -> str:
    """Lines of at most `width` columns; what goes on in the next line stands further to the right."""
    if width is None:
        return "\n".join(lines)
    return "\n".join(row for line in lines for row in _broken(line, max(width, 20)))


def _broken(line: str, width: int) -> list[str]:
    margin = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=margin,
        subsequent_indent=margin + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def _cells(option: Option) -> list[str]:
    loss, gain, name = option.loss, option.gain, option.candidate.name
    return [
        name,
        f"{loss.value:.3f} ({loss.low:.3f} to {loss.high:.3f})",
        "" if name == FINISH else f"{gain.value:.3f} ({gain.low:.3f} to {gain.high:.3f})",
        percent(option.probability),
        f"{option.at_stake:.3f}",
        f"{option.candidate.compute:.2g}",
    ]


def assumed(
    training: TrainingRun, others: Sequence[TrainingRun], law: Joint, decision: Decision | None
) -> tuple[str, ...]:
    """What a forecast, and a decision where there is one, takes for granted, a clause each."""
    clauses = [
        f"the {training.metric} that was read, up to step {training.measured_until:,}, is in nats per token",
        *training.notes,
        "compute is 6 x parameters x tokens, in FLOP",
    ]
    if training.warmup_assumed:
        clauses.append(f"there was no warm-up: {NO_WARMUP}")
    if not is_checkable(training):
        clauses.append("the curve follows the law: it has too few points to check that, so no answer is sure")
    if not training.plan_known:
        because = why_no_plan(training)
        clauses.append(f"the learning rate stays as it is, since {because}; a decay to come is in no forecast")
    clauses += [
        f"{other.model} is under way, at step {other.last_step:,} of {other.final_step:,}; say its steps if it ended there"
        for other in others
        if other.has_begun and not other.is_over and other.plan_known
    ]
    unread = sorted(other.model for other in others if other.is_finished and not other.rates_known)
    if unread and any(other.rates_known for other in (*others, training)):
        clauses.append(f"not read, since the learning rates are not known: {', '.join(unread)}")
    finish = decision.option(FINISH) if decision else None
    if finish and training.last_step + finish.candidate.steps < training.final_step:
        steps = finish.candidate.steps
        clauses.append(
            f"what is left does not pay for the whole plan: {FINISH} ends at step "
            f"{training.last_step + steps:,}, with the rest of the plan pressed into {steps:,} steps"
        )
    if any(option.candidate.is_start for option in (decision.options if decision else ())):
        clauses.append(
            "a new size is trained from scratch under this plan, or its own, stretched to the steps that the compute buys"
        )
        if any(not np.isfinite(other.tokens_per_step) for other in others):
            clauses.append(f"a size without tokens_per_step has those of {training.model}")
        if law.n_sizes < 2:
            clauses.append("one size is known: how the loss falls with size is taken from published families")
    return tuple(clauses)


def find_out_first(training: TrainingRun, law: Joint, decision: Decision, *, is_sure: bool) -> str:
    """What would decide, in one clause; "" where nothing is open."""
    if is_sure or not decision.is_a_choice:
        return ""
    best, second = decision.options[:2]
    if not training.plan_known:
        return f"the plan: give the schedule of {training.model}; whether the rate will fall decides"
    if best.at_stake < LITTLE:
        return f"nothing: only {best.at_stake:.3f} nats are at stake"
    if law.n_sizes < 2 and (best.candidate.is_start or second.candidate.is_start):
        cost = training.compute(training.final_step) / 16
        return (
            "how the loss falls with size: train a quarter of the size on a quarter of the tokens, to the end of the "
            f"same plan ({cost:.2g} FLOP), and give it, too (--known; in a run under models)"
        )
    later = min(training.last_step + max(training.final_step // 10, 1), training.final_step)
    return f"ask again at step {later:,}: by then the forecast of {FINISH} is narrower"


def target(loss: float, reached_at: float | None, steps: Sequence[float], flop: float) -> str:
    """When a loss is reached. steps: forecast, earliest and latest, infinite where it is not before the end."""
    if reached_at is not None:
        return f"{loss:g} was reached at step {reached_at:,.0f}"
    step, early, late = steps
    if not np.isfinite(early):
        return f"{loss:g} is not reached by the planned end"
    if not np.isfinite(step):
        return f"{loss:g} is not forecast to be reached; at best at step {early:,.0f}"
    latest = f"{late:,.0f}" if np.isfinite(late) else "perhaps not at all"
    cost = f", {flop:.3g} FLOP in all" if np.isfinite(flop) else ""
    return f"{loss:g} at step {step:,.0f}{cost} ({early:,.0f} to {latest})"
