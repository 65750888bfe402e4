"""Loss curves as trackers export them: tables, JSON, text logs, the state of transformers' Trainer, TensorBoard files.

Every reader yields rows in the order of the file, and one pass makes one `LossCurve` of them: the training log and the
metrics of one training. Unknown values are NaN or missing.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs import batches, event_files, labels, log_files, segments, trainer_states
from toposcale.forecasting.logs.columns import (
    column_or_nan,
    known_cells,
    main_loss,
    matched,
    numbers_or_nan,
    refuse_bits,
    refuse_missing,
)
from toposcale.forecasting.logs.names import LAST_STEP, OF_THE_BATCH, PARAMETERS, PERPLEXITY, VALIDATION, plain_name
from toposcale.forecasting.logs.rows import LogRows, location, rows_of
from toposcale.forecasting.logs.text_forms import GRAMMARS
from toposcale.forecasting.logs.trainer_states import number_of
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS
from toposcale.forecasting.runs.outliers import has_dropped
from toposcale.forecasting.runs.schedules import MOST_STEPS
from toposcale.forecasting.runs.series import logged_again
from toposcale.io.errors import UserError, counted

MOST_CHECKPOINTS = 200  # rows that stand for the checkpoints of a log without a validation loss
LOG = ("loss", "gradient_norm", "learning_rate")
_TRAINER_KEYS = ("step", "loss", "grad_norm", "learning_rate", "lr")
MOST_LOST = 1 / 20  # largest share of the losses whose step is missing


class LossCurve(NamedTuple):
    """Training log and metrics of one training.

    columns: float64 arrays (rows,): `step` (ascending, unique), `loss`, `gradient_norm`, `learning_rate` and the metrics,
    NaN if missing at a step and infinite if not a number there. notes: what was left out or changed, one clause each.
    low_confidence_reasons: what makes a forecast uncertain. trainer: state of transformers' Trainer, if that was read.
    form: format of the file. names: its column by quantity. unread: its other columns. final_step, tokens_per_step,
    n_parameters: facts of the training that the file states.
    """

    columns: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()
    trainer: trainer_states.TrainerState | None = None
    form: str = "columns"
    names: Mapping[str, str] = {}
    unread: tuple[str, ...] = ()
    final_step: int | None = None
    tokens_per_step: int | None = None
    n_parameters: int | None = None

    def log(self) -> dict[str, np.ndarray]:
        """Return the columns of the training log (rows,): the rows with a loss, a gradient norm or a learning rate."""
        logged = ~np.all([np.isnan(self.columns[name]) for name in LOG], axis=0)
        return {name: self.columns[name][logged] for name in ("step", *LOG)}

    def metric_series(self, checkpoints: Sequence[int] = ()) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return steps and values of each metric by name, and of the training loss at their steps and at the checkpoints.

        A checkpoint between two logged steps gets the next logged loss: the Trainer logs the mean since its last entry,
        which includes the step of the checkpoint. Without checkpoints and validation losses, the training loss is returned
        at `MOST_CHECKPOINTS` evenly spaced rows, including the first and the last.
        """
        steps, losses = self.columns["step"], self.columns["loss"]
        measured = {
            name: np.flatnonzero(np.isfinite(self.columns[name])) for name in self.columns.keys() - {"step", *LOG}
        }
        logged = np.flatnonzero(np.isfinite(losses))
        chosen = np.unique(np.concatenate([np.empty(0, int), *measured.values()]))
        if not len(checkpoints) and not len(measured.get(VALIDATION_LOSS, ())):
            spread = np.linspace(0, max(len(logged) - 1, 0), min(MOST_CHECKPOINTS, len(logged)))
            chosen = logged[spread.round().astype(int)]
        chosen = np.intersect1d(chosen, logged)
        between = np.setdiff1d([step for step in checkpoints if step > 0], steps[chosen])
        following = np.searchsorted(steps[logged], between)
        between, following = between[following < len(logged)], following[following < len(logged)]
        at = np.concatenate([steps[chosen], between])
        order = np.argsort(at)
        training_losses = np.concatenate([losses[chosen], losses[logged[following]]])
        series = {TRAINING_LOSS: (at[order], training_losses[order])}
        series |= {name: (steps[rows], self.columns[name][rows]) for name, rows in measured.items()}
        return {name: pair for name, pair in sorted(series.items()) if len(pair[0])}


