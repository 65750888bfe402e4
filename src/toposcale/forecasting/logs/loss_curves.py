"""Loss curves as trackers export them: tables, the state of transformers' Trainer, TensorBoard event files.

Every reader returns a `LossCurve`: the training log and the metrics of one training. Unknown values are NaN or missing.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs import log_files, log_rows, trainer_states
from toposcale.forecasting.logs.columns import (
    LAST_STEP,
    NAMES,
    OF_THE_BATCH,
    PARAMETERS,
    matched,
    plain_name,
    refuse_bits,
    refuse_missing,
)
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS
from toposcale.forecasting.runs.schedules import MOST_STEPS
from toposcale.forecasting.runs.series import logged_again
from toposcale.io.errors import UserError, listed
from toposcale.io.files import regular_file

MOST_CHECKPOINTS = 200  # rows that stand for the checkpoints of a log without a validation loss
LOG = ("loss", "gradient_norm", "learning_rate")
_TRAINER_KEYS = {"loss": "loss", "grad_norm": "gradient_norm", "learning_rate": "learning_rate", "lr": "learning_rate"}
_PERPLEXITY = re.compile(r"(?:^|[\W_])(?:ppl|perplexity)(?:$|[\W_])")


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


def read(path: str | Path, *, loss_column: str | None = None, step_column: str | None = None) -> LossCurve:
    """Read the loss curve of a table, JSON, a text log, the folder or state of a Trainer, or TensorBoard files.

    A table is CSV (with commas, semicolons, tabs, spaces or bars) or Parquet; JSON is one object per line, or a list of
    objects; text logs are those of `text_logs.PATTERNS`, and others with a step and a loss on a line. A step and a loss
    of training or validation, in nats per token, are required; learning rate and gradient norm are optional. Names are
    those of W&B, TensorBoard, Lightning, Megatron and transformers, in any case. Rows of one step are merged, since
    Lightning writes one for training and one for validation. Files may be compressed with gzip; without a known suffix
    their first bytes decide.
    loss_column, step_column: names of the columns, if not usual ones. Raise UserError, one line that names file and fault.
    """
    path = Path(path)
    if state := trainer_states.latest_state(path):
        return _of_trainer_state(state)
    if path.is_dir() or ".tfevents." in path.name:
        return _read_events(path, loss_column)
    file = log_files.read(path, [name for name in (loss_column, step_column) if name is not None])
    curve = of_columns(file.columns, path, loss_column=loss_column, step_column=step_column, how=file.form)
    return curve._replace(notes=(*file.notes, *curve.notes))


def of_columns(
    columns: Mapping[str, Any],
    where: str | Path = "the loss curve",
    *,
    loss_column: str | None = None,
    step_column: str | None = None,
    how: str = "",
) -> LossCurve:
    """Return the loss curve of columns under their names in a tracker; where, how: for messages."""
    columns = {name: values for name in columns if hasattr(values := _as_column(columns[name]), "__len__")}
    log_rows.refuse_table_of_runs(columns, where)
    columns, pivoted = log_rows.pivoted(columns)
    chosen = {key: name for key, name in {"step": step_column, "loss": loss_column}.items() if name is not None}
    column_of = matched(_with_numbers(columns), where, chosen)
    refuse_bits(column_of, columns, where)
    refuse_missing(column_of, columns, where, f" ({how})" if how else "")
    series = {name: _floats(columns[column], column, where) for name, column in column_of.items()}
    if len({len(values) for values in series.values()}) > 1:
        lengths = ", ".join(f"{column_of[name]} {len(values)}" for name, values in series.items())
        raise UserError(f"{where}: the columns are not of one length: {lengths}")
    if not len(series["step"]):
        raise UserError(f"{where}: no rows; a loss table has one row per logged step")
    if np.isnan(series["step"]).any():
        raise UserError(f"{where}: {column_of['step']} is missing in {np.isnan(series['step']).sum()} rows")
    losses = {column_of[name]: series[name] for name in ("loss", "validation_loss") if name in series}
    if not any(np.isfinite(values).any() for values in losses.values()):
        raise UserError(f"{where}: {' and '.join(losses)} holds no number")
    n_rows = len(series["step"])
    others = {
        name: values
        for name, values in columns.items()
        if name not in column_of.values() and getattr(values, "ndim", 1) == 1 and len(values) == n_rows
    }
    series, in_bits = _in_nats(_broken_off(series, others), others)
    logged = {name: _numbers_of(others[name]) for name in others if name.strip().lower() in OF_THE_BATCH}
    batch = log_rows.changed_batch(series["step"], logged)
    rows = log_rows.of_one_training(series, others, where)
    curve = _joined(rows, where)
    return curve._replace(
        notes=(*pivoted, *in_bits, *curve.notes),
        low_confidence_reasons=(*curve.low_confidence_reasons, *batch),
        form=how or "columns",
        names=column_of,
        unread=tuple(name for name in others if name.strip().lower() not in (*LAST_STEP, *OF_THE_BATCH, PARAMETERS)),
        final_step=_last_number(others, LAST_STEP),
        tokens_per_step=log_rows.tokens_per_step(series["step"], logged),
        n_parameters=_last_number(others, (PARAMETERS,)),
    )


def _last_number(columns: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return the last number, if above 0, in the first column of these names that has one."""
    for column in (_numbers_of(columns[name]) for name in columns if name.strip().lower() in names):
        if (numbers := column[np.isfinite(column)]).size:
            return int(numbers[-1]) if numbers[-1] > 0 else None
    return None


