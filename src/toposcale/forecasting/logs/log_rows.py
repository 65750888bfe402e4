"""Rows of a training log: select those of one training, and put them in order.

A file may mix rows of training and evaluation, of several processes or runs, or of several metrics, and hold rows that a
restart made void. Notes say what was done; if the right rows are unknown, a UserError names the column that matters.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.columns import CONSUMED, IN_SEQUENCES, NAMES
from toposcale.forecasting.logs.log_files import column_of
from toposcale.io.errors import UserError, listed

Columns = Mapping[str, Any]
"""Arrays by name."""

SPLITS, RANKS, RUNS, METRICS, VALUES = (
    frozenset(names.split())
    for names in (
        "split event phase mode stage set subset partition kind type job_type tag",
        "rank local_rank global_rank worker worker_id process process_index device gpu replica",
        "run run_id run_name runid name seed trial trial_id experiment exp model config job job_id sweep group id",
        "metric metric_name name key tag variable series",
        "value metric_value scalar",
    )
)
"""Columns that label rows, in lower case: by split, process, run and metric; and columns of the values of a metric."""

_RUN_TABLE = {"state", "created", "runtime", "user", "sweep", "tags", "notes"}
_TRAINING = {"train", "training", "trn", "fit"}
_VALIDATION = ({"val", "valid", "validation", "validate", "eval", "evaluation", "dev"}, {"test", "testing", "heldout"})


class Rows(NamedTuple):
    """Float columns (rows,) by quantity, notes on what was changed, and steps to which restarts went back."""

    columns: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()
    restarts: tuple[float, ...] = ()


class _Labels(NamedTuple):
    """A column that labels rows: its name, its distinct texts, and the index of the text of each row, -1 for none."""

    column: str
    texts: list[str]
    codes: np.ndarray

    @property
    def listed(self) -> str:
        """Some of the texts, for a message."""
        return listed(self.texts, 4)


def _labels(columns: Columns, names: Collection[str]) -> Iterator[_Labels]:
    """Yield the columns of these names, in any case, that have more than one distinct value."""
    for column in columns:
        if column.strip().lower() in names:
            values = np.asarray(columns[column])
            try:
                cells = [None if cell is None or cell != cell else cell for cell in values.tolist()]
            except (TypeError, ValueError):  # other objects, such as arrays
                continue
            if values.dtype == object:
                cells = [None if cell is None else str(cell) for cell in cells]
            code_of = {
                cell: code for code, cell in enumerate(dict.fromkeys(cell for cell in cells if cell is not None))
            }
            texts = [f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in code_of]
            if len(texts) > 1:
                yield _Labels(column, texts, np.array([code_of.get(cell, -1) for cell in cells]))


def pivoted(columns: Columns) -> tuple[Columns, tuple[str, ...]]:
    """Return a long table (columns such as metric and value) with one column per metric."""
    value = next((column for column in columns if column.strip().lower() in VALUES), "")
    for labels in _labels(columns, METRICS) if value else []:
        plain = {text.lower() for text in labels.texts}
        if not plain & {*NAMES["loss"], *NAMES["validation_loss"]}:
            continue
        numbers = column_of(list(columns[value]))
        rest = {column: columns[column] for column in columns if column not in (labels.column, value)}
        by_metric = {text: np.where(labels.codes == code, numbers, np.nan) for code, text in enumerate(labels.texts)}
        return rest | by_metric, (f"columns {labels.column} and {value}: one metric a row; read by its name",)
    return columns, ()


def refuse_table_of_runs(columns: Columns, where: object, steps: np.ndarray | None = None) -> None:
    """Raise UserError for a table with one row per run, as W&B exports it."""
    is_exported = len({column.strip().lower() for column in columns} & _RUN_TABLE) >= 3
    for labels in _labels(columns, RUNS):
        n_rows = len(labels.codes)
        repeats = steps is not None and len(np.unique(steps)) < n_rows
        is_named = labels.column.strip().lower().startswith("run") and n_rows > 2
        if is_exported or ((repeats or is_named) and len(labels.texts) == n_rows):
            raise UserError(
                f"{where}: a table of {n_rows} runs, one row a run (column {labels.column}: {labels.listed}); export the "
                "history of one run, one row a step"
            )


def of_one_training(series: dict[str, np.ndarray], columns: Columns, where: object) -> Rows:
    """Return the rows of one training, in order.

    series: float columns by quantity, including step. columns: all columns, some of which may label rows.
    """
    refuse_table_of_runs(columns, where, series["step"])
    notes: list[str] = []
    for labels in _labels(columns, SPLITS):
        series, changes = _by_split(series, labels, where)
        notes += changes
    for labels in _labels(columns, RUNS):
        if _are_side_by_side(series, labels):
            raise UserError(
                f"{where}: column {labels.column} has {len(labels.texts)} runs ({labels.listed}); give the rows of one"
            )
    for labels in _labels(columns, RANKS):
        if _are_side_by_side(series, labels):
            rows = _mean_over(series, labels)
            return rows._replace(notes=(*notes, *rows.notes))
    _refuse_unknown_labels(series, columns, where)
    named = [np.asarray(columns[name]) for name in columns if name.strip().lower() == "epoch"]
    epochs = next((values for values in named if values.dtype.kind in "iuf"), ())
    rows = in_order(series, where, epochs)
    return rows._replace(notes=(*notes, *rows.notes))


def _by_split(series: dict[str, np.ndarray], labels: _Labels, where: object) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the series with evaluation losses as validation losses and without losses of other splits; and notes."""
    loss, before = (column_or_nan(series, name) for name in ("loss", "validation_loss"))
    with_loss = set(np.unique(labels.codes[~np.isnan(loss)]).tolist()) - {-1}
    words = {code: set(re.split(r"[\W_\d]+", labels.texts[code].lower())) for code in with_loss}
    training = {code for code in with_loss if words[code] & _TRAINING}
    validation: set[int] = set()
    for names in _VALIDATION:  # a test set counts if there is no validation set
        validation = validation or {code for code in with_loss - training if words[code] & names}
    others = with_loss - training - validation
    if not training and len(rest := {code for code in others if not words[code] & _VALIDATION[1]}) == 1:
        training, others = rest, others - rest
    changes = np.count_nonzero(np.diff(labels.codes[~np.isnan(loss)]))
    if not validation and changes < max(len(with_loss), 2):  # consecutive stages of the training
        return series, []
    if not training and (others or not validation):
        raise UserError(
            f"{where}: column {labels.column} has several kinds of rows ({labels.listed}), and which are of the training "
            "is unknown; keep only those"
        )
    is_validation = np.isin(labels.codes, list(validation)) & ~np.isnan(loss)
    changed = series | {"loss": np.where(is_validation | np.isin(labels.codes, list(others)), np.nan, loss)}
    if validation:
        changed["validation_loss"] = np.where(is_validation & np.isnan(before), loss, before)
        for name in {"gradient_norm", "learning_rate"} & series.keys():
            changed[name] = np.where(is_validation, np.nan, series[name])
    notes = [f"column {labels.column}: {is_validation.sum():,} losses are validation losses"] if validation else []
    dropped = sorted(labels.texts[code] for code in others)
    notes += [f"column {labels.column}: the losses of {listed(dropped, 4)} were left out"] if dropped else []
    return changed, notes


