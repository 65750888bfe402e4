"""The advice in words: the same in the report, on the watch page and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toposcale.forecasting.advice import BUDGET_USED_UP, last_loss
from toposcale.forecasting.candidates import EXTEND, FEWEST_STEPS, FINISH
from toposcale.forecasting.history import History

NAME_ANOTHER_SIZE = (
    "To compare, name another size (--size; in a run an entry of `kind: planned`, or a multiple in decision.sizes), of "
    f"which the compute that is left buys at least {FEWEST_STEPS} steps"
)


def headline(advice: Mapping[str, Any]) -> str:
    """What to do, in a sentence: "Start 100M: 0.040 nats better than finishing (-0.020 to 0.110); sure: 91%".

    advice: the keys choice, sure, probability, stop_probability, gain with its ends, at_stake, cost_if_wrong and
    no_advice_because of `advice.advise`.
    """
    if not advice["choice"]:
        because = advice["no_advice_because"]
        after = " The run ends here." if because == BUDGET_USED_UP else ""
        return f"No advice: {because}.{after}"
    what = {FINISH: "finish", EXTEND: "extend it to use all of the compute"}.get(
        advice["choice"], advice["choice"]
    )
    if advice["probability"] is None:
        return f"{what.capitalize()}: there is nothing to choose between. {NAME_ANOTHER_SIZE}."
    gained = "" if advice["choice"] == FINISH else f": {_gain(advice)}"
    if advice["sure"]:
        return f"{what[:1].upper()}{what[1:]}{gained}; sure: {percent(advice['probability'])}.{_stop(advice)}"
    wrong = f"if that is wrong it costs {advice['cost_if_wrong']:.3f} nats"
    return f"Leans to {what} ({percent(advice['probability'])}){gained}; {wrong}.{_stop(advice)}"


def percent(share: float) -> str:
    """A probability; none is told as certain."""
    return "over 99%" if share > 0.99 else "below 1%" if share < 0.01 else f"{share:.0%}"


def _gain(advice: Mapping[str, Any]) -> str:
    gain, low, high = (advice[key] for key in ("gain", "gain_low", "gain_high"))
    if gain >= 0:
        return f"{gain:.3f} nats better than finishing ({low:.3f} to {high:.3f})"
    return f"{-gain:.3f} nats worse than finishing ({-high:.3f} to {-low:.3f})"


def _stop(advice: Mapping[str, Any]) -> str:
    """That stopping is clearer than which size to start, where several sizes share its probability."""
    is_start = advice["choice"].startswith("start ")
    odds = advice["stop_probability"]
    if is_start and odds - advice["probability"] >= 0.1:
        return f" That some start is better than finishing: {percent(odds)}."
    return ""


def told(advice: Mapping[str, Any]) -> str:
    """The advice as text for the terminal, a few lines a run, the last of them what to do."""
    share = advice["step"] / max(advice["final_step"], 1)
    lines = [f"{advice['model']}: step {advice['step']:,} of {advice['final_step']:,} ({share:.0%})"]
    if advice["loss"] is not None:
        lines[0] += f", {advice['metric']} {advice['loss']:.4g}"
    if advice["spent_flop"]:
        lines[0] += f", {advice['spent_flop']:.3g} FLOP spent"
    lines.append(f"  Plan       {_plan(advice)}")
    if advice["forecast"] is not None:
        lines.append(f"  At its end {_end(advice)}")
    if advice["candidates"]:
        lines += ["", *_table(advice), ""]
    if advice["target_loss"] is not None:
        lines.append(f"  Target     {_target(advice)}")
    if advice["best_size"]:
        near = f"{advice['best_size_low']:.2g} to {advice['best_size_high']:.2g} are within 0.01 nats"
        lines.append(f"  Best size for a fresh start: {advice['best_size']:.2g} parameters ({near})")
    if advice["assumed"]:
        lines += ["  Assumed:", *(f"    - {one}" for one in advice["assumed"])]
    if advice["find_out_first"]:
        lines.append(f"  Find out first: {advice['find_out_first']}.")
    return "\n".join([*lines, f"  => {headline(advice)}"])


def told_of_finished(history: History) -> str:
    """One line on a run that has nothing left to decide."""
    loss = last_loss(history)
    text = f"{history.model}: finished at step {history.last_step:,}"
    text += "" if loss is None else f", {history.metric} {loss:.4g}"
    if history.plan_known and history.plan != "rows":
        return text
    return f"{text}; if it goes on after that step, give its schedule"


def _plan(advice: Mapping[str, Any]) -> str:
    if advice["plan_unknown_because"]:
        return f"unknown: {advice['plan_unknown_because']}"
    now, end = advice["learning_rate_now"], advice["learning_rate_at_the_end"]
    course = "stays to the end" if abs(end - now) <= 0.01 * now else f"goes to {end:.3g} by the end"
    known = {"given": "as given", "rows": "from the table", "recognised": "recognised in the logged rates"}
    return f"learning rate {now:.3g} now, {course} ({known.get(advice['plan'], advice['plan'])})"


def _end(advice: Mapping[str, Any]) -> str:
    others = advice["models_read"] - 1
    read = f", from this run and {others} other{'s' * (others > 1)}" if others > 0 else ""
    return f"{advice['forecast']:.4g} ({advice['forecast_low']:.4g} to {advice['forecast_high']:.4g}){read}"


def _table(advice: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = advice["candidates"]
    head = [f"with {advice['remaining_flop']:.3g} FLOP to come", "loss at the end"]
    head += ["better than finishing by", "best", "at stake", "FLOP"]
    extra = [name for name in ("gpu_hours", "price") if rows[0][name] is not None]
    cells = [[*head, *(name.replace("gpu_h", "GPU-h") for name in extra)]]
    for row in rows:
        gain = (
            ""
            if row["candidate"] == FINISH
            else f"{row['gain']:.3f} ({row['gain_low']:.3f} to {row['gain_high']:.3f})"
        )
        line = [
            row["candidate"],
            f"{row['loss']:.3f} ({row['loss_low']:.3f} to {row['loss_high']:.3f})",
            gain,
        ]
        line += [percent(row["probability"]), f"{row['at_stake']:.3f}", f"{row['flop']:.2g}"]
        cells.append([*line, *(f"{row[name]:,.4g}" for name in extra)])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _target(advice: Mapping[str, Any]) -> str:
    wanted, reached = advice["target_loss"], advice.get("target_reached_at")
    if reached is not None:
        return f"{wanted:g} was reached at step {reached:,.0f}"
    step, early, late = (advice[f"target_step{end}"] for end in ("", "_earliest", "_latest"))
    if step is None and early is None:
        return f"{wanted:g} is not reached by the planned end"
    if step is None:
        return f"{wanted:g} is not forecast to be reached; at best at step {early:,.0f}"
    latest = "perhaps not at all" if late is None else f"{late:,.0f}"
    cost = f", {advice['target_flop']:.3g} FLOP in all" if advice["target_flop"] else ""
    return f"{wanted:g} at step {step:,.0f}{cost} ({early:,.0f} to {latest})"
