"""Columns that label the rows of a log: by split, process, run or metric."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.logs.names import (
    COUNTERS,
    LAST_STEP,
    OF_THE_BATCH,
    TEST,
    TRAINING,
    VALIDATION,
    loss_name,
    word_sets,
)
from toposcale.forecasting.logs.rows import Log, LogError
from toposcale.forecasting.logs.trainer_states import float_or_none
from toposcale.io.errors import counted, listed

SPLITS, RANKS, RUNS, METRICS, VALUES = word_sets(
    "split event phase mode stage set subset partition kind type job_type tag context",
    "rank local_rank global_rank worker worker_id process process_index device gpu replica micro_step micro_batch",
    "run run_id run_name runid name seed trial trial_id experiment exp model config job job_id sweep group id",
    "metric metric_name metricname name key tag variable series feature",
    "value metric_value metricvalue scalar",
)
"""Columns that label rows, in lower case: by split, process, run and metric; and columns of the values of a metric."""

_MISSING = ("None", "nan")
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


def labels_of(log: Log, names: Collection[str]) -> Iterator[Labels]:
    """Yield the columns of these names, in any case, that have more than one distinct value."""
    for column, values in log.columns.items():
        if column.strip().lower() in names:
            cells = [str(cell) for cell in np.asarray(values).tolist()]
            code_of = {
                cell: at for at, cell in enumerate(dict.fromkeys(cell for cell in cells if cell not in _MISSING))
            }
            texts = [cell.removesuffix(".0") for cell in code_of]
            if len(texts) > 1:
                yield Labels(column, texts, np.array([code_of.get(cell, -1) for cell in cells]))


def pivot(log: Log) -> None:
    """Make columns of the metrics of a long table, which has columns such as metric and value."""
    value = next((column for column in log.columns if column.strip().lower() in VALUES), "")
    for labels in labels_of(log, METRICS) if value else []:
        if not any(map(loss_name, labels.texts)):
            continue
        numbers = np.array([float_or_none(cell) for cell in log.columns[value]], dtype=np.float64)
        del log.columns[value], log.columns[labels.column]
        log.columns |= {text: np.where(labels.codes == code, numbers, np.nan) for code, text in enumerate(labels.texts)}
        log.notes.append(f"columns {labels.column} and {value}: one metric a row; read by its name")
        return


def refuse_table_of_runs(log: Log) -> None:
    """Raise LogError for a table with one row per run, as W&B exports it."""
    is_exported = len({column.strip().lower() for column in log.columns} & _RUN_TABLE) >= 3
    for labels in labels_of(log, RUNS):
        n_rows = len(labels.codes)
        repeats = "step" in log.series and len(np.unique(log.steps)) < n_rows
        is_named = labels.column.strip().lower().startswith("run") and n_rows > 2
        if is_exported or ((repeats or is_named) and len(labels.texts) == n_rows):
            raise LogError(
                f"a table of {n_rows} runs, one row a run (column {labels.column}: {labels.listed}); export "
                "the history of one run, one row a step"
            )


def read_one_training(log: Log) -> None:
    """Read the losses of evaluations as such, and the mean over processes; refuse rows of several runs."""
    refuse_table_of_runs(log)
    for labels in labels_of(log, SPLITS):
        _read_splits(log, labels)
    for labels in labels_of(log, RUNS):
        if _are_side_by_side(log, labels):
            raise LogError(
                f"column {labels.column} has {len(labels.texts)} runs ({labels.listed}); give the rows of one"
            )
    for labels in labels_of(log, RANKS):
        if _are_side_by_side(log, labels):
            _read_mean(log, labels)
            return
    _refuse_unknown_labels(log)


def _read_splits(log: Log, labels: Labels) -> None:
    """Make the losses of evaluations validation losses, and leave out those of other splits."""
    loss, before = log.values("loss"), log.values("validation_loss")
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
        return
    if not training and (unknown or not validation):
        raise LogError(
            f"column {labels.column} has several kinds of rows ({labels.listed}), and which are of the "
            "training is unknown; keep only those"
        )
    is_validation = np.isin(labels.codes, list(validation)) & ~np.isnan(loss)
    log.series["loss"] = np.where(is_validation | np.isin(labels.codes, list(unknown)), np.nan, loss)
    if validation:
        log.series["validation_loss"] = np.where(is_validation & np.isnan(before), loss, before)
        for name in {"gradient_norm", "learning_rate"} & log.series.keys():
            log.series[name] = np.where(is_validation, np.nan, log.series[name])
        count = counted(int(is_validation.sum()), "loss is a validation loss", "losses are validation losses")
        log.notes.append(f"column {labels.column}: {count}")
    if unknown:
        dropped = listed(sorted(labels.texts[code] for code in unknown), 4)
        log.notes.append(f"column {labels.column}: the losses of {dropped} were left out")
    log.drop_empty_loss()


def _are_side_by_side(log: Log, labels: Labels) -> bool:
    """Return whether labels share most of their steps; otherwise one continues another, as after a restart."""
    return len(np.unique(labels.codes + 1j * log.steps)) > 1.5 * len(np.unique(log.steps))


def _read_mean(log: Log, labels: Labels) -> None:
    """Take the mean over processes at each step; raise LogError if the steps of one go back."""
    n, series = len(labels.texts), log.series
    if any(np.any(np.diff(log.steps[labels.codes == code]) < 0) for code in range(n)):
        raise LogError(f"column {labels.column} has {n} processes whose steps go back; give the rows of one")
    _, first, index = np.unique(log.steps, return_index=True, return_inverse=True)
    log.keep(first)
    log.headers = ()
    for name in series.keys() - {"step"}:
        measured = ~np.isnan(series[name])
        sums, counts = (np.bincount(index[measured], weights, len(first)) for weights in (series[name][measured], None))
        log.series[name] = np.divide(sums, counts, out=np.full(len(first), np.nan), where=counts > 0)
    log.notes.append(f"column {labels.column}: the mean of {n} ({labels.listed}) is read at each step")


def _refuse_unknown_labels(log: Log) -> None:
    """Refuse several losses at most steps, or at those of evaluations, and name the column that labels them."""
    logged = ~np.isnan(log.main)
    steps = log.steps[logged]
    if np.all(np.diff(steps) > 0):  # most logs: spares them a sort
        return
    losses = np.unique(np.stack([steps, log.main[logged]]), axis=1)
    n_steps, n_losses = len(np.unique(steps)), losses.shape[1]
    are_most = n_steps <= 0.8 * len(steps)
    if n_steps == n_losses or (np.any(np.diff(steps) < 0) and not are_most):
        return
    known = {*SPLITS, *RANKS, *RUNS, *COUNTERS, *LAST_STEP, *OF_THE_BATCH, "epoch"}
    for labels in labels_of(log, [name for column in log.columns if (name := column.strip().lower()) not in known]):
        codes = labels.codes[logged]
        pairs = np.unique(codes + 1j * steps)
        of_label = (codes == code for code in np.unique(codes))
        # All rows of a label are at steps that other labels have too, as those of evaluations.
        are_shared = any(is_row.sum() > 1 and np.isin(steps[is_row], steps[~is_row]).all() for is_row in of_label)
        are_labelled = _are_side_by_side(log, labels) if are_most else are_shared
        if len(labels.texts) <= len(steps) / 4 and len(pairs) == len(steps) and are_labelled:
            raise LogError(
                f"{'most' if are_most else 'some'} steps have several losses, which column {labels.column} "
                f"labels ({labels.listed}); give the rows of one"
            )
    if are_most and np.all(np.diff(steps) >= 0) and n_losses > 1.2 * n_steps:
        raise LogError("most steps have several losses, and no column labels them; give one loss per step")