def read(
    path: str | Path, *, loss_column: str | None = None, step_column: str | None = None, run: int | None = None
) -> LossCurve:
    """Read the loss curve of a table, JSON, a text log, the folder or state of a Trainer, or TensorBoard files.

    A table is CSV (with commas, semicolons, tabs, spaces or bars) or Parquet; JSON is one object per line, or a list of
    objects; text logs are those of `text_forms.GRAMMARS`, and others with a step and a loss on each line. A step and a loss
    of training or validation, in nats per token, are required; learning rate and gradient norm are optional. Names are
    those of W&B, TensorBoard, Lightning, Megatron and transformers, in any case. Rows of one step are merged, since
    Lightning writes one for training and one for validation. Files may be compressed with gzip; without a known suffix
    their first bytes decide.

    loss_column, step_column: names of the columns, if not usual ones. run: number of the run to read, if the file holds
    several. Raise UserError, one line that names file and fault.
    """
    path, chosen = Path(path), _chosen(loss_column, step_column)
    if state := trainer_states.latest_state(path):
        curve = _of_rows(_rows_of_state(state), state.path, {}, run)
        return curve._replace(notes=(*state.notes, *curve.notes), trainer=state)
    if path.is_dir() or ".tfevents." in path.name:
        return _of_rows(event_files.read(path, is_named="loss" in chosen), path, chosen, run)
    return _of_rows(log_files.read(path, list(chosen.values())), path, chosen, run)


def of_columns(
    columns: Mapping[str, Any],
    where: str | Path = "the loss curve",
    *,
    loss_column: str | None = None,
    step_column: str | None = None,
    run: int | None = None,
) -> LossCurve:
    """Return the loss curve of columns under their names in a tracker; where: for messages, the others as for `read`."""
    columns = {name: values for name in columns if hasattr(values := _as_column(columns[name]), "__len__")}
    return _of_rows(LogRows(columns, ""), where, _chosen(loss_column, step_column), run)


def _chosen(loss_column: str | None, step_column: str | None) -> dict[str, str]:
    return {key: name for key, name in {"step": step_column, "loss": loss_column}.items() if name is not None}


def _rows_of_state(state: trainer_states.TrainerState) -> LogRows:
    """Return the log of transformers' Trainer, whose losses are means since the entry before, and its other metrics."""
    history = state.content["log_history"]
    steps = [number_of(entry.get("step")) if isinstance(entry, dict) else None for entry in history]
    entries = [history[row] for row in np.flatnonzero(~np.isnan(np.array(steps, dtype=np.float64)))]
    rate = "learning_rate" if any("learning_rate" in entry for entry in entries) else "lr"
    evaluations = [*map(trainer_states.evaluated, entries)]
    rows = [
        {rate if name == "lr" else name: entry[name] for name in _TRAINER_KEYS if name in entry} | metrics
        for entry, metrics in zip(entries, evaluations, strict=True)
    ]
    metrics = tuple(dict.fromkeys(name for row in evaluations for name in row if name != "validation_loss"))
    left_out = len(history) - len(entries)
    notes = (f"{left_out} of {len(history):,} entries have no step: they were left out",) if left_out else ()
    log = rows_of(rows, "state of a Trainer", notes, (*_TRAINER_KEYS, *metrics))
    return log._replace(metrics=metrics, needs_losses=False)


