"""Segments of a log: its rows stay in the order of the file, and a step that goes back begins a new segment.

A segment that goes on from inside the one before it is the same run after a restart. Any other begins another run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from toposcale.forecasting.logs.rows import Log, LogError, last_number
from toposcale.forecasting.runs.series import noise_of
from toposcale.io.errors import counted

SAME_LEVEL = 0.15
"""Largest difference of log losses at a restart; the losses of another run, or of one that diverged, differ by more."""

JUMP = 0.3
"""Rise of the log loss from one row to the next at which another run may begin, though the steps go on."""

MOST_RESTARTS, SHARE_OF_RESTARTS = 5, 0.05
"""Restarts beyond which, and beyond which share of the rows, the rows are not in the order of their steps."""

MOST_STRAY = 2
"""Rows after the end of a run that may be something else, such as a final test."""


@dataclass
class Run:
    """Rows of one run, in segments of which each goes on with those before it.

    starts: first rows of the segments. rows: rows that no later segment makes void; logged: those of them with a main loss,
    steps ascending. restarts: steps to which the segments after the first one go back. dropped: number of void losses.
    """

    starts: list[int]
    rows: np.ndarray
    logged: np.ndarray
    restarts: list[float] = field(default_factory=list)
    dropped: int = 0


def keep_one_run(log: Log, number: int | None = None) -> list[float]:
    """Keep the rows of one run of a log, in the order of their steps; return the steps to which restarts went back.

    number: the run to read, from 1; without one, several runs that nothing tells apart are refused.
    """
    logged = _logged(log)
    if len(logged) > 1 and np.all(np.diff(log.steps[logged]) <= 0) and log.steps[logged[0]] > log.steps[logged[-1]]:
        log.keep(np.arange(len(log.steps))[::-1])
    _keep(log, np.arange(len(log.steps)), _stray(log, _logged(log)))
    logged = _logged(log)
    back = np.flatnonzero(np.diff(log.steps[logged]) < 0) + 1
    segments = np.split(logged, np.union1d(back, _jumps(log, logged)).astype(int))
    runs = _runs(log, segments)
    _refuse_disorder(log, segments, sum(run.dropped for run in runs))
    run = _chosen(log, runs, number)
    stray = _checked_evaluations(log, run.rows)
    if run.restarts:
        times = f"goes back {len(run.restarts)} times, at last" if len(run.restarts) > 1 else "goes back"
        dropped = f"{counted(run.dropped, 'row before that was', 'rows before that were')} left out"
        log.notes.append(f"the log {times} to step {run.restarts[-1]:,.0f}, as after a restart: {dropped}")
    _keep(log, run.rows, stray)
    return run.restarts


def _logged(log: Log) -> np.ndarray:
    """Return the rows with a main loss."""
    return np.flatnonzero(~np.isnan(log.main))


def _keep(log: Log, rows: np.ndarray, stray: np.ndarray) -> None:
    """Keep rows without those that are of something else, which are noted."""
    if len(stray):
        rows_of = ", ".join(f"{log.place(row)}: step {log.steps[row]:,.0f}" for row in stray)
        count = counted(len(stray), "last row does", "last rows do")
        log.notes.append(f"{count} not go on with the run: left out ({rows_of}), a summary or a test?")
    kept = rows[~np.isin(rows, stray)] if len(stray) else rows  # most logs: spares them a sort
    if len(kept) < len(log.steps):
        log.keep(kept)


def _logs(losses: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(losses, 1e-12))


def _level_at(steps: np.ndarray, logs: np.ndarray, step: float) -> float:
    """Return the log loss of the three rows around a step."""
    return float(np.median(logs[np.argsort(np.abs(steps - step), kind="stable")[:3]]))


def _stray(log: Log, logged: np.ndarray) -> np.ndarray:
    """Return the one or two rows with a loss at the end that are of something else.

    Their steps do not go on, and their losses are not those of the run there: they are near the one at the end where the
    run had a higher one, or they repeat the last step with another loss.
    """
    for n in range(1, MOST_STRAY + 1):
        rows, last = logged[:-n], logged[-n:]
        if len(rows) < 5 * n or not np.isfinite(log.main[last]).all() or log.steps[last].max() > log.steps[rows[-1]]:
            continue
        rows = rows[np.isfinite(log.main[rows])]
        before, now, steps = _logs(log.main[rows]), _logs(log.main[last]), log.steps[rows]
        if len(before) < 5:
            continue
        end, noise = float(np.median(before[-5:])), max(6 * noise_of(before[-200:]), 1e-3)
        there = np.array([_level_at(steps, before, step) for step in log.steps[last]])
        repeats_last = (log.steps[last] == steps[-1]).all() and np.all(np.abs(now - end) > noise)
        is_of_end = np.all((there - end > max(noise, 0.03)) & (np.abs(now - end) < 0.5 * (there - end)))
        if repeats_last or is_of_end:
            return last
    return logged[:0]


def _start(log: Log, before: int, first: int) -> int:
    """Return where a segment begins: at the first row without a loss between two with one whose step goes back."""
    steps = log.steps[before:first]
    going_back = np.flatnonzero(steps[1:] < np.maximum.accumulate(steps)[:-1])
    return before + 1 + int(going_back[0]) if len(going_back) else first


def _jumps(log: Log, logged: np.ndarray) -> list[int]:
    """Return where the loss rises at once, and stays, at a new interval, a header or another total of steps."""
    places = np.flatnonzero(np.isfinite(log.main[logged]))
    logged, jumps = logged[places], []
    logs, steps = _logs(log.main[logged]), log.steps[logged]
    jump = max(JUMP, 6 * noise_of(logs))  # of single batches
    for at in np.flatnonzero(np.diff(logs) > jump) + 1:
        if at < 3 or at + 3 > len(logs) or np.median(logs[at : at + 3]) - np.median(logs[at - 3 : at]) < jump:
            continue
        before, after = np.diff(steps[max(at - 5, 0) : at]), np.diff(steps[at : at + 5])
        intervals = float(np.median(before)), float(np.median(after))
        totals = last_number(log.totals[logged[at - 3 : at]]), last_number(log.totals[logged[at : at + 3]])
        between = range(int(logged[at - 1]) + 1, int(logged[at]) + 1)
        has_header = any(len(rows) < 8 and not rows.isdisjoint(between) for rows in log.headers)
        if has_header or totals[0] != totals[1] or intervals[0] != intervals[1]:
            jumps.append(int(places[at]))
    return jumps


def _starts_again(log: Log, one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether rows begin at the first steps of those before them."""
    steps, first = log.steps[one], log.steps[other[0]]
    intervals = [float(np.median(np.diff(log.steps[rows]))) if len(rows) > 1 else 0.0 for rows in (one, other)]
    is_near = first <= steps[0] + 2 * max(intervals) and steps[-1] > steps[0] + 10 * intervals[0]
    return bool(first <= steps[0] or is_near)