def _are_side_by_side(series: Mapping[str, np.ndarray], labels: _Labels) -> bool:
    """Return whether labels share most of their steps; otherwise one continues another, as after a restart."""
    return len(np.unique(labels.codes + 1j * series["step"])) > 1.5 * len(np.unique(series["step"]))


def _mean_over(series: Mapping[str, np.ndarray], labels: _Labels) -> Rows:
    """Return the mean over processes at each step."""
    parts = [
        in_order({name: values[labels.codes == code] for name, values in series.items()})
        for code in range(len(labels.texts))
    ]
    steps, index = np.unique(np.concatenate([part.columns["step"] for part in parts]), return_inverse=True)
    means = {"step": steps}
    for name in series.keys() - {"step"}:
        values = np.concatenate([part.columns[name] for part in parts])
        measured = ~np.isnan(values)
        sums, counts = (np.bincount(index[measured], weights, len(steps)) for weights in (values[measured], None))
        means[name] = np.divide(sums, counts, out=np.full(len(steps), np.nan), where=counts > 0)
    note = f"column {labels.column}: the mean of {len(parts)} ({labels.listed}) is read at each step"
    notes = dict.fromkeys(text for part in parts for text in part.notes)
    return Rows(means, (note, *notes), tuple({step for part in parts for step in part.restarts}))


