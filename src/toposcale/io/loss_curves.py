"""Loss curves as trackers export them: tables, the state of transformers' Trainer, TensorBoard event files.

Every reader gives a `LossCurve`, with the training log and the metrics of one training. What a file does not tell is NaN or
left out, never made up.
"""

import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_text, regular_file
from toposcale.io.log_columns import NAMES, matched, refuse_missing
from toposcale.io.step_names import MOST_STEPS

MOST_CHECKPOINTS = 200  # rows of a log without a validation loss that stand for its checkpoints: enough for a curve
TRAINER_STATE = "trainer_state.json"  # in which transformers' Trainer keeps its log beside every checkpoint
_LOG = ("loss", "gradient_norm", "learning_rate")
_LOGGED_BY_THE_TRAINER = ("loss", "grad_norm", "learning_rate")
# What the Trainer measures of itself, not of the model.
_OF_THE_TRAINER = ("_runtime", "_per_second", "_time", "_flos")


class TrainerState(NamedTuple):
    """The content of a trainer_state.json, and where it lies."""

    path: Path
    content: Mapping[str, Any]


class LossCurve(NamedTuple):
    """Training log and metrics of one training.

    columns: float64 arrays of one length, `step` (ascending, once each), `loss`, `gradient_norm`, `learning_rate` and the
    metrics, NaN where a step has none, infinite where it has one that is no number. repeated: steps that have several
    values of one column, as a training that was resumed leaves them; the last value counts. trainer: the state of
    transformers' Trainer that they were read from.
    """

    columns: Mapping[str, np.ndarray]
    repeated: int = 0
    trainer: TrainerState | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the columns that are metrics."""
        return tuple(name for name in self.columns if name not in ("step", *_LOG))

    def log(self) -> pa.Table:
        """The training log: the rows that have a loss, a gradient norm or a learning rate."""
        logged = ~np.all([np.isnan(self.columns[name]) for name in _LOG], axis=0)
        columns = {name: self.columns[name][logged] for name in ("step", *_LOG)}
        columns["step"] = columns["step"].astype(np.int64)
        table = schemas.TABLES["training"]
        return tables.sort(table, pa.table(columns, schema=table.schema))

    def log_columns(self) -> dict[str, np.ndarray]:
        """The columns of the training log by name."""
        log = self.log()
        return {name: log[name].to_numpy() for name in log.column_names}

    def metric_columns(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Steps and values of every metric by name."""
        rows = self.metric_rows("")
        names, steps, values = (rows[name].to_numpy() for name in ("metric", "step", "value"))
        return {str(name): (steps[names == name], values[names == name]) for name in np.unique(names)}

    def metric_rows(self, model: str, checkpoints: Sequence[int] = ()) -> pa.Table:
        """The metrics, and the training loss at their steps and at the checkpoints.

        A checkpoint between two logged steps has the next logged loss: the Trainer logs the mean of the steps since the log
        before, and the checkpoint's step is one of them. Without checkpoints and without a validation loss the training
        loss stands at `MOST_CHECKPOINTS` evenly spread rows, the first and the last among them.
        """
        steps, losses = self.columns["step"], self.columns["loss"]
        measured = {name: np.flatnonzero(np.isfinite(self.columns[name])) for name in self.metrics}
        lost = np.flatnonzero(np.isfinite(losses))
        at = np.unique(np.concatenate([np.empty(0, int), *measured.values()]))
        if not len(checkpoints) and not len(measured.get("validation_loss", ())):
            spread = np.linspace(0, max(len(lost) - 1, 0), min(MOST_CHECKPOINTS, len(lost)))
            at = lost[spread.round().astype(int)]
        rows = [(steps[row], "training_loss", losses[row]) for row in np.intersect1d(at, lost)]
        for step in sorted(set(checkpoints) - {step for step, _, _ in rows}):
            following = np.searchsorted(steps[lost], step)
            if step > 0 and following < len(lost):
                rows.append((step, "training_loss", losses[lost[following]]))
        rows += [(steps[row], name, self.columns[name][row]) for name, places in measured.items() for row in places]
        return tables.from_rows(
            schemas.TABLES["metrics"],
            ({"model": model, "step": int(step), "metric": name, "value": float(value)} for step, name, value in rows),
        )


