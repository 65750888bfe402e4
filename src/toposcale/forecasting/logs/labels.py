"""Columns that label the rows of a log: by split, process, run or metric."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.columns import column_or_nan, main_loss
from toposcale.forecasting.logs.names import (
    COUNTERS,
    LAST_STEP,
    OF_THE_BATCH,
    TEST,
    TRAINING,
    VALIDATION,
    loss_name,
    plain_name,
    word_sets,
)
from toposcale.forecasting.logs.trainer_states import number_of
from toposcale.io.errors import UserError, counted, listed

Columns = Mapping[str, Any]
Series = dict[str, np.ndarray]
"""Arrays (rows,) by name, and float arrays by quantity."""

SPLITS, RANKS, RUNS, METRICS, VALUES = word_sets(
    "split event phase mode stage set subset partition kind type job_type tag",
    "rank local_rank global_rank worker worker_id process process_index device gpu replica micro_step micro_batch",
    "run run_id run_name runid name seed trial trial_id experiment exp model config job job_id sweep group id",
    "metric metric_name metricname name key tag variable series",
    "value metric_value metricvalue scalar",
)
"""Columns that label rows, in lower case: by split, process, run and metric; and columns of the values of a metric."""

_RUN_TABLE = {"state", "created", "runtime", "user", "sweep", "tags", "notes"}


class Labels(NamedTuple):
    """A column that labels rows: its name, its distinct texts, and the index of the text of each row, -1 for none."""

    column: str
    texts: list[str]
    codes: np.ndarray

    @property
    def listed(self) -> str:
        """Some of the texts, for a message."""
        return listed(self.texts, 4)


def labels_of(columns: Columns, names: Collection[str]) -> Iterator[Labels]:
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
            code_of = {cell: at for at, cell in enumerate(dict.fromkeys(cell for cell in cells if cell is not None))}
            texts = [f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in code_of]
            if len(texts) > 1:
                yield Labels(column, texts, np.array([code_of.get(cell, -1) for cell in cells]))


def pivoted(columns: Columns) -> tuple[Columns, tuple[str, ...]]:
    """Return a long table (columns such as metric and value) with one column per metric, and a note."""
    value = next((column for column in columns if column.strip().lower() in VALUES), "")
    for labels in labels_of(columns, METRICS) if value else []:
        if not any(loss_name(plain_name(text)) for text in labels.texts):
            continue
        numbers = np.array([number_of(cell) for cell in columns[value]], dtype=np.float64)
        rest = {column: columns[column] for column in columns if column not in (labels.column, value)}
        by_metric = {text: np.where(labels.codes == code, numbers, np.nan) for code, text in enumerate(labels.texts)}
        return rest | by_metric, (f"columns {labels.column} and {value}: one metric a row; read by its name",)
    return columns, ()


def refuse_table_of_runs(columns: Columns, where: object, steps: np.ndarray | None = None) -> None:
    """Raise UserError for a table with one row per run, as W&B exports it."""
    is_exported = len({column.strip().lower() for column in columns} & _RUN_TABLE) >= 3
    for labels in labels_of(columns, RUNS):
        n_rows = len(labels.codes)
        repeats = steps is not None and len(np.unique(steps)) < n_rows
        is_named = labels.column.strip().lower().startswith("run") and n_rows > 2
        if is_exported or ((repeats or is_named) and len(labels.texts) == n_rows):
            raise UserError(
                f"{where}: a table of {n_rows} runs, one row a run (column {labels.column}: {labels.listed}); export the "
                "history of one run, one row a step"
            )


def of_one_training(series: Series, columns: Columns, where: object) -> tuple[Series, tuple[str, ...]]:
    """Return the series with the losses of evaluations as such and the mean over processes, and notes.

    series: float columns by quantity, including step. columns: all other columns. Raise UserError for rows of several runs,
    and if most steps have several losses.
    """
    refuse_table_of_runs(columns, where, series["step"])
    notes: list[str] = []
    for labels in labels_of(columns, SPLITS):
        series, changes = _by_split(series, labels, where)
        notes += changes
    for labels in labels_of(columns, RUNS):
        if _are_side_by_side(series, labels):
            raise UserError(
                f"{where}: column {labels.column} has {len(labels.texts)} runs ({labels.listed}); give the rows of one"
            )
    for labels in labels_of(columns, RANKS):
        if _are_side_by_side(series, labels):
            note = f"column {labels.column}: the mean of {len(labels.texts)} ({labels.listed}) is read at each step"
            return _mean_over(series, labels, where), (*notes, note)
    _refuse_unknown_labels(series, columns, where)
    return series, tuple(notes)


def _by_split(series: Series, labels: Labels, where: object) -> tuple[Series, list[str]]:
    """Return the series with evaluation losses as validation losses and without losses of other splits; and notes."""
    loss, before = (column_or_nan(series, name) for name in ("loss", "validation_loss"))
    with_loss = set(np.unique(labels.codes[~np.isnan(loss)]).tolist()) - {-1}
    words = {code: set(re.split(r"[\W_\d]+", labels.texts[code].lower())) for code in with_loss}
    training = {code for code in with_loss if words[code] & TRAINING}
    validation: set[int] = set()
    for names in (VALIDATION, TEST):  # a test set counts if there is no validation set
        validation = validation or {code for code in with_loss - training if words[code] & names}
    others = with_loss - training - validation
    if not training and len(rest := {code for code in others if not words[code] & TEST}) == 1:
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
    count = counted(int(is_validation.sum()), "loss is a validation loss", "losses are validation losses")
    notes = [f"column {labels.column}: {count}"] if validation else []
    dropped = sorted(labels.texts[code] for code in others)
    notes += [f"column {labels.column}: the losses of {listed(dropped, 4)} were left out"] if dropped else []
    return changed, notes


def _are_side_by_side(series: Mapping[str, np.ndarray], labels: Labels) -> bool:
    """Return whether labels share most of their steps; otherwise one continues another, as after a restart."""
    return len(np.unique(labels.codes + 1j * series["step"])) > 1.5 * len(np.unique(series["step"]))


def _mean_over(series: Mapping[str, np.ndarray], labels: Labels, where: object) -> Series:
    """Return the mean over processes at each step; raise UserError if the steps of one go back."""
    if any(np.any(np.diff(series["step"][labels.codes == code]) < 0) for code in range(len(labels.texts))):
        n = len(labels.texts)
        raise UserError(f"{where}: column {labels.column} has {n} processes whose steps go back; give the rows of one")
    steps, index = np.unique(series["step"], return_inverse=True)
    means = {"step": steps}
    for name in series.keys() - {"step"}:
        measured = ~np.isnan(series[name])
        sums, counts = (np.bincount(index[measured], weights, len(steps)) for weights in (series[name][measured], None))
        means[name] = np.divide(sums, counts, out=np.full(len(steps), np.nan), where=counts > 0)
    return means


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
    known = {*SPLITS, *RANKS, *RUNS, *COUNTERS, *LAST_STEP, *OF_THE_BATCH, "epoch"}
    for labels in labels_of(columns, [name for column in columns if (name := column.strip().lower()) not in known]):
        codes = labels.codes[logged]
        pairs = np.unique(codes + 1j * steps)
        are_labelled = _are_side_by_side(series, labels) if are_most else _are_of_evaluations(steps, codes)
        if len(labels.texts) <= len(steps) / 4 and len(pairs) == len(steps) and are_labelled:
            raise UserError(
                f"{where}: {'most' if are_most else 'some'} steps have several losses, which column {labels.column} labels "
                f"({labels.listed}); give the rows of one"
            )
    if are_most and np.all(np.diff(steps) >= 0) and n_losses > 1.2 * n_steps:
        raise UserError(f"{where}: most steps have several losses, and no column labels them; give one loss per step")


def _are_of_evaluations(steps: np.ndarray, codes: np.ndarray) -> bool:
    """Return whether all rows of one label, two or more, are at steps that other labels have too."""
    rows = (codes == code for code in np.unique(codes))
    return any(own.sum() > 1 and np.isin(steps[own], steps[~own]).all() for own in rows)