def _refuse_unknown_labels(series: Mapping[str, np.ndarray], columns: Columns, where: object) -> None:
    """Raise UserError if most steps have several losses, or some do because rows of evaluations are among the others.

    The message names the column that distinguishes them, if any.
    """
    logged = ~np.isnan(series.get("loss", series["step"]))
    steps = series["step"][logged]
    if np.all(np.diff(steps) > 0):  # most logs: spares them a sort
        return
    losses = np.unique(np.stack([steps, main_loss(series)[logged]]), axis=1)
    n_steps, n_losses = len(np.unique(steps)), losses.shape[1]
    are_most = n_steps <= 0.8 * len(steps)
    if n_steps == n_losses or (np.any(np.diff(steps) < 0) and not are_most):
        return
    known_names = {*SPLITS, *RANKS, *RUNS, "epoch", *(name for names in NAMES.values() for name in names)}
    for labels in _labels(columns, [name for column in columns if (name := column.strip().lower()) not in known_names]):
        codes = labels.codes[logged]
        pairs = np.unique(codes + 1j * steps)
        are_labelled = _are_side_by_side(series, labels) if are_most else _are_of_evaluations(steps, codes)
        if len(labels.texts) <= len(steps) / 4 and len(pairs) == len(steps) and are_labelled:
            raise UserError(
                f"{where}: {'most' if are_most else 'some'} steps have several losses, which column {labels.column} labels "
                f"({labels.listed}); give the rows of one"
            )
    if not are_most:
        return
    if np.all(np.diff(steps) >= 0) and n_losses > 2 * n_steps:
        raise UserError(f"{where}: most steps have several losses, and no column labels them; give one loss per step")


def _are_of_evaluations(steps: np.ndarray, codes: np.ndarray) -> bool:
    """Return whether all rows of one label, two or more, are at steps that other labels have too."""
    rows = (codes == code for code in np.unique(codes))
    return any(own.sum() > 1 and np.isin(steps[own], steps[~own]).all() for own in rows)


def in_order(series: Mapping[str, np.ndarray], where: object = "", epochs: np.ndarray | tuple[()] = ()) -> Rows:
    """Return the valid rows: a row is void if a later one goes back to its step or an earlier one, as after a restart.

    If the steps start again, another run or (if the loss continues) another stage begins; the last one is returned.
    """
    steps, columns = series["step"], dict(series)
    loss = main_loss(series)
    logged = np.flatnonzero(~np.isnan(loss))
    seen, losses = steps[logged], loss[logged]
    if not np.any(np.diff(seen) < 0):
        return Rows(columns)
    if np.all(np.diff(seen) <= 0):
        return Rows({name: values[::-1] for name, values in columns.items()})
    back = np.flatnonzero(np.diff(seen) < 0) + 1
    ranges = sorted((part.min(), part.max()) for part in np.split(seen, back))
    apart = all(one[1] < other[0] for one, other in pairwise(ranges))
    if apart or len(back) > max(3, 0.05 * len(seen)):
        return Rows(columns, ("the rows are not in the order of their steps: they were sorted",))
    interval = np.median(np.abs(np.diff(seen)))
    start = np.minimum.accumulate(seen)[back - 1]
    starts_again = (seen[back] <= start) | (
        (seen[back] <= start + 2 * interval) & (seen[back - 1] > start + 10 * interval)
    )
    if len(epochs) and starts_again.any() and np.all(np.diff(epochs[logged])[back[starts_again] - 1] > 0):
        raise UserError(
            f"{where}: the steps start again in each epoch; name a column that counts them over all epochs (--step-column)"
        )
    to_come = np.full(len(steps) + 1, np.inf)  # the lowest step to which later rows go back
    to_come[logged[back]] = np.where(starts_again, -np.inf, seen[back])
    to_come = np.minimum.accumulate(to_come[::-1])[::-1][1:]
    kept = steps < to_come
    dropped = f"{int(np.sum(~kept[logged])):,} rows before that were left out"
    if starts_again.any():
        row = int(back[starts_again][-1])
        before = np.median(losses[max(row - 5, 0) : row])
        continues = abs(losses[row] - before) < abs(losses[row] - losses[0])
        event = "a further stage begins, since the loss continues" if continues else "another run begins"
        note = f"where the steps start again at {seen[row]:,.0f}, {event}: only it is read, and {dropped}"
    else:
        times = f"goes back {len(back)} times, at last" if len(back) > 1 else "goes back"
        note = f"the log {times} to step {seen[back[-1]]:,.0f}, as after a restart: {dropped}"
    restarts = seen[back[~starts_again]].tolist()
    return Rows({name: values[kept] for name, values in columns.items()}, (note,), tuple(restarts))