def read(path: str | Path, *, loss_column: str | None = None, step_column: str | None = None) -> LossCurve:
    """The loss curve behind a path: a table, JSON lines, the folder or state of a Trainer, or TensorBoard files.

    A table is CSV (separated by comma, semicolon or tab) or Parquet; JSON is an object a line, or a list of objects. Needed
    are a step and a loss, of training or validation, in nats per token; the learning rate and the gradient norm are read
    where they are. Names are those of W&B, TensorBoard, Lightning, Megatron and transformers, in any case. Rows of one step
    are joined, as Lightning writes a row for the training and one for the validation. A file may be compressed with gzip,
    and one without a telling ending is known by its first bytes. loss_column, step_column: the columns of the loss and of
    the step, where no usual name tells them. UserError: one line that names the file and what is wrong with it.
    """
    path = Path(path)
    if state := trainer_state_of(path):
        return _of_trainer_state(state)
    if path.is_dir() or ".tfevents." in path.name:
        return _read_events(path, loss_column)
    kind, separator = _kind(path), ""
    if kind == "table":
        columns, separator = tables.read_any(path)
    else:
        steps = {step_column.lower()} if step_column else set(NAMES["step"])
        rows = [_numbers(row) for row in _json_objects(path, kind) if steps & {name.lower() for name in row}]
        columns = _columns(rows)
    how = f" (separated by {separator})" if separator else ""
    return of_columns(columns, path, loss_column=loss_column, step_column=step_column, how=how)


def _kind(path: Path) -> str:
    """ "lines" or "list" of JSON, or "table": by the ending, or else by the first character."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    by_ending = {".jsonl": "lines", ".ndjson": "lines", ".json": "list", ".csv": "table", ".tsv": "table"}
    if suffix in by_ending or suffix == ".parquet" or not path.is_file():
        return by_ending.get(suffix, "table")
    first = tables.read_plain_or_gzip(path).lstrip()[:1]
    return {b"{": "lines", b"[": "list"}.get(first, "table")


def trainer_state_of(path: Path) -> TrainerState | None:
    """Read the latest state of transformers' Trainer that is, or lies in, a path; None where there is none."""
    if path.name == TRAINER_STATE:
        return TrainerState(path, trainer_state(path))
    files = [*path.glob(TRAINER_STATE), *path.glob(f"checkpoint-*/{TRAINER_STATE}")] if path.is_dir() else []
    states = [TrainerState(file, trainer_state(file)) for file in files]
    return max(states, key=lambda state: state.content["global_step"], default=None)


def of_columns(
    columns: Mapping[str, Any] | pa.Table,
    where: str | Path = "the loss curve",
    *,
    loss_column: str | None = None,
    step_column: str | None = None,
    how: str = "",
) -> LossCurve:
    """The loss curve of columns by their names in a tracker, such as a data frame; where, how: for messages about them."""
    names = columns.schema.names if isinstance(columns, pa.Table) else list(columns)
    chosen = {what: name for what, name in {"step": step_column, "loss": loss_column}.items() if name is not None}
    column_of = matched(names, where, chosen)
    refuse_missing(column_of, names, where, how)
    series = {name: _floats(columns[column], column, where) for name, column in column_of.items()}
    if len({len(values) for values in series.values()}) > 1:
        lengths = ", ".join(f"{column_of[name]} {len(values)}" for name, values in series.items())
        raise UserError(f"{where}: the columns are not of one length: {lengths}")
    if not len(series["step"]):
        raise UserError(f"{where}: no rows; a loss table has one row for each logged step")
    if np.isnan(series["step"]).any():
        raise UserError(f"{where}: {column_of['step']} is missing in {np.isnan(series['step']).sum()} rows")
    losses = {column_of[name]: series[name] for name in ("loss", "validation_loss") if name in series}
    if not any(np.isfinite(values).any() for values in losses.values()):
        raise UserError(f"{where}: {' and '.join(losses)} holds no number")
    return _joined(series, where)