def _of_rows(rows: LogRows, where: str | Path, chosen: Mapping[str, str], run: int | None) -> LossCurve:
    """Return the loss curve of one run of a log."""
    labels.refuse_table_of_runs(rows.columns, where)
    columns, pivoted = labels.pivoted(rows.columns)
    names, remarks, doubts = matched(
        {name: columns[name] for name in columns if name not in rows.metrics}, where, chosen
    )
    if rows.needs_losses:
        refuse_bits(names, columns, where)
        refuse_missing(names, columns, where, f" ({rows.form})" if rows.form else "")
    n_rows = len(next(iter(columns.values()), ()))
    series = {name: _floats(columns[column], column, where, rows.lines) for name, column in names.items()}
    series |= {name: np.asarray(columns[name], dtype=np.float64) for name in rows.metrics}
    _refuse_lengths(series, names, where)
    series.setdefault("step", np.empty(0))
    others = {
        name: values
        for name, values in columns.items()
        if name not in (*names.values(), *rows.metrics) and getattr(values, "ndim", 1) == 1 and len(values) == n_rows
    }
    series, others, lines, unmeasured = _measured(series, others, names, where, rows.lines)
    series, in_bits = _broken_off(series, others), tuple[str, ...]()
    if "loss" not in chosen:
        series, in_bits = _in_nats(series, others, rows, names, where)
    logged = {name: numbers_or_nan(others[name]) for name in others if plain_name(name) in (*OF_THE_BATCH, PARAMETERS)}
    totals = next((numbers_or_nan(others[name]) for name in others if plain_name(name) in LAST_STEP), None)
    steps = series["step"]
    series, labelled = labels.of_one_training(series, others, where)
    if len(series["step"]) == len(steps):
        _refuse_epochs(series, others, where)
        marks = segments.Marks(rows.headers, totals)
        main, validation = main_loss(series), column_or_nan(series, "validation_loss")
        log = segments.Log(series["step"], main, validation, marks, where, lines)
        kept, notes, restarts = segments.one_run(log, run)
        series, logged = ({name: one[kept] for name, one in values.items()} for values in (series, logged))
        steps, totals = series["step"], None if totals is None else totals[kept]
    else:
        notes, restarts = (), ()
    curve = _joined(series, restarts, where)
    of_batch = {name: values for name, values in logged.items() if plain_name(name) in OF_THE_BATCH}
    read = (*LAST_STEP, *OF_THE_BATCH, PARAMETERS)
    return curve._replace(
        notes=(*rows.notes, *pivoted, *remarks, *unmeasured, *in_bits, *labelled, *notes, *curve.notes),
        low_confidence_reasons=(
            *rows.low_confidence_reasons,
            *doubts,
            *curve.low_confidence_reasons,
            *batches.changed_batch(steps, of_batch),
        ),
        form=rows.form or "columns",
        names=names,
        unread=tuple(name for name in others if plain_name(name) not in read),
        final_step=_last_number(totals),
        tokens_per_step=batches.tokens_per_step(steps, of_batch),
        n_parameters=_last_number(next((logged[name] for name in logged if plain_name(name) == PARAMETERS), None)),
    )


def _refuse_lengths(series: Mapping[str, np.ndarray], names: Mapping[str, str], where: str | Path) -> None:
    """Raise UserError for columns of different lengths, no rows, and losses without a number."""
    if not names:
        return
    if len({len(values) for values in series.values()}) > 1:
        lengths = ", ".join(f"{names[name]} {len(series[name])}" for name in names)
        raise UserError(f"{where}: the columns are not of one length: {lengths}")
    if not len(series["step"]):
        raise UserError(f"{where}: no rows; a loss table has one row per logged step")
    losses = {names[name]: series[name] for name in ("loss", "validation_loss") if name in series}
    if losses and not any(np.isfinite(values).any() for values in losses.values()):
        raise UserError(f"{where}: {' and '.join(losses)} holds no number")


def _measured(
    series: dict[str, np.ndarray],
    others: dict[str, Any],
    names: Mapping[str, str],
    where: str | Path,
    lines: np.ndarray | None,
) -> tuple[dict[str, np.ndarray], dict[str, Any], np.ndarray | None, tuple[str, ...]]:
    """Return the rows with a step, and what was measured of them: 0, -1 and NaN between evaluations are no measurement."""
    notes = []
    missing = np.isnan(series["step"])
    if missing.any():
        losses = [series[name] for name in ("loss", "validation_loss") if name in series]
        has_loss = ~np.all(np.isnan(losses), axis=0)
        if lost := int(np.sum(missing & has_loss)):
            if lost > MOST_LOST * has_loss.sum():
                raise UserError(f"{where}: {names['step']} is missing in {counted(lost, 'row')}")
            notes.append(f"left out: {counted(lost, 'row')} with a loss and no step")
        series = {name: values[~missing] for name, values in series.items()}
        others = {name: np.asarray(values)[~missing] for name, values in others.items()}
        lines = None if lines is None else lines[~missing]
    if "validation_loss" in series:
        values = series["validation_loss"].copy()
        is_zero, name = (values == 0) | (values == -1), names["validation_loss"]
        if is_zero.any():
            notes.append(f"{name} is 0 or -1 in {counted(int(is_zero.sum()), 'row')}, where nothing was measured")
            values[is_zero] = np.nan
        if between := _between_evaluations(values):
            notes.append(
                f"{name} is NaN in {counted(len(between), 'row')} between evaluations, where nothing was measured"
            )
            values[between] = np.nan
        repeated = _carried_forward(values, ~np.isnan(column_or_nan(series, "loss")))
        if len(repeated):
            notes.append(f"{name} repeats the value of the row before in {len(repeated):,} rows: they were left out")
            values[repeated] = np.nan
        series = series | {"validation_loss": values}
    return series, others, lines, tuple(notes)


