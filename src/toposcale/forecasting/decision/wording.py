"""Wording of an advice: the same sentences in the report, on the watch page and in the terminal."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.amounts import amount
from toposcale.forecasting.decision.candidates import (
    BUDGET_USED_UP,
    CONTINUE,
    EXTEND,
    SHORTEST_START,
    Decision,
    TargetLoss,
)
from toposcale.forecasting.decision.decay import COOLDOWN, DecayDecision
from toposcale.forecasting.decision.on_track import Reference, Track
from toposcale.forecasting.decision.reasons import NO_CHOICE, UNMEASURED_SIZES, smoothing_assumption, to_check
from toposcale.forecasting.laws.law import Law
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.priors import SIZES_KNOWN
from toposcale.forecasting.laws.published_law import first_step
from toposcale.forecasting.runs import checks
from toposcale.forecasting.runs.learning_rate_schedule import ScheduleProvenance
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

NAME_ANOTHER_SIZE = (
    "To compare, name another size (--sizes; in a run an entry of `kind: planned`, or a multiple in decision.multiples), "
    f"of which the compute that is left pays for at least {SHORTEST_START} steps"
)

NEGLIGIBLE_REGRET = 0.005
"""Expected regret, nats, below which a choice is not worth waiting for."""

NEGLIGIBLE_RATE = 1e-6
"""Share of the peak below which the last learning rate is the rounding of a 0."""

_PROVENANCE = {
    ScheduleProvenance.GIVEN: "as given",
    ScheduleProvenance.LOGGED: "from the table",
    ScheduleProvenance.RECOGNISED: "recognised in the logged rates",
}


def what_to_do(decision: Decision, reasons: Sequence[str] = ()) -> str:
    """Return what to do, as "Scale up to 100M: 0.040 nats better than continuing (-0.020 to 0.110); 91%, confident.".

    reasons: those for low confidence. What was left out of the candidates is said, too.
    """
    best = decision.best
    action = "extend to use all of the compute" if best.candidate.name == EXTEND else best.candidate.name
    begin = f"{action[:1].upper()}{action[1:]}"
    # Without a choice the sentence begins with that reason.
    other_reasons = [reason for reason in reasons if reason != NO_CHOICE]
    because = f" Low confidence: {'; '.join(other_reasons)}." if other_reasons else ""
    dropped = [f"{candidate.name}: {candidate.reason}" for candidate in decision.dropped]
    left_out = f" Not weighed: {'; '.join(dropped)}." if dropped else ""
    if not decision.is_a_choice:
        return f"{begin}: {NO_CHOICE}.{left_out} {NAME_ANOTHER_SIZE}.{because}"
    remarks = because
    if best.candidate.from_scratch and decision.scale_up_probability - best.probability >= 0.1:
        remarks += f" Some other size beats continuing: {percent(decision.scale_up_probability)}."
    remarks += left_out
    gain = "" if best.candidate.name == CONTINUE else f": {_gain(best.gain)}"
    likely = percent(best.probability)
    if not reasons:
        return f"{begin}{gain}; {likely}, confident.{remarks}"
    regret = f"expected regret {best.expected_regret:.3f} nats"
    if best.probability < 0.5:
        return f"No clear choice: {action} has the least expected regret ({likely}; {regret}).{remarks}"
    return f"{begin}{gain}; {likely}, not confident; {regret}.{remarks}"


def no_advice(because: str) -> str:
    """Return why there is no advice, in a sentence."""
    return f"No advice: {because}.{' The run ends here.' if because == BUDGET_USED_UP else ''}"


def known_of_small_run(run: TrainingRun, law: Law | None, because: str) -> Iterator[str]:
    """Yield what is known of a run under way below the published sizes although there is no advice, a clause each."""
    has_losses = len(run.losses) or len(run.checkpoint_losses)
    if not has_losses or not run.n_parameters < SIZES_KNOWN[0] or not run.has_steps_left:
        return
    first = first_step(run)
    if run.progress.step < first < run.final_step and f"{first:,}" not in because:
        yield f"a forecast is made from step {first:,} on, if nothing else speaks against it"
    if law is None:
        with suppress(NoForecast):
            yield _power_law_clause(run)
    yield "`toposcale curves` compares its losses with those of another run at equal steps and, if it can, at the ends"


def _power_law_clause(run: TrainingRun) -> str:
    """Return the end by a power law, and how often such ends hold where that was measured; NoForecast: it has none."""
    from toposcale.forecasting.laws.one_run import OneRun  # few runs are so small
    from toposcale.forecasting.laws.power_law import PowerLaw, measured_near

    [end] = OneRun(PowerLaw()).fit(run).predict([run.target()])
    decay = "; a decay to come is not in it" if run.schedule.decays_after(run.progress.step) else ""
    row = measured_near(run.n_parameters, run.progress.step / run.final_step)
    if row is None:
        unknown = "how far off such ends are was not measured at this size and share of the steps"
        return f"a power law through its losses ends at {end.value:.4g}{decay}; {unknown}"
    sizes = " to ".join(dict.fromkeys(f"{row[name] / 1e6:.0f}M" for name in ("lowest_size", "highest_size")))
    runs = f"{row['n_runs']:.0f} published runs of {sizes} parameters, of {row['n_sources']:.0f} sources"
    return (
        f"a power law through its losses ends at {end:.4g}{decay}; at {row['share']:.0%} of the steps of {runs}, "
        f"{row['coverage']:.0%} of {row['n_forecasts']:.0f} such intervals held the end, with a mean error of "
        f"{row['mean_error']:.2f} nats"
    )


def percent(share: float) -> str:
    """Return a probability as text; none is called certain."""
    return "over 99%" if share > 0.99 else "below 1%" if share < 0.01 else f"{share:.0%}"


def _gain(gain: Prediction) -> str:
    """Return a loss difference to continuing, with its interval."""
    if gain.value >= 0:
        return f"{gain.value:.3f} nats better than continuing ({gain.low:.3f} to {gain.high:.3f})"
    return f"{-gain.value:.3f} nats worse than continuing ({-gain.high:.3f} to {-gain.low:.3f})"


def progress_sentence(run: TrainingRun) -> str:
    """Return the step that a run has reached, its present loss and the compute spent."""
    share = run.progress.step / max(run.final_step, 1)
    text = f"{run.model}: step {run.progress.step:,} of {run.final_step:,} ({share:.0%})"
    if np.isfinite(run.progress.loss):
        text += f", {run.metric} {run.progress.loss:.4g}"
        if (step := int(run.measured.steps[-1])) != run.progress.step:
            text += f" at step {step:,}"
    spent = run.flop_of_steps(run.progress.step)
    return text + (f", {spent:.3g} FLOP spent" if spent > 0 else "")


def finished_sentence(run: TrainingRun) -> str:
    """Return one line on a run that has nothing left to decide: its last loss, and its lowest where that came before."""
    text = f"{run.model}: finished at step {run.progress.step:,}"
    if np.isfinite(run.progress.loss):
        text += f", {run.metric} {run.progress.loss:.4g}"
    if checks.metric_rises(run):
        text += f"; rising: it is {checks.rise_since_best(run)}"
    elif f"{run.best.loss:.4g}" != f"{run.progress.loss:.4g}":
        text += f"; its lowest was {run.best.loss:.4g} at step {run.best.step:,}"
    if not run.schedule.is_known or run.schedule.provenance is ScheduleProvenance.LOGGED:
        text += "; if it goes on after that step, give its schedule"
    return "; ".join((text, *run.notes))


def schedule_clause(run: TrainingRun) -> str:
    """Return the learning rate now and at the end, and its provenance."""
    if not run.schedule.is_known:
        return f"unknown: {run.schedule.unknown_because}"
    now, end = run.schedule.rate_at(run.progress.step), run.schedule.rate_at(run.final_step)
    if end < NEGLIGIBLE_RATE * run.schedule.peak_rate:
        end = 0.0
    of_peak = " of the peak" if run.schedule.peak_rate == 1 else ""
    ahead = "constant to the end" if abs(end - now) <= 0.01 * now else f"{end:.3g} at the end"
    provenance = _PROVENANCE.get(run.schedule.provenance)
    return f"learning rate {now:.3g}{of_peak} now, {ahead}" + (f" ({provenance})" if provenance else "")


def end_forecast(forecast: Prediction, law: Law) -> str:
    """Return the forecast of the final loss, with the number of runs that it was made from."""
    n_others = len(law.runs_) - 1
    source = f", from this run and {n_others} other{'s' * (n_others > 1)}" if n_others > 0 else ""
    return f"{forecast:.4g}{source}"


def track(track: Track, run: TrainingRun) -> str:
    """Return whether the loss agrees with its forecast by other runs, and if not, since which step and what to check."""
    expected = f"{track.expected:.4g} ({track.low:.4g} to {track.high:.4g})"
    if track.reference is Reference.FAMILY:
        text = f"{track.loss:.4g} at step {track.step:,}, forecast by the family {expected}"
    else:
        runs = f"{run.n_parameters:,} parameters after {run.cost.tokens(track.step):.2g} tokens"
        expected = f"{track.expected:.1f} ({track.low:.1f} to {track.high:.1f}) nats"
        text = f"published runs of {runs}: {expected}; yours: {track.loss:.2f}"
    if track.since is None:
        return f"yes: {text}"
    side = "above" if track.z > 0 else "below"
    return f"no, {side} since step {track.since:,}: {text}; {to_check(track)}"


def tracks(tracks: Sequence[Track], run: TrainingRun) -> list[str]:
    """Return a sentence for every comparison with other runs, or why there is none; empty without a loss in nats."""
    if tracks or run.loss_curve.is_empty or run.lowest_loss <= 0:
        return [track(each, run) for each in tracks]
    if run.n_parameters < SIZES_KNOWN[0]:
        return [f"not known: published runs have {amount(SIZES_KNOWN[0])} parameters and more"]
    return ["not known without the tokens of a step"]


def decay_sentences(decision: DecayDecision, run: TrainingRun) -> Iterator[str]:
    """Yield when to decay, and the loss of a decay that begins now."""
    best, start = decision.best, decision.best.candidate.decay_start
    start_text = "now" if start <= run.progress.step else f"at step {start:,}"
    share = percent(1 - start / run.final_step)
    yield (
        f"start {start_text}, over the last {share} ({best.candidate.name}): {best.loss:.4g} at step {run.final_step:,}, "
        f"expected regret {best.expected_regret:.3f}"
    )
    yield (
        f"from now over {COOLDOWN:.0%} of the steps so far: {decision.cooldown_loss:.4g}; "
        f"each further billion tokens is worth {decision.nats_per_billion_tokens:.2g} nats"
    )


def candidate_lines(decision: Decision, remaining: float, width: int | None = None) -> list[str]:
    """Return a line for each candidate under a line of titles; where wider than `width`, a line for each number."""
    head = [f"with {remaining:.3g} FLOP to come", "loss at the end", "better than continuing by"]
    rows = [[*head, "best", "expected regret", "FLOP"]]
    for weighed in decision.candidates:
        name, likely = weighed.candidate.name, percent(weighed.probability)
        gain = "" if name == CONTINUE else f"{weighed.gain:.3f}"
        regret, flop = f"{weighed.expected_regret:.3f}", f"{weighed.candidate.compute:.2g}"
        rows.append([name, f"{weighed.loss:.3f}", gain, likely, regret, flop])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if width is None or max(map(len, lines)) <= width:
        return lines
    titles, *candidate_rows = rows
    longest = max(map(len, titles[1:]))
    lines = [f"  {titles[0]}:"]
    for name, *cells in candidate_rows:
        lines.append(f"  {name}")
        lines += [f"    {title.ljust(longest)}  {cell}" for title, cell in zip(titles[1:], cells, strict=True) if cell]
    return lines


def wrapped(lines: Sequence[str], width: int | None) -> str:
    """Return lines wrapped to `width` columns; a continued line is indented further."""
    if width is None:
        return "\n".join(lines)
    wrapper = textwrap.TextWrapper(max(width, 20), break_long_words=False, break_on_hyphens=False)
    rows = []
    for line in lines:
        wrapper.initial_indent = " " * (len(line) - len(line.lstrip()))
        wrapper.subsequent_indent = wrapper.initial_indent + "    "
        rows += wrapper.wrap(line.strip()) or [""]
    return "\n".join(rows)


def assumed(run: TrainingRun, others: Sequence[TrainingRun], law: Law, decision: Decision | None) -> tuple[str, ...]:
    """Return the assumptions of a forecast, and of a decision where there is one, a clause each."""
    return (*_assumed_of_run(run), *_assumed_of_others(run, others), *_assumed_of_decision(run, others, law, decision))


def _assumed_of_run(run: TrainingRun) -> Iterator[str]:
    """Yield the assumptions about the run."""
    if run.loss_curve.is_empty:
        yield "the loss is that of the law of Hoffmann et al. 2022; another text or tokenizer has another level"
        yield "compute is 6 x parameters x tokens, in FLOP"
        return
    yield f"the {run.metric} that was read, up to step {int(run.measured.steps[-1]):,}, is in nats per token"
    yield from run.notes
    if run.level_shift and not run.rests_on_shift:
        yield run.shift_remark
    if assumption := smoothing_assumption(run):
        yield assumption
    yield "compute is 6 x parameters x tokens, in FLOP"
    if np.isnan(run.facts.unique_tokens):
        yield "the run makes at most about 4 epochs; otherwise give unique_tokens (--unique-tokens) or epochs (--epochs)"
    if not run.facts.optimizer:
        yield "the optimizer may not be AdamW: give optimizer (--optimizer) for a narrower interval"
    unless_stated = "" if run.facts.weight_average else ", and the evaluated weights are not an average (EMA)"
    yield f"the batch size and the data mixture do not change{unless_stated}"
    if run.schedule.warmup_assumed:
        yield (
            "there was no warm-up: none was stated and no rates are logged; "
            "state its steps (--warmup-steps, warmup_steps), or 0"
        )
    if not checks.is_checkable(run):
        yield "the curve follows the law: it has too few points to check that, so no answer is confident"
    if not run.schedule.is_known:
        unknown = run.schedule.unknown_because
        yield f"the learning rate stays as it is, since {unknown}; a decay to come is in no forecast"


def _assumed_of_others(run: TrainingRun, others: Sequence[TrainingRun]) -> Iterator[str]:
    """Yield the assumptions about other runs of the family."""
    for other in others:
        if not other.loss_curve.is_empty and other.has_steps_left and other.schedule.is_known:
            yield (
                f"{other.model} is under way, at step {other.progress.step:,} of {other.final_step:,}; state its steps if "
                "it ended there"
            )
    unread = sorted(other.model for other in others if other.is_finished and not other.has_known_rates)
    if unread and any(other.has_known_rates for other in (*others, run)):
        yield f"not read, since the learning rates are not known: {', '.join(unread)}"


def _assumed_of_decision(
    run: TrainingRun, others: Sequence[TrainingRun], law: Law, decision: Decision | None
) -> Iterator[str]:
    """Yield the assumptions about the candidates."""
    if decision is None:
        return
    going_on = next((row for row in decision.candidates if row.candidate.name == CONTINUE), None)
    if going_on and run.progress.step + going_on.candidate.steps < run.final_step:
        steps = going_on.candidate.steps
        yield (
            f"what is left does not pay for the whole schedule: continuing ends at step {run.progress.step + steps:,}, "
            f"with the rest of the schedule compressed into {steps:,} steps"
        )
    if not any(weighed.candidate.from_scratch for weighed in decision.candidates):
        return
    yield (
        "a new size is trained from scratch under this schedule, or its own, rescaled to the steps that compute pays for"
    )
    if any(not np.isfinite(other.tokens_per_step) for other in others):
        yield f"a size without tokens_per_step has those of {run.model}"
    if law.n_sizes == 1:
        yield "one size is known: how the loss scales with size is taken from published families"


def find_out_first(
    run: TrainingRun, law: Law, decision: Decision, tracks: Sequence[Track], *, is_confident: bool
) -> str:
    """Return the observation that would decide an open choice, in one clause; "" where none is open."""
    for track in tracks:
        if not track.is_on_track:
            return f"why the loss is off track: {to_check(track)}"
    if is_confident or not decision.is_a_choice:
        return ""
    best, second = decision.candidates[:2]
    if not run.loss_curve.is_empty and not run.schedule.is_known:
        return f"the schedule: give that of {run.model}; whether the learning rate will decay decides"
    if best.expected_regret < NEGLIGIBLE_REGRET:
        return f"nothing: the expected regret is only {best.expected_regret:.3f} nats"
    if law.n_sizes < 2 and (best.candidate.from_scratch or second.candidate.from_scratch):
        return run_of_another_size(run)
    later = min(run.progress.step + max(run.final_step // 10, 1), run.final_step)
    return f"ask again at step {later:,}: by then the forecast of continuing is narrower"


class _OtherSize(NamedTuple):
    """Run of another size that tells how the loss scales: its shares of the size and of the tokens, and both in words."""

    size: float
    tokens: float
    text: str


_OTHER_SIZES = (
    _OtherSize(1 / 4, 1 / 4, "a quarter of the size on a quarter of the tokens"),
    _OtherSize(1 / 2, 1 / 2, "half of the size on half of the tokens"),
    _OtherSize(2.0, 1 / 2, "twice the size on half of the tokens"),
)
"""From the cheapest on; the smaller ones only where the law was judged on such sizes."""


def run_of_another_size(run: TrainingRun) -> str:
    """Return the run that would tell how the loss scales with size, in one clause."""
    *smaller, larger = _OTHER_SIZES
    other = next((each for each in smaller if each.size * run.n_parameters >= UNMEASURED_SIZES[1]), larger)
    cost = run.flop_of_steps(run.final_step) * other.size * other.tokens
    return (
        f"how the loss scales with size: train {other.text}, to the end of the same schedule ({cost:.2g} FLOP), and give "
        "it as a known run"
    )


def target_sentence(loss: float, forecast: TargetLoss) -> str:
    """Return when a loss is reached."""
    if forecast.reached_at is not None:
        return f"{loss:g} was reached at step {forecast.reached_at:,.0f}"
    if not np.isfinite(forecast.earliest):
        return f"{loss:g} is not reached by the planned end"
    if not np.isfinite(forecast.step):
        return f"{loss:g} is not forecast to be reached; at best at step {forecast.earliest:,.0f}"
    latest = f"{forecast.latest:,.0f}" if np.isfinite(forecast.latest) else "perhaps not at all"
    cost = f", {forecast.flop:.3g} FLOP in all" if np.isfinite(forecast.flop) else ""
    return f"{loss:g} at step {forecast.step:,.0f}{cost} ({forecast.earliest:,.0f} to {latest})"