def _json_objects(path: Path, kind: str) -> list[dict[str, Any]]:
    """JSON objects: "lines" of one each, as W&B and many training loops write them, or a "list", as data frames do."""
    text = _text(path)
    if kind == "list":
        try:
            objects = parse_json(text)
        except ValueError as error:
            raise UserError(f"{path}: not JSON ({error})") from error
        if not isinstance(objects, list) or not all(isinstance(entry, dict) for entry in objects):
            raise UserError(
                f"{path}: neither a list of objects with a step and a loss nor the state of a Trainer ({TRAINER_STATE})"
            )
        return objects
    objects = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            objects.append(parse_json(line) if line.strip() else {})
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not JSON, one object a line ({error})") from error
        if not isinstance(objects[-1], dict):
            raise UserError(f"{path}: line {number} is not JSON, one object a line (it holds something else)")
    return objects


def _text(path: Path) -> str:
    try:
        return tables.read_plain_or_gzip(path).decode("utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not readable ({error})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text in UTF-8") from error


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Rows as columns, NaN where a row has no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row, also those that are written as texts; a NaN as infinity, for NaN is what was not logged."""
    numbers = {}
    for name, value in row.items():
        with suppress(TypeError, ValueError, OverflowError):
            numbers[name] = np.inf if math.isnan(float(value)) else float(value)
    return numbers


def _floats(values: Any, name: str, where: str | Path) -> np.ndarray:
    try:
        if isinstance(values, pa.ChunkedArray):
            numbers = pc.cast(values, pa.float64())
            return pc.if_else(pc.is_nan(numbers), np.inf, numbers).fill_null(np.nan).to_numpy()
        numbers = np.asarray(values, dtype=np.float64)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{where}: column {name} contains values that are not numbers ({reason})") from error
    if numbers.ndim != 1:
        raise UserError(f"{where}: column {name} is not a list of numbers")
    return numbers


def _of_trainer_state(state: TrainerState) -> LossCurve:
    """Return the log of transformers' Trainer: losses (means since the log before), gradient norms, rates, evaluations."""
    rows = [
        {"step": float(entry["step"]), **evaluated(entry)}
        | _numbers({name: entry.get(key) for name, key in zip(_LOG, _LOGGED_BY_THE_TRAINER, strict=True)})
        for entry in state.content["log_history"]
    ]
    return _joined({"step": np.empty(0)} | _columns(rows), state.path)._replace(trainer=state)


def trainer_state(path: str | Path) -> dict[str, Any]:
    """The content of a trainer_state.json. UserError: it is missing, cut, or of another kind."""
    try:
        state = parse_json(read_text(path))
        if not isinstance(state["log_history"], list) or not isinstance(state["global_step"], int):
            raise TypeError
        return dict(state)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not the state of a Trainer ({type(error).__name__})") from error


