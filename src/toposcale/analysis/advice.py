"""What to do with every run that is under way: finish it, extend it, or stop it and start another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toposcale.analysis.decisions import BUDGET_USED_UP, known_at, options_of
from toposcale.forecasting.calibration import calibrate, score
from toposcale.forecasting.decision import (
    FEWEST_STEPS,
    FINISH,
    UNDECIDED,
    Option,
    best_size,
    compute_of,
    recommendation,
    rest_of,
    steps_to,
)
from toposcale.forecasting.forecasters import default_method, forecast, make_forecaster
from toposcale.forecasting.history import MINIMUM_POINTS, History, Prediction
from toposcale.forecasting.joint import Joint, JointForecaster

LITTLE = 0.005
"""Loss at stake, in nats, below which a choice is not worth waiting for."""


NAME_ANOTHER_SIZE = (
    "To compare, name another size: an entry of `kind: planned` under models, or a multiple in decision.sizes, of which "
    f"the compute that is left buys at least {FEWEST_STEPS} steps"
)


def advise(
    history: History, histories: Sequence[History], decision: Mapping[str, Any], *, seed: int = 0
) -> dict[str, Any]:
    """All that is known of one run under way, as plain values; `told` turns it into text.

    `histories`: every run, finished or not. `decision`: that section of the configuration. None stands for unknown.
    """
    known = known_at(history, histories)
    remaining = decision.get("remaining")
    joint, options, reason = options_of(
        history, known, remaining=remaining, sizes=decision.get("sizes", ()), seed=seed
    )
    method = default_method(history)
    prediction, coverage, runs = _end(history, known, method, joint)
    if prediction.reason and not reason:
        options, reason = [], prediction.reason
    advice: dict[str, Any] = {
        "model": history.model,
        "step": history.last_step,
        "final_step": history.final_step,
        "loss": _last_loss(history),
        "spent_flop": _plain(float(compute_of(history, history.last_step))),
        "plan": history.plan if history.plan_known else "",
        "plan_unknown_because": "" if history.plan_known else history.plan or "no learning rate is known",
        "learning_rate_now": _rate(history, history.last_step),
        "learning_rate_at_the_end": _rate(history, history.final_step) if history.plan_known else None,
        "method": method,
        "forecast_from_runs": joint.n_runs if method == "joint" else 1,
        "forecast": _plain(prediction.value),
        "forecast_low": _plain(prediction.low),
        "forecast_high": _plain(prediction.high),
        "interval_coverage": _plain(coverage),
        "calibrated_on_runs": runs,
        "no_forecast_because": prediction.reason,
    }
    spend = rest_of(history) if remaining is None else float(remaining)
    advice |= {
        "remaining_flop": _plain(spend),
        "candidates": [_candidate(option, decision, advice) for option in options],
        **_choice(options, reason),
        **_target(joint, history, decision.get("target_loss"), reason),
        **_sizes(joint, history, spend, reason),
    }
    advice["assumed"] = _assumed(history, known, options, advice)
    advice["find_out_first"] = _find_out(history, known, options) if advice["choice"] == UNDECIDED else ""
    return advice


def _end(
    history: History, known: Sequence[History], method: str, joint: Joint
) -> tuple[Prediction, float, int]:
    """The forecast of the end with its interval, the coverage of the interval, and the runs that it was calibrated on.

    The runs are the finished ones, as they stood at the same share. If no other run of this size is finished, a run among
    them is forecast without the finished runs of its own size, too. If the plan is known, the forecast is that of the law
    behind the decision, so that a run has one forecast of its end.
    """
    is_joint = method == "joint"
    share = min(max(history.last_step / history.final_step, 1e-9), 1.0)
    finished = [run for run in known if run.is_finished and run.model != history.model]
    has_sister = any(run.n_parameters == history.n_parameters for run in finished)
    scores = []
    for other in finished:
        rest = [run for run in known if run.model != other.model]
        if not has_sister:
            rest = [run for run in rest if run.n_parameters != other.n_parameters or not run.is_finished]
        if len(other.first(share).loss_curve[0]):
            then = [*rest, other.first(share)]
            law = Joint().fit(then, like=joint) if is_joint else None
            scores.append(score(_of_the_last(then, law), other.final_loss))
    own, coverage = calibrate(scores)(_of_the_last(known, joint if is_joint else None))
    return own, coverage, int(np.isfinite(np.array(scores, dtype=np.float64)).sum())


def _of_the_last(known: Sequence[History], law: Joint | None) -> Prediction:
    """The final loss of the last of `known` by a law that was fitted to all of them; without one by the power law."""
    return forecast(JointForecaster(known, law) if law else make_forecaster("power_law"), known[-1])


def _choice(options: Sequence[Option], reason: str) -> dict[str, Any]:
    if not options:
        return {"choice": "", "probability": None, "at_stake": None, "no_decision_because": reason}
    best = options[0]
    return {
        "choice": recommendation(options),
        # The best of one is no finding.
        "probability": best.probability if len(options) > 1 else None,
        "at_stake": best.at_stake if len(options) > 1 else None,
        "no_decision_because": "",
    }


def _candidate(option: Option, decision: Mapping[str, Any], advice: Mapping[str, Any]) -> dict[str, Any]:
    low, high = option.low, option.high
    to_its_end = advice["step"] + option.candidate.steps == advice["final_step"]
    if option.candidate.name == FINISH and advice["method"] == "joint" and to_its_end:
        # It is the forecast of the end, so it has the same interval, the calibrated one.
        low, high = advice["forecast_low"], advice["forecast_high"]
    speed, price = decision.get("gpu_flops"), decision.get("gpu_price")
    hours = option.candidate.compute / speed / 3600 if speed else None
    return {
        "candidate": option.candidate.name,
        "n_parameters": round(option.candidate.target.n_parameters),
        "steps": option.candidate.steps,
        "flop": option.candidate.compute,
        "gpu_hours": hours,
        "price": hours * price if hours is not None and price is not None else None,
        "loss": option.loss,
        "loss_low": low,
        "loss_high": high,
        "probability": option.probability,
        "at_stake": option.at_stake,
    }


def _target(joint: Joint, history: History, loss: float | None, reason: str) -> dict[str, Any]:
    if loss is None:
        return {"target_loss": None}
    steps, losses = history.loss_curve
    if (losses <= loss).any():
        return {"target_loss": loss, "target_reached_at": float(steps[np.argmax(losses <= loss)])}
    if joint.reason or reason:
        return {"target_loss": loss, "target_step": None, "target_unknown_because": joint.reason or reason}
    middle, early, late = steps_to(joint, history, loss)
    return {
        "target_loss": loss,
        "target_step": _plain(middle),
        "target_step_earliest": _plain(early),
        "target_step_latest": _plain(late),
        "target_flop": _plain(float(compute_of(history, middle))),
    }


def _sizes(joint: Joint, history: History, spend: float, reason: str) -> dict[str, Any]:
    if joint.reason or reason or not spend > 0:
        return {"best_size": None}
    size, low, high = best_size(joint, history, spend)
    return {"best_size": _plain(size), "best_size_low": _plain(low), "best_size_high": _plain(high)}


def _assumed(
    history: History, known: Sequence[History], options: Sequence[Option], advice: Mapping[str, Any]
) -> list[str]:
    method, said = advice["method"], []
    if not history.plan_known:
        because = history.plan or "no learning rate is known"
        said.append(
            f"the learning rate stays as it is, since {because}: a decay to come is not in any forecast"
        )
    unread = [run.model for run in known if run.is_finished and not run.rates_known]
    if unread and any(run.rates_known for run in known):
        said.append(f"{', '.join(unread)} is not read, since its learning rates are not known")
    if method == "joint":
        said.append(
            "the forecast reads every run of the family as far as it has come, in one law that is that of the candidates, "
            "too; the table forecasts reads the same share of every run, so its numbers differ"
        )
    elif options:
        said.append(
            "the candidates are compared by the joint law under a rate that stays, so finish differs there from the "
            "power law, which reads this run alone"
        )
    if options:
        said.append("compute is 6 x parameters x tokens")
        finish = next((option.candidate for option in options if option.candidate.name == FINISH), None)
        if finish and history.last_step + finish.steps < history.final_step:
            said.append(
                f"what is left does not pay for the whole plan: {FINISH} ends at step "
                f"{history.last_step + finish.steps:,}, with the rest of the plan pressed into {finish.steps:,} steps"
            )
        starts = [option.candidate for option in options if option.candidate.is_start]
        said.append("the interval of a candidate is that of the law, whose coverage is not known")
        if starts:
            said.append(
                "a new size is trained from scratch under this run's plan, or its own, stretched to the steps that the "
                "compute buys"
            )
            if any(not np.isfinite(run.tokens_per_step) for run in known):
                said.append(f"a size without tokens_per_step has those of {history.model}")
        if len(_sizes_seen(known)) == 1 and (starts or advice.get("best_size")):
            said.append(
                "one size is known: how the loss falls with size is a prior, and its intervals are as wide"
            )
    return said


def _sizes_seen(known: Sequence[History]) -> set[int]:
    return {run.n_parameters for run in known if len(run.loss_curve[0]) >= MINIMUM_POINTS}


def _find_out(history: History, known: Sequence[History], options: Sequence[Option]) -> str:
    """What would decide, in one clause."""
    first, second = options[0], options[1]
    if first.at_stake < LITTLE:
        return (
            f"nothing: between {first.candidate.name} and {second.candidate.name} only {first.at_stake:.3f} nats are at "
            "stake; go on as planned"
        )
    if not history.plan_known:
        return f"the plan: set models.{history.model}.schedule; whether the rate will fall decides"
    if len(_sizes_seen(known)) == 1 and (first.candidate.is_start or second.candidate.is_start):
        cost = float(compute_of(history, history.final_step)) / 16
        return (
            "how the loss falls with size: train a quarter of the size on a quarter of the tokens, to the end of "
            f"the same plan ({cost:.2g} FLOP), and name it in models; until then go on"
        )
    later = min(history.last_step + max(history.final_step // 10, 1), history.final_step)
    return f"go on, and ask again at step {later:,}: by then the forecast of {FINISH} is narrower"


def told(advice: Mapping[str, Any]) -> str:
    """The advice as text for the terminal, a few lines a run, the last of them what to do."""
    share = advice["step"] / max(advice["final_step"], 1)
    lines = [f"{advice['model']}: step {advice['step']:,} of {advice['final_step']:,} ({share:.0%})"]
    if advice["loss"] is not None:
        lines[0] += f", loss {advice['loss']:.4g}"
    if advice["spent_flop"]:
        lines[0] += f", {advice['spent_flop']:.3g} FLOP spent"
    lines.append(f"  Plan      {_plan_text(advice)}")
    lines.append(f"  At its end {_end_text(advice)}")
    if advice["candidates"]:
        lines += ["", *_table(advice), ""]
    if advice.get("target_loss") is not None:
        lines.append(f"  Target    {_target_text(advice)}")
    if advice.get("best_size"):
        near = f"{advice['best_size_low']:.2g} to {advice['best_size_high']:.2g} are within 0.01 nats"
        lines.append(f"  Best size for a fresh start: {advice['best_size']:.2g} parameters ({near})")
    if advice["assumed"]:
        lines.append(f"  Assumed   {'; '.join(advice['assumed'])}")
    return "\n".join([*lines, f"  => {_verdict(advice)}"])


def told_of_finished(history: History) -> str:
    """One line on a run that has nothing left to decide."""
    loss = _last_loss(history)
    text = f"{history.model}: finished at step {history.last_step:,}"
    text += "" if loss is None else f", loss {loss:.4g}"
    if history.plan_known and history.plan != "rows":
        return text
    return f"{text}; if it goes on after that step, set models.{history.model}.schedule"


def _plan_text(advice: Mapping[str, Any]) -> str:
    if advice["plan_unknown_because"]:
        return f"unknown: {advice['plan_unknown_because']}"
    now, end = advice["learning_rate_now"], advice["learning_rate_at_the_end"]
    course = "stays to the end" if abs(end - now) <= 0.01 * now else f"goes to {end:.3g} by the end"
    known = {"given": "as given", "rows": "from the table", "recognised": "recognised in the logged rates"}
    return f"learning rate {now:.3g} now, {course} ({known.get(advice['plan'], advice['plan'])})"


def _end_text(advice: Mapping[str, Any]) -> str:
    if advice["forecast"] is None:
        return f"no forecast by {advice['method']}: {advice['no_forecast_because']}"
    text, law = f"{advice['forecast']:.4g}", advice["method"]
    if (others := advice["forecast_from_runs"] - 1) > 0:
        law += f" from this run and {others} other{'s' * (others > 1)}"
    if advice["forecast_low"] is not None:
        text += f" ({advice['forecast_low']:.4g} to {advice['forecast_high']:.4g})"
    if advice["interval_coverage"] is None:
        return f"{text} by {law}; too few finished runs to calibrate the interval, its coverage is not known"
    runs, coverage = advice["calibrated_on_runs"], advice["interval_coverage"]
    calibrated = f"an interval that holds in {coverage:.0%} of cases, calibrated on {runs} finished runs"
    return f"{text} by {law}; {calibrated}"


def _table(advice: Mapping[str, Any]) -> list[str]:
    rows = advice["candidates"]
    head = [
        f"with {advice['remaining_flop']:.3g} FLOP to come",
        "loss at the end",
        "best",
        "at stake",
        "FLOP",
    ]
    with_hours, with_price = rows[0]["gpu_hours"] is not None, rows[0]["price"] is not None
    head += ["GPU-hours"] * with_hours + ["price"] * with_price
    cells = [head]
    for row in rows:
        interval = f"{row['loss']:.3f} ({row['loss_low']:.3f} to {row['loss_high']:.3f})"
        line = [
            row["candidate"],
            interval,
            f"{row['probability']:.0%}",
            f"{row['at_stake']:.3f}",
            f"{row['flop']:.2g}",
        ]
        line += [
            f"{row[name]:,.4g}" for name, shown in (("gpu_hours", with_hours), ("price", with_price)) if shown
        ]
        cells.append(line)
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _target_text(advice: Mapping[str, Any]) -> str:
    step, wanted = advice.get("target_step"), advice["target_loss"]
    early, late = advice.get("target_step_earliest"), advice.get("target_step_latest")
    if (reached := advice.get("target_reached_at")) is not None:
        return f"{wanted:g} was reached at step {reached:,.0f}"
    if why := advice.get("target_unknown_because"):
        return f"{wanted:g}: not known when, since {why}"
    if step is None and early is None:
        return f"{wanted:g} is not reached by the planned end"
    if step is None:
        return f"{wanted:g} is not forecast to be reached; at best at step {early:,.0f}"
    latest = "perhaps not at all" if late is None else f"{late:,.0f}"
    cost = f", {advice['target_flop']:.3g} FLOP in all" if advice.get("target_flop") else ""
    return f"{wanted:g} at step {step:,.0f}{cost} (the law's own interval, of unknown coverage: {early:,.0f} to {latest})"


def _verdict(advice: Mapping[str, Any]) -> str:
    choice, odds = advice["choice"], advice["probability"]
    if not choice:
        because = advice["no_decision_because"]
        return f"No advice: {because}." + (
            " Go on as planned." if because != BUDGET_USED_UP else " The run ends here."
        )
    if choice == UNDECIDED:
        first = advice["candidates"][0]
        leads = f"{first['candidate']} leads with {odds:.0%}, and {advice['at_stake']:.3f} nats are at stake"
        return f"Undecided: {leads}. Find out first: {advice['find_out_first']}."
    pressed = choice == FINISH and advice["step"] + advice["candidates"][0]["steps"] < advice["final_step"]
    finish = f"Finish it within {advice['candidates'][0]['steps']:,} steps" if pressed else "Finish it"
    what = {FINISH: finish, "extend": "Extend it to use all of the compute"}.get(
        choice, f"Stop now and {choice}"
    )
    if len(advice["candidates"]) == 1:
        return f"{what}: there is nothing to choose between. {NAME_ANOTHER_SIZE}."
    stake = f"{advice['at_stake']:.3f} nats at stake"
    return f"{what}: the best of {len(advice['candidates'])} with a probability of {odds:.0%}; {stake}."


def _last_loss(history: History) -> float | None:
    """The loss that was measured last; of a log alone the median of its last rows."""
    measured = history.checkpoint_losses[np.isfinite(history.checkpoint_losses)]
    losses = measured if len(measured) else history.loss_curve[1]
    return float(losses[-1]) if len(losses) else None


def _rate(history: History, step: int) -> float | None:
    return float(history.rates_to(step)[step]) if len(history.learning_rates) else None


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