def _refuse_disorder(log: Log, segments: Sequence[np.ndarray], n_void: int) -> None:
    """Refuse steps that go back so often, or so many void rows, that the rows are of several runs, or in no order."""
    pairs = [*pairwise(segments)]
    restarts = sum(not _starts_again(log, *pair) for pair in pairs)
    lengths = [*map(len, segments)]
    are_many = restarts > max(MOST_RESTARTS, SHARE_OF_RESTARTS * sum(lengths))
    are_short = len(lengths) > 3 and (np.median(lengths) < 3 or 2 * n_void > sum(lengths))
    if are_many or are_short:
        first = segments[1][0]
        raise LogError(
            f"the steps go back {len(pairs):,} times, first at {log.place(first)} to step "
            f"{log.steps[first]:,.0f}: rows of several runs are mixed, or not in the order of their steps; give "
            "those of one run in that order"
        )


def _runs(log: Log, segments: Sequence[np.ndarray]) -> list[Run]:
    """Return the runs: a segment that resumes the one before it makes the rows from its first step on void."""
    starts = [0, *(_start(log, int(one[-1]), int(other[0])) for one, other in pairwise(segments))]
    runs: list[Run] = []
    for logged, start, end in zip(segments, starts, [*starts[1:], len(log.steps)], strict=True):
        new = Run([start], np.arange(start, end), logged)
        if not runs or not _resumes(log, runs[-1].logged, logged):
            runs.append(new)
            continue
        run, first = runs[-1], log.steps[logged[0]]
        before = run.logged[log.steps[run.logged] < first]
        goes_back = len(before) < len(run.logged)
        run.dropped += len(run.logged) - len(before)
        run.starts.append(start)
        run.restarts += [float(first)] if goes_back else []
        run.logged = np.concatenate([before, logged])
        run.rows = np.concatenate([run.rows[log.steps[run.rows] < first], new.rows])
    return runs