def evaluated(entry: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of one evaluation as the Trainer logs it: `eval_loss` is validation_loss, any other `eval_NAME` NAME."""
    named = {
        name.removeprefix("eval_"): float(value)
        for name, value in entry.items()
        if name.startswith("eval_")
        and not name.endswith(_OF_THE_TRAINER)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    }
    if "loss" in named:
        named["validation_loss"] = named.pop("loss")
    return named


def tokens_per_step(state: Mapping[str, Any], non_embedding_parameters: int) -> int | None:
    """Tokens that a step of the Trainer reads, where its state tells them; None where it does not.

    Either it counted them (`num_input_tokens_seen`; the mean over its steps, since batches may differ), or they follow from
    `total_flos`, which the Trainer adds up as 6 x tokens x parameters that are no embeddings. Of the latter a number that
    is not whole says that something else was added up: unknown.
    """
    steps = int(state.get("global_step") or 0)
    if steps < 1:
        return None
    if counted := float(state.get("num_input_tokens_seen") or 0):
        return max(round(counted / steps), 1)
    if not non_embedding_parameters:
        return None
    each = float(state.get("total_flos") or 0) / (6 * non_embedding_parameters) / steps
    return round(each) if each >= 1 and abs(each - round(each)) <= 1e-6 * each else None


def _read_events(path: Path, loss_column: str | None) -> LossCurve:
    """The scalars of TensorBoard event files: one file, or all of a folder."""
    points, repeated = _scalars(path)
    tags = [tag for tag in points if tag.lower() not in NAMES["step"]]
    column_of = matched(tags, path, {"loss": loss_column} if loss_column else {})
    if not column_of.keys() & {"loss", "validation_loss"}:
        scalars = ", ".join(sorted(points))
        raise UserError(
            f"{path}: no scalar for the loss; its scalars are {scalars}. Name it with --loss-column (loss_column)"
        )
    steps = sorted({step for column in column_of.values() for step in points[column]})
    columns = {name: [points[column].get(step, np.nan) for step in steps] for name, column in column_of.items()}
    curve = _joined({name: np.array(values, float) for name, values in {"step": steps, **columns}.items()}, path)
    return curve._replace(repeated=repeated)


def _scalars(path: Path) -> tuple[dict[str, dict[int, float]], int]:
    """The values of every tag by step, of one file or of all of a folder; and how many steps have several values.

    UserError: no such files, no package tensorboard, or folders that contradict each other.
    """
    if not path.exists() or (path.is_dir() and not list(path.rglob("*.tfevents.*"))):
        raise UserError(f"{path}: no TensorBoard event files there (named events.out.tfevents...)")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise UserError(f"{path}: event files need tensorboard: {sys.executable} -m pip install tensorboard") from error
    files = [regular_file(file) for file in (path.rglob("*.tfevents.*") if path.is_dir() else [path])]
    folders = sorted({file.parent for file in files}) if path.is_dir() else [path]
    points: dict[str, dict[int, float]] = {}
    repeated: set[int] = set()
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            by_step = points.setdefault(tag, {})
            new = {event.step: event.value for event in events.Scalars(tag)}
            repeated |= {event.step for event in events.Scalars(tag) if event.value != new[event.step]}
            if differs := sorted(step for step in by_step.keys() & new.keys() if by_step[step] != new[step]):
                raise UserError(
                    f"{path}: {tag} has two values at step {differs[0]}, in {folder} and in a folder before it; give the "
                    "folder of one training"
                )
            by_step.update(new)
    return points, len(repeated)


def _joined(columns: Mapping[str, np.ndarray], path: str | Path) -> LossCurve:
    """A curve with each step once, ascending; rows of one step are joined, and of two values the last counts."""
    steps = columns["step"]
    wrong = (steps % 1 != 0) | (steps < 0) | (steps > MOST_STEPS)
    if wrong.any():
        tokens = "; are these tokens? Divide them by those of a step (--tokens-per-step)"
        raise UserError(
            f"{path}: step holds {steps[wrong][0]:g}, but must be a whole number: 0, 1, 2, ... up to {MOST_STEPS:,}"
            + (tokens if steps[wrong][0] > MOST_STEPS else "")
        )
    order = np.argsort(steps, kind="stable")
    unique, place = np.unique(steps[order], return_inverse=True)
    joined, repeated = {"step": unique}, np.zeros(len(unique), bool)
    for name in (*_LOG, *(name for name in columns if name not in ("step", *_LOG))):
        values = columns.get(name, np.full(len(steps), np.nan))[order]
        is_known = ~np.isnan(values)
        last = np.full(len(unique), np.nan)
        last[place[is_known]] = values[is_known]
        repeated[place[is_known & (values != last[place])]] = True
        joined[name] = last
    for name in {"loss", "validation_loss"} & joined.keys():
        if (low := np.nanmin(joined[name], initial=np.inf)) <= 0:
            raise UserError(
                f"{path}: the {name.replace('_', ' ')} is {low:g} in a row, but a loss in nats per token is above 0"
            )
    return LossCurve(joined, int(repeated.sum()))