def _between_evaluations(values: np.ndarray) -> list[int]:
    """Return the rows whose NaN, held as infinite, stands between evaluations, or after them for no longer."""
    rows, numbers = np.flatnonzero(~np.isnan(values)), np.isfinite(values[~np.isnan(values)])
    places = np.flatnonzero(numbers)
    if not len(places) or numbers.all():
        return []
    longest = int(np.diff(places).max(initial=1)) - 1
    is_after = np.arange(len(rows)) > places[-1]
    return rows[~numbers & (~is_after | (is_after.sum() <= longest))].tolist()


def _carried_forward(values: np.ndarray, is_training: np.ndarray) -> np.ndarray:
    """Return the rows with a training loss that repeat the last evaluation, if that is how the log is written."""
    known = np.flatnonzero(~np.isnan(values))
    is_new = np.append(True, (values[known][1:] != values[known][:-1]) | ~is_training[known][1:])[: len(known)]
    starts = np.flatnonzero(is_new)
    if 2 * len(starts) > len(known) + 1 or not np.isfinite(values[known]).all():
        return np.empty(0, int)
    lengths = np.diff(starts)
    if len(lengths) > 1 and lengths[0] > lengths[1:].max():  # also written before it was measured
        is_new[0], is_new[lengths[0] - lengths[1:].max()] = False, True
    return known[~is_new]


def _refuse_epochs(series: Mapping[str, np.ndarray], others: Mapping[str, Any], where: str | Path) -> None:
    """Raise UserError if the steps go back wherever an epoch begins."""
    epochs = next((numbers_or_nan(others[name]) for name in others if name.strip().lower() == "epoch"), None)
    if epochs is None:
        return
    logged = np.flatnonzero(~np.isnan(main_loss(series)))
    back = np.diff(series["step"][logged]) < 0
    if back.any() and np.all(np.diff(epochs[logged])[back] > 0):
        raise UserError(
            f"{where}: the steps start again in each epoch; name a column that counts them over all epochs "
            "(--step-column), or make one: (epoch - 1) x batches + batch"
        )


def _last_number(column: np.ndarray | None) -> int | None:
    """Return the last number of a column, if above 0."""
    numbers = np.empty(0) if column is None else column[np.isfinite(column)]
    return int(numbers[-1]) if len(numbers) and numbers[-1] > 0 else None


