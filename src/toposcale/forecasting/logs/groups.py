"""Groups of the rows of a log by metric, split, process and run, told by columns that label them or by their steps.

Rows stay in the order of the file. A step that goes back begins a segment: one that goes on from inside the segment before
it is the same run after a restart, any other begins another run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from toposcale.forecasting.logs.names import RANKS, RUNS, SPLITS, TEST, TRAINING, VALIDATION
from toposcale.forecasting.logs.rows import Labels, LogError, Series, StepsOfEpochsError, labels_of, last_number
from toposcale.forecasting.runs.series import noise_of
from toposcale.io.errors import counted, listed

MAX_LEVEL_CHANGE = 0.15
"""Largest difference of log losses at a restart; the losses of another run, or of one that diverged, differ by more."""

MIN_JUMP = 0.3
"""Rise of the log loss from one row to the next at which another run may begin, though the steps go on."""

MAX_RESTARTS = 5
"""Restarts beyond which, if they are many of the rows too, the rows are not in the order of their steps."""

MAX_RESTART_SHARE = 0.05
"""Share of the rows from which restarts are many."""

MAX_LOGGED_AGAIN = 2
"""Steps that may have two losses, of which the last counts."""

_RUN_TABLE = {"state", "created", "runtime", "user", "sweep", "tags", "notes"}


def refuse_table_of_runs(columns: Mapping[str, Any]) -> None:
    """Raise LogError for a table with one row per run, as W&B exports it."""
    is_exported = len({column.strip().lower() for column in columns} & _RUN_TABLE) >= 3
    for labels in labels_of(columns, RUNS):
        n_rows = len(labels.codes)
        is_named = labels.column.strip().lower().startswith("run") and len(labels.texts) == n_rows > 2
        if is_exported or is_named:
            raise LogError(
                f"a table of {n_rows} runs, one row a run (column {labels.column}: {labels.listed}); export "
                "the history of one run, one row a step"
            )


def one_training(series: Series) -> Series:
    """Return the series with the losses of evaluations as such, and the mean over processes; refuse labelled runs."""
    for labels in labels_of(series.others, SPLITS):
        series = _by_split(series, labels)
    for labels in labels_of(series.others, RUNS):
        if labels.are_side_by_side(series.steps):
            raise LogError(
                f"column {labels.column} has {len(labels.texts)} runs ({labels.listed}); give the rows of one"
            )
    for labels in labels_of(series.others, RANKS):
        if labels.are_side_by_side(series.steps):
            return _mean_over_processes(series, labels)
    _refuse_several_losses(series)
    return series


def _by_split(series: Series, labels: Labels) -> Series:
    """Return the losses of evaluations as validation losses, without those of other splits."""
    loss, before = series.of("loss"), series.of("validation_loss")
    with_loss = set(np.unique(labels.codes[~np.isnan(loss)]).tolist()) - {-1}
    words = {code: set(re.split(r"[\W_\d]+", labels.texts[code].lower())) for code in with_loss}
    training = {code for code in with_loss if words[code] & TRAINING}
    validation: set[int] = set()
    for names in (VALIDATION, TEST):  # a test set counts if there is no validation set
        validation = validation or {code for code in with_loss - training if words[code] & names}
    unknown = with_loss - training - validation
    if not training and len(rest := {code for code in unknown if not words[code] & TEST}) == 1:
        training, unknown = rest, unknown - rest
    changes = np.count_nonzero(np.diff(labels.codes[~np.isnan(loss)]))
    if not validation and changes < max(len(with_loss), 2):  # consecutive stages of the training
        return series
    if not training and (unknown or not validation):
        raise LogError(
            f"column {labels.column} has several kinds of rows ({labels.listed}), and which are of the "
            "training is unknown; keep only those"
        )
    is_validation = np.isin(labels.codes, list(validation)) & ~np.isnan(loss)
    values = {"loss": np.where(is_validation | np.isin(labels.codes, list(unknown)), np.nan, loss)}
    notes = []
    if validation:
        values["validation_loss"] = np.where(is_validation & np.isnan(before), loss, before)
        for name in {"gradient_norm", "learning_rate"} & series.values.keys():
            values[name] = np.where(is_validation, np.nan, series.values[name])
        count = counted(int(is_validation.sum()), "loss is a validation loss", "losses are validation losses")
        notes.append(f"column {labels.column}: {count}")
    if unknown:
        dropped = listed(sorted(labels.texts[code] for code in unknown), 4)
        notes.append(f"column {labels.column}: the losses of {dropped} were left out")
    return series.changed(values, *notes)


def _mean_over_processes(series: Series, labels: Labels) -> Series:
    """Return the mean over processes at each step; raise LogError if the steps of one go back."""
    n, steps = len(labels.texts), series.steps
    if any(np.any(np.diff(steps[labels.codes == code]) < 0) for code in range(n)):
        raise LogError(f"column {labels.column} has {n} processes whose steps go back; give the rows of one")
    _, first, index = np.unique(steps, return_index=True, return_inverse=True)
    means = {}
    for name in series.values.keys() - {"step"}:
        values, is_known = series.values[name], ~np.isnan(series.values[name])
        sums, counts = (np.bincount(index[is_known], weights, len(first)) for weights in (values[is_known], None))
        means[name] = np.divide(sums, counts, out=np.full(len(first), np.nan), where=counts > 0)
    note = f"column {labels.column}: the mean of {n} ({labels.listed}) is read at each step"
    return series.keep(first).changed(means, note)


def _refuse_several_losses(series: Series) -> None:
    """Raise LogError for several losses at some steps, unless these go back as after a restart."""
    logged = _logged(series)
    steps, losses = series.steps[logged], series.main[logged]
    again = np.flatnonzero((np.diff(steps) == 0) & (losses[1:] != losses[:-1]))
    if len(again) > MAX_LOGGED_AGAIN and np.all(np.diff(steps) >= 0):
        first, second = (series.place(logged[row]) for row in (again[0], again[0] + 1))
        raise LogError(
            f"{len(np.unique(steps[again])):,} steps have several losses, the first at {first} and {second}; give one loss "
            "per step, and if one is of an evaluation, call it val_loss"
        )


@dataclass(frozen=True)
class Run:
    """Rows of one run, of which some segments go on with those before them.

    rows: those that no later segment makes void; logged: those of them with a main loss, steps ascending. restarts: steps
    to which segments go back. n_void: number of void losses.
    """

    rows: np.ndarray
    logged: np.ndarray
    restarts: tuple[float, ...] = ()
    n_void: int = 0


def one_run_of(series: Series, number: int | None = None) -> tuple[Series, tuple[float, ...]]:
    """Return the rows of one run, in the order of their steps, and the steps to which restarts went back.

    number: the run to read, from 1; without one, several runs are refused.
    """
    _refuse_steps_of_epochs(series)
    logged = _logged(series)
    steps = series.steps[logged]
    if len(logged) > 1 and np.all(np.diff(steps) <= 0) and steps[0] > steps[-1]:
        series = series.keep(np.arange(len(series.steps))[::-1])
        logged = _logged(series)
    back = np.flatnonzero(np.diff(series.steps[logged]) < 0) + 1
    segments = np.split(logged, np.union1d(back, _jumps(series, logged)).astype(int))
    runs = _runs(series, segments)
    _refuse_disorder(series, segments, runs)
    run, notes = runs[0], []
    if len(runs) > 1 or number not in (None, 1):
        described = _described(series, runs)
        if number is None:
            raise LogError(f"{described}; choose one with --run (run)")
        if not 1 <= number <= len(runs):
            raise LogError(f"no run {number} (--run): it has {described}")
        run, notes = runs[number - 1], [f"run {number} of {described} is read"]
    if run.restarts:
        times = f"goes back {len(run.restarts)} times, at last" if len(run.restarts) > 1 else "goes back"
        void = counted(run.n_void, "row before that was", "rows before that were")
        notes.append(f"the log {times} to step {run.restarts[-1]:,.0f}, as after a restart: {void} left out")
    series = series.changed({}, *notes).keep(run.rows)
    _refuse_steps_of_evaluations(series)
    return series, run.restarts


def _refuse_steps_of_epochs(series: Series) -> None:
    """Raise LogError if the steps go back wherever an epoch begins."""
    for epochs in series.others_called(["epoch"]).values():
        logged = np.flatnonzero(~np.isnan(series.main))
        back = np.diff(series.steps[logged]) < 0
        if back.any() and np.all(np.diff(epochs[logged])[back] > 0):
            raise StepsOfEpochsError(
                "the steps start again in each epoch; name a column that counts them over all epochs "
                "(--step-column), or make one: (epoch - 1) x batches + batch"
            )


def _logged(series: Series) -> np.ndarray:
    """Return the rows with a main loss."""
    return np.flatnonzero(~np.isnan(series.main))


def _logs(losses: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(losses, 1e-12))


def _jumps(series: Series, logged: np.ndarray) -> list[int]:
    """Return where the loss rises at once, and stays, at a new interval or another total of steps."""
    places = np.flatnonzero(np.isfinite(series.main[logged]))
    logged, jumps = logged[places], []
    logs, steps = _logs(series.main[logged]), series.steps[logged]
    jump = max(MIN_JUMP, 6 * noise_of(logs))  # of single batches
    for at in np.flatnonzero(np.diff(logs) > jump) + 1:
        if at < 3 or at + 3 > len(logs) or np.median(logs[at : at + 3]) - np.median(logs[at - 3 : at]) < jump:
            continue
        before, after = np.diff(steps[max(at - 5, 0) : at]), np.diff(steps[at : at + 5])
        totals = (last_number(series.totals[logged[part]]) for part in (slice(at - 3, at), slice(at, at + 3)))
        if len({*totals}) > 1 or np.median(before) != np.median(after):
            jumps.append(int(places[at]))
    return jumps


def _starts_again(series: Series, segment: np.ndarray, following: np.ndarray) -> bool:
    """Return whether rows begin at the first steps of those before them."""
    steps, first = series.steps[segment], series.steps[following[0]]
    intervals = [
        float(np.median(np.diff(series.steps[rows]))) if len(rows) > 1 else 0.0 for rows in (segment, following)
    ]
    is_near = first <= steps[0] + 2 * max(intervals) and steps[-1] > steps[0] + 10 * intervals[0]
    return bool(first <= steps[0] or is_near)


def _refuse_disorder(series: Series, segments: Sequence[np.ndarray], runs: Sequence[Run]) -> None:
    """Refuse steps that go back so often, or so many void rows, that the rows are of several runs, or in no order."""
    n_rows, n_void = sum(map(len, segments)), sum(run.n_void for run in runs)
    are_many = sum(len(run.restarts) for run in runs) > max(MAX_RESTARTS, MAX_RESTART_SHARE * n_rows)
    if are_many or (len(segments) > 3 and (2 * n_void > n_rows or n_rows < 3 * len(segments))):
        first = segments[1][0]
        raise LogError(
            f"the steps go back {len(segments) - 1:,} times, first at {series.place(first)} to step "
            f"{series.steps[first]:,.0f}: rows of several runs are mixed, or not in the order of their steps; give "
            "those of one run in that order"
        )


def _runs(series: Series, segments: Sequence[np.ndarray]) -> list[Run]:
    """Return the runs: a segment that resumes the one before it makes the rows from its first step on void."""
    starts = [0, *(_start(series, int(one[-1]), int(other[0])) for one, other in pairwise(segments))]
    runs: list[Run] = []
    for logged, start, end in zip(segments, starts, [*starts[1:], len(series.steps)], strict=True):
        rows = np.arange(start, end)
        if not runs or not _resumes(series, runs[-1].logged, logged):
            runs.append(Run(rows, logged))
            continue
        run, first = runs[-1], series.steps[logged[0]]
        before = run.logged[series.steps[run.logged] < first]
        n_void = len(run.logged) - len(before)
        runs[-1] = Run(
            rows=np.concatenate([run.rows[series.steps[run.rows] < first], rows]),
            logged=np.concatenate([before, logged]),
            restarts=(*run.restarts, float(first)) if n_void else run.restarts,
            n_void=run.n_void + n_void,
        )
    return runs


def _start(series: Series, before: int, first: int) -> int:
    """Return where a segment begins: at the first row without a loss between two with one whose step goes back."""
    steps = series.steps[before:first]
    going_back = np.flatnonzero(steps[1:] < np.maximum.accumulate(steps)[:-1])
    return before + 1 + int(going_back[0]) if len(going_back) else first


def _resumes(series: Series, segment: np.ndarray, following: np.ndarray) -> bool:
    """Return whether rows go on with the run before them: from inside it, with its total of steps, and at its level."""
    totals = {last_number(series.totals[segment]), last_number(series.totals[following])} - {None}
    if _starts_again(series, segment, following) or len(totals) > 1:
        return False
    segment, following = (rows[np.isfinite(series.main[rows])] for rows in (segment, following))
    if not len(segment) or not len(following):
        return True
    before, steps, first = _logs(series.main[segment]), series.steps[segment], series.steps[following[0]]
    row, after = max(int(np.searchsorted(steps, first)), 1), _logs(series.main[following])
    nearest = np.argsort(np.abs(steps - first), kind="stable")
    levels = [float(np.median(before[max(row - 3, 0) : row])), float(np.median(before[nearest[:3]]))]
    changes = [abs(float(np.median(after[:3])) - level) for level in levels]
    changes.append(float(np.abs(after[0] - before[nearest[0]])))  # a few rows of a steep curve
    return min(changes) <= max(MAX_LEVEL_CHANGE, 6 * noise_of(before[-200:]))


def _described(series: Series, runs: Sequence[Run]) -> str:
    """Return the number of runs, and the rows, steps and losses of the first and last ones."""
    texts = []
    for number, run in enumerate(runs, 1):
        steps, losses = series.steps[run.logged], series.main[run.logged]
        ends = f"steps {steps[0]:,.0f} to {steps[-1]:,.0f}, losses {losses[0]:.4g} to {losses[-1]:.4g}"
        texts.append(f"run {number}: {counted(len(run.logged), 'row')}, {ends}")
    shown = texts if len(texts) <= 6 else [*texts[:3], "...", *texts[-2:]]
    return f"{counted(len(runs), 'run')} ({'; '.join(shown)})"


def _refuse_steps_of_evaluations(series: Series) -> None:
    """Raise LogError if the validation losses have steps of their own, or several losses a step."""
    validation = series.of("validation_loss")
    evaluations = np.flatnonzero(np.isnan(series.main) & np.isfinite(validation))
    steps, training = series.steps[evaluations], _logged(series)
    remedy = "; forecast only the training loss by naming it with --loss-column, or give each evaluation its step"
    position = np.searchsorted(training, evaluations)
    inside = (position > 0) & (position < len(training))
    reached = series.steps[training[np.maximum(position, 1) - 1]] if len(training) else steps
    are_apart = np.abs(steps - reached) > 0.5 * np.maximum(reached, steps)
    behind = len(evaluations) > 2 and len(training) > 0 and np.all(position == len(training))
    is_beyond = behind and (steps[-1] > 1.5 * reached[-1] or 10 * steps[-1] < reached[-1])
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(back) or (inside.sum() > 2 and np.mean(are_apart[inside]) > 0.5) or is_beyond:
        wrong = back[0] if len(back) else -1
        raise LogError(
            f"the validation losses have steps of their own ({steps[wrong]:,.0f} at {series.place(evaluations[wrong])}, "
            f"where the training is at {reached[wrong]:,.0f}){remedy}"
        )
    pairs = np.unique(np.stack([steps, validation[evaluations]]), axis=1)
    if pairs.shape[1] > 1.5 * len(np.unique(steps)) and len(steps) > 3:
        raise LogError(f"most evaluations have several validation losses; give one of each step{remedy}")