LARGEST_BATCH_CHANGE = 1.05
"""Largest ratio of the tokens of a step late and early in a training whose batch is constant."""


def changed_batch(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return a reason for low confidence where the log shows that its batch size changes.

    steps: (rows,); columns: those of `OF_THE_BATCH` that are logged, (rows,) each.
    """
    for name, (early, late) in _batches(steps, columns):
        if not _is_constant(early, late):
            change = f"according to {name}, the batch size changed from {early:.3g} to {late:.3g}"
            return (f"{change}; the law assumes that it is constant",)
    return ()


def tokens_per_step(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> int | None:
    """Return the tokens of a step that a column of tokens states; None without one, or if they change.

    steps, columns: as in `changed_batch`. Fractions are of another unit, such as billions of tokens.
    """
    counted = {
        name: values
        for name, values in columns.items()
        if name.strip().lower() not in IN_SEQUENCES and not np.any(values[np.isfinite(values)] % 1)
    }
    for _, (early, late) in _batches(steps, counted):
        if _is_constant(early, late):
            return round((early + late) / 2)
    return None


def _batches(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the name of each column of the batch, and the median batch in the first and in the last quarter of the log."""
    for name, values in columns.items():
        usable = np.isfinite(values)
        per_step = values[usable]
        if name.strip().lower() in CONSUMED:
            forward = np.diff(steps[usable]) > 0  # not where a restart goes back
            per_step = np.diff(per_step)[forward] / np.diff(steps[usable])[forward]
        quarter = -(-len(per_step) // 4)
        if quarter and per_step.min() > 0:
            yield name, (float(np.median(per_step[:quarter])), float(np.median(per_step[-quarter:])))


def _is_constant(early: float, late: float) -> bool:
    return max(early / late, late / early) <= LARGEST_BATCH_CHANGE


def column_or_nan(series: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return a column (rows,), NaN if it is missing."""
    return series.get(name, np.full(len(series["step"]), np.nan))


def main_loss(series: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the training losses, or the validation losses if there are none."""
    loss = column_or_nan(series, "loss")
    return column_or_nan(series, "validation_loss") if np.isnan(loss).all() else loss


def has_dropped(steps: np.ndarray, losses: np.ndarray, restart: float) -> bool:
    """Return whether the losses after a restart lie below the extrapolated line of those before it, by more than noise.

    steps: (rows,), ascending. Loss curves are convex, so without a change the losses lie above that line.
    """
    row, half = np.searchsorted(steps, (restart, restart / 2)).tolist()
    n = min(len(steps) - row, (row - half) // 2, 150)  # short enough to be linear in log-log coordinates
    if n < 5:
        return False
    times, logs = np.log(np.maximum(steps, 1.0)), np.log(np.maximum(losses, 1e-12))
    before, after = slice(row - 2 * n, row), slice(row, row + n)
    x, y = times[before] - times[before].mean(), logs[before] - logs[before].mean()
    ahead, power = times[after].mean() - times[before].mean(), float(x @ x)
    slope = float(x @ y) / power
    change = logs[after].mean() - logs[before].mean() - slope * ahead
    spread = np.sqrt(np.sum((y - slope * x) ** 2) / (2 * n - 2))
    error = spread * np.sqrt(1.5 / n + ahead**2 / power)
    return bool(change < -3 * max(error, 1e-4))