def _as_column(values: Any) -> Any:
    """Return a list or tensors of PyTorch as an array, other objects unchanged."""
    if hasattr(values, "detach"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return values
    column = np.empty(len(values), dtype=object)
    column[:] = [value.tolist() if hasattr(value, "detach") else value for value in values]
    return column


def _broken_off(series: dict[str, np.ndarray], others: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the series with empty training losses at the end as infinite: pandas writes NaN as an empty cell.

    Rows of other kinds (evaluations, summaries) are recognised by values in columns that rows of a loss leave empty.
    """
    logged = np.flatnonzero(~np.isnan(series.get("loss", series["step"])))
    after = np.arange(logged[-1] + 1 if len(logged) else 0, len(series["step"]))
    if "loss" not in series or len(logged) < 2 or not len(after):
        return series
    is_empty = np.all([np.isnan(values[after]) for name, values in series.items() if name != "step"], axis=0)
    for known in map(known_cells, others.values()):
        if is_empty.any() and known[logged].mean() < 0.5:
            is_empty &= ~known[after]
    if is_empty.sum() < np.diff(logged).max():
        return series
    losses = series["loss"].copy()
    losses[after[is_empty]] = np.inf
    return series | {"loss": losses}


def _in_nats(
    series: dict[str, np.ndarray], others: Mapping[str, Any], rows: LogRows, names: Mapping[str, str], where: str | Path
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the series in nats, and a note; raise UserError if a perplexity is 2^loss, but for a program in bits."""
    for column in others:
        if not PERPLEXITY.search(column.lower()):
            continue
        perplexity = numbers_or_nan(others[column])
        is_of_validation = bool(set(re.split(r"[\W_]+", column.lower())) & VALIDATION)
        for name in ("validation_loss",) if is_of_validation else ("loss", "validation_loss"):
            losses = column_or_nan(series, name)
            usable = np.isfinite(losses) & np.isfinite(perplexity) & (perplexity > 1) & (losses > 0)
            ratio = np.log(perplexity[usable]) / losses[usable]
            if usable.sum() < 2 or abs(float(np.median(ratio)) - np.log(2)) > 0.02:
                continue
            if rows.program not in GRAMMARS or not GRAMMARS[rows.program].in_bits:
                raise UserError(
                    f"{where}: {column} is 2^{names[name]}: if the losses are in bits, multiply them by 0.6931; if they "
                    f"are in nats, say so with --loss-column {names[name]} (loss_column)"
                )
            changed = {key: series[key] * np.log(2) for key in ("loss", "validation_loss") if key in series}
            return series | changed, (f"losses of {rows.program} are in bits: they were multiplied by ln 2",)
    return series, ()


def _floats(values: Any, name: str, where: str | Path, lines: np.ndarray | None = None) -> np.ndarray:
    """Return a column as numbers; raise UserError that names the first cell that is none."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        row = next((row for row, value in enumerate(values) if value is not None and number_of(value) is None), 0)
        reason = f"{location(row, lines)} has {str(values[row])[:40]!r}" if len(values) else str(error).splitlines()[0]
        raise UserError(
            f"{where}: column {name} contains values that are not numbers ({reason}); mend or delete it"
        ) from error
    if numbers.ndim != 1:
        raise UserError(f"{where}: column {name} is not a list of numbers")
    return numbers


def _joined(columns: Mapping[str, np.ndarray], restarts: Sequence[float], path: str | Path) -> LossCurve:
    """Return a curve of unique, ascending steps; rows of one step are merged, and the last of two values counts."""
    steps, notes = columns["step"], list[str]()
    wrong = (steps % 1 != 0) | (steps < 0) | (steps > MOST_STEPS)
    if wrong.any():
        tokens = "; are these tokens? Divide them by the tokens per step (--tokens-per-step)"
        raise UserError(
            f"{path}: step holds {steps[wrong][0]:g}, but must be a whole number: 0, 1, 2, ... up to {MOST_STEPS:,}"
            + (tokens if steps[wrong][0] > MOST_STEPS else "")
        )
    names = ("step", *LOG, *(name for name in columns if name not in ("step", *LOG)))
    joined = {name: column_or_nan(columns, name) for name in names}
    repeated = np.zeros(len(steps), dtype=bool)
    if not np.all(np.diff(steps) > 0):
        joined, repeated = _merged(joined)
    unique = joined["step"]
    for name in {"loss", "validation_loss"} & joined.keys():
        if (low := np.nanmin(joined[name], initial=np.inf)) <= 0:
            raise UserError(
                f"{path}: the {name.replace('_', ' ')} is {low:g} in a row, but a loss in nats per token is above 0"
            )
    if repeated.any():
        notes.append(logged_again(int(repeated.sum())))
    validation = joined.get("validation_loss", np.empty(0))
    numbers, broken = np.flatnonzero(np.isfinite(validation)), np.flatnonzero(np.isinf(validation))
    if len(later := broken[broken > numbers.max(initial=-1)]):
        newest = f"; the last number is at step {unique[numbers[-1]]:,.0f}" if len(numbers) else ""
        notes.append(f"the validation loss is not a number since step {unique[later[0]]:,.0f}{newest}")
    return LossCurve(joined, tuple(notes), _low_confidence_reasons(joined, (*restarts, *unique[repeated])))


def _merged(columns: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the columns with one row a step, the last value of each, and where it is one of several."""
    order = np.argsort(columns["step"], kind="stable")
    steps = columns["step"][order]
    is_new = np.append(True, np.diff(steps) > 0)[: len(steps)]
    index = np.cumsum(is_new) - 1
    merged, repeated = {"step": steps[is_new]}, np.zeros(int(is_new.sum()), dtype=bool)
    for name in columns.keys() - {"step"}:
        values = columns[name][order]
        is_known = ~np.isnan(values)
        last = np.full(len(repeated), np.nan)
        last[index[is_known]] = values[is_known]
        repeated[index[is_known & (values != last[index])]] = True
        merged[name] = last
    return {name: merged[name] for name in columns}, repeated


def _low_confidence_reasons(columns: Mapping[str, np.ndarray], restarts: Sequence[float]) -> tuple[str, ...]:
    """Return that the loss dropped abruptly at the first step of a restart, if it did."""
    loss = main_loss(columns)
    finite = np.isfinite(loss)
    # A restart is the first of consecutive steps that were logged again.
    index = np.searchsorted(columns["step"], sorted(set(restarts)))
    for row in index[np.diff(index, prepend=-2) > 1][-20:]:
        step = columns["step"][row]
        if has_dropped(columns["step"][finite], loss[finite], step):
            return (
                f"the loss dropped abruptly at step {step:,.0f}, where the log was resumed: if the batch or the data "
                "changed there, the curve before it says little",
            )
    return ()