def _resumes(log: Log, one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether rows go on with the run before them: from inside it, with its total of steps, and at its level."""
    totals = last_number(log.totals[one]), last_number(log.totals[other])
    if _starts_again(log, one, other) or (None not in totals and totals[0] != totals[1]):
        return False
    one, other = (rows[np.isfinite(log.main[rows])] for rows in (one, other))
    if not len(one) or not len(other):
        return True
    before, steps, first = _logs(log.main[one]), log.steps[one], log.steps[other[0]]
    row, after = max(int(np.searchsorted(steps, first)), 1), _logs(log.main[other])
    levels = [float(np.median(before[max(row - 3, 0) : row])), _level_at(steps, before, first)]
    changes = [abs(float(np.median(after[:3])) - level) for level in levels]
    changes.append(float(np.abs(after[0] - before[np.argmin(np.abs(steps - first))])))  # a few rows of a steep curve
    return min(changes) <= max(SAME_LEVEL, 6 * noise_of(before[-200:]))


def _chosen(log: Log, runs: Sequence[Run], number: int | None) -> Run:
    """Return the run that is read, and note the others; without a number it is the last one, if it is told apart."""
    if len(runs) == 1 and number in (None, 1):
        return runs[0]
    described = _described(log, runs)
    if number is None:
        if not _are_told_apart(log, runs):
            raise LogError(f"{described}; choose one with --run (run)")
        log.notes.append(f"{described}: the last one is read; choose another with --run (run)")
        return runs[-1]
    if not 1 <= number <= len(runs):
        raise LogError(f"no run {number} (--run): it has {described}")
    log.notes.append(f"run {number} of {described} is read")
    return runs[number - 1]


def _are_told_apart(log: Log, runs: Sequence[Run]) -> bool:
    """Return whether a header that seldom stands elsewhere precedes the last run, or its total of steps is another one."""
    before, last = runs[-2:]
    totals = last_number(log.totals[before.rows]), last_number(log.totals[last.rows])
    if None not in totals and totals[0] != totals[1]:
        return True
    boundary = range(int(before.logged[-1]) + 1, int(last.logged[0]) + 1)
    starts = {start for run in runs for start in run.starts} | {*boundary}
    return any(not rows.isdisjoint(boundary) and 2 * len(rows & starts) >= len(rows - {0}) for rows in log.headers)


def _described(log: Log, runs: Sequence[Run]) -> str:
    """Return the number of runs, and the rows, steps and losses of the first and last ones."""
    texts = []
    for number, run in enumerate(runs, 1):
        steps, losses = log.steps[run.logged], log.main[run.logged]
        ends = f"steps {steps[0]:,.0f} to {steps[-1]:,.0f}, losses {losses[0]:.4g} to {losses[-1]:.4g}"
        texts.append(f"run {number}: {counted(len(run.logged), 'row')}, {ends}")
    shown = texts if len(texts) <= 6 else [*texts[:3], "...", *texts[-2:]]
    return f"{counted(len(runs), 'run')} ({'; '.join(shown)})"


def _checked_evaluations(log: Log, rows: np.ndarray) -> np.ndarray:
    """Return an evaluation at the end whose step alone goes back; refuse steps of their own, and several losses a step."""
    validation = log.values("validation_loss")
    evaluations = rows[np.isnan(log.main[rows]) & np.isfinite(validation[rows])]
    steps = log.steps[evaluations]
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(back) == 1 and back[0] == len(evaluations) - 1 > 2:
        return evaluations[-1:]
    remedy = "; forecast the training loss alone by naming it with --loss-column, or give each evaluation its step"
    training = rows[~np.isnan(log.main[rows])]
    position = np.searchsorted(training, evaluations)
    inside = (position > 0) & (position < len(training))
    reached = log.steps[training[np.maximum(position, 1) - 1]] if len(training) else steps
    are_apart = np.abs(steps - reached) > 0.5 * np.maximum(reached, steps)
    behind = len(evaluations) > 2 and len(training) > 0 and np.all(position == len(training))
    is_beyond = behind and (steps[-1] > 1.5 * reached[-1] or 10 * steps[-1] < reached[-1])
    if len(back) or (inside.sum() > 2 and np.mean(are_apart[inside]) > 0.5) or is_beyond:
        wrong = back[0] if len(back) else -1
        raise LogError(
            f"the validation losses have steps of their own ({steps[wrong]:,.0f} at {log.place(evaluations[wrong])}, "
            f"where the training is at {reached[wrong]:,.0f}){remedy}"
        )
    pairs = np.unique(np.stack([steps, validation[evaluations]]), axis=1)
    if pairs.shape[1] > 1.5 * len(np.unique(steps)) and len(steps) > 3:
        raise LogError(f"most evaluations have several validation losses; give one of each step{remedy}")
    return evaluations[:0]