def _as_column(values: Any) -> Any:
    """Return a list or tensors of PyTorch as an array, other objects unchanged."""
    if hasattr(values, "detach"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return values
    column = np.empty(len(values), dtype=object)
    column[:] = [value.tolist() if hasattr(value, "detach") else value for value in values]
    return column


def _with_numbers(columns: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns, without losses of a single value (a mean of the training) beside a curve."""
    counts = {name: int(_is_known(columns[name]).sum()) for name in columns if plain_name(name) in NAMES["loss"]}
    return [name for name in columns if len(counts) < 2 or counts.get(name, 2) > 1 or max(counts.values()) < 2]


def _is_known(values: Any) -> np.ndarray:
    """Return where a column has a value, (rows,)."""
    values = np.asarray(values)
    return np.array([value is not None for value in values]) if values.dtype == object else values == values


def _broken_off(series: dict[str, np.ndarray], others: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the series with empty training losses at the end as infinite: pandas writes NaN as an empty cell.

    Rows of other kinds (evaluations, summaries) are recognised by values in columns that rows of a loss leave empty.
    """
    logged = np.flatnonzero(~np.isnan(series.get("loss", series["step"])))
    after = np.arange(logged[-1] + 1 if len(logged) else 0, len(series["step"]))
    if "loss" not in series or len(logged) < 2 or not len(after):
        return series
    is_empty = np.all([np.isnan(values[after]) for name, values in series.items() if name != "step"], axis=0)
    for known in map(_is_known, others.values()):
        if is_empty.any() and known[logged].mean() < 0.5:
            is_empty &= ~known[after]
    if is_empty.sum() < np.diff(logged).max():
        return series
    losses = series["loss"].copy()
    losses[after[is_empty]] = np.inf
    return series | {"loss": losses}


def _in_nats(series: dict[str, np.ndarray], others: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the series in nats; losses are in bits if a perplexity beside them is 2^loss."""
    for column in others:
        if not _PERPLEXITY.search(column.lower()):
            continue
        perplexity = _numbers_of(others[column])
        for name in ("loss", "validation_loss"):
            losses = log_rows.column_or_nan(series, name)
            usable = np.isfinite(losses) & np.isfinite(perplexity) & (perplexity > 1) & (losses > 0)
            if usable.sum() < 2:
                continue
            ratio = float(np.median(np.log(perplexity[usable]) / losses[usable]))
            if abs(ratio - np.log(2)) < 0.02:
                changed = {key: series[key] * np.log(2) for key in ("loss", "validation_loss") if key in series}
                return series | changed, (
                    f"losses are in bits, since {column} is 2^loss: they were multiplied by ln 2",
                )
    return series, ()


def _floats(values: Any, name: str, where: str | Path) -> np.ndarray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{where}: column {name} contains values that are not numbers ({reason})") from error
    if numbers.ndim != 1:
        raise UserError(f"{where}: column {name} is not a list of numbers")
    return numbers


def _numbers_of(values: Any) -> np.ndarray:
    """Return an optional column as numbers, all NaN if it holds something else."""
    try:
        return _floats(values, "", "")
    except UserError:
        return np.full(len(values), np.nan)


def _of_trainer_state(state: trainer_states.TrainerState) -> LossCurve:
    """Return the log of transformers' Trainer; its losses are means since the entry before."""
    history = state.content["log_history"]
    steps = [trainer_states.number_of(entry.get("step")) if isinstance(entry, dict) else np.nan for entry in history]
    entries = [entry for entry, step in zip(history, steps, strict=True) if step == step and step is not None]
    rows = [
        {"step": trainer_states.number_of(entry["step"]), **trainer_states.evaluated(entry)}
        | {name: trainer_states.number_of(entry[key]) for key, name in _TRAINER_KEYS.items() if key in entry}
        for entry in entries
    ]
    series = {"step": np.empty(0)} | log_files.columns_of(rows)
    left_out = len(history) - len(entries)
    notes = (f"{left_out} of {len(history):,} entries have no step: they were left out",) if left_out else ()
    curve = _joined(log_rows.in_order(series), state.path)
    names = {name: key for key, name in _TRAINER_KEYS.items() if any(key in entry for entry in entries)}
    return curve._replace(
        notes=(*state.notes, *notes, *curve.notes), trainer=state, form="state of a Trainer", names=names
    )


def _read_events(path: Path, loss_column: str | None) -> LossCurve:
    """Read the scalars of a TensorBoard event file, or of all in a folder."""
    points = _scalars(path)
    tags = [tag for tag in points if tag.lower() not in NAMES["step"]]
    column_of = matched(tags, path, {"loss": loss_column} if loss_column else {})
    if not column_of.keys() & {"loss", "validation_loss"}:
        scalars = ", ".join(sorted(points))
        raise UserError(
            f"{path}: no scalar for the loss; its scalars are {scalars}. Name it with --loss-column (loss_column)"
        )
    rows = [(name, event) for name, tag in column_of.items() for event in points[tag]]
    if all(np.all(np.diff([event.wall_time for event in points[tag]]) >= 0) for tag in column_of.values()):
        rows.sort(key=lambda row: row[1].wall_time)  # unless a clock was set back
    columns = {"step": np.array([event.step for _, event in rows], float)}
    for name in column_of:
        values = [event.value if name == quantity else None for quantity, event in rows]
        columns[name] = log_files.column_of(values)
    curve = _joined(log_rows.in_order(columns), path)
    unread = tuple(tag for tag in points if tag not in column_of.values())
    return curve._replace(form="TensorBoard event files", names={"step": "step"} | column_of, unread=unread)


def _scalars(path: Path) -> dict[str, list[Any]]:
    """Return the events (wall_time, step, value) by tag, of a file or of all in a folder.

    Raise UserError for no such files, no package tensorboard, or folders that contradict each other.
    """
    if not path.exists() or (path.is_dir() and not list(path.rglob("*.tfevents.*"))):
        raise UserError(f"{path}: {_why_no_losses(path)}")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise UserError(f"{path}: event files need tensorboard: {sys.executable} -m pip install tensorboard") from error
    files = [regular_file(file) for file in (path.rglob("*.tfevents.*") if path.is_dir() else [path])]
    folders = sorted({file.parent for file in files}) if path.is_dir() else [path]
    points: dict[str, list[Any]] = {}
    by_step: dict[str, dict[int, float]] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            points.setdefault(tag, []).extend(events.Scalars(tag))
            known, new = by_step.setdefault(tag, {}), {event.step: event.value for event in events.Scalars(tag)}
            if differs := sorted(step for step in known.keys() & new.keys() if known[step] != new[step]):
                raise UserError(
                    f"{path}: {tag} has two values at step {differs[0]}, in {folder} and in a folder before it; give the "
                    "folder of one training"
                )
            known.update(new)
    return points


def _why_no_losses(path: Path) -> str:
    """Return why a path has no losses: it is missing, a folder of trainings, or a folder of other files."""
    states = [state.parent.relative_to(path) for state in path.rglob(trainer_states.FILE_NAME)] if path.is_dir() else []
    if trainings := sorted({str(at.parent if at.name.startswith("checkpoint-") else at) for at in states}):
        return f"no training of its own; give one of {listed(trainings, 8)}"
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) if path.is_dir() else []
    has = f"; of its files give the one with the losses: {listed(files, 8)}" if files else ""
    return f"no TensorBoard event files (named events.out.tfevents...) and no {trainer_states.FILE_NAME} there{has}"


def _joined(rows: log_rows.Rows, path: str | Path) -> LossCurve:
    """Return a curve of unique, ascending steps; rows of one step are merged, and the last of two values counts."""
    columns, notes = rows.columns, list(rows.notes)
    steps = columns["step"]
    wrong = (steps % 1 != 0) | (steps < 0) | (steps > MOST_STEPS)
    if wrong.any():
        tokens = "; are these tokens? Divide them by the tokens per step (--tokens-per-step)"
        raise UserError(
            f"{path}: step holds {steps[wrong][0]:g}, but must be a whole number: 0, 1, 2, ... up to {MOST_STEPS:,}"
            + (tokens if steps[wrong][0] > MOST_STEPS else "")
        )
    order = np.argsort(steps, kind="stable")
    is_new = np.append(True, np.diff(steps[order]) > 0)[: len(steps)]
    unique, index = steps[order][is_new], np.cumsum(is_new) - 1
    joined, repeated = {"step": unique}, np.zeros(len(unique), bool)
    for name in (*LOG, *(name for name in columns if name not in ("step", *LOG))):
        values = log_rows.column_or_nan(columns, name)[order]
        is_known = ~np.isnan(values)
        last = np.full(len(unique), np.nan)
        last[index[is_known]] = values[is_known]
        repeated[index[is_known & (values != last[index])]] = True
        joined[name] = last
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
    return LossCurve(joined, tuple(notes), _low_confidence_reasons(joined, (*rows.restarts, *unique[repeated])))


def _low_confidence_reasons(columns: Mapping[str, np.ndarray], restarts: Sequence[float]) -> tuple[str, ...]:
    """Return that the loss dropped abruptly at the first step of a restart, if it did."""
    loss = log_rows.main_loss(columns)
    finite = np.isfinite(loss)
    # A restart is the first of consecutive steps that were logged again.
    index = np.searchsorted(columns["step"], sorted(set(restarts)))
    for row in index[np.diff(index, prepend=-2) > 1][-20:]:
        step = columns["step"][row]
        if log_rows.has_dropped(columns["step"][finite], loss[finite], step):
            return (
                f"the loss dropped abruptly at step {step:,.0f}, where the log was resumed: if the batch or the data "
                "changed there, the curve before it says little",
            )
    return ()
