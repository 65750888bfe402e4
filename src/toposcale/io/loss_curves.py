"""Loss curves as trackers export them: tables, the state of transformers' Trainer, TensorBoard event files.

Every reader gives the same: a training log (schema TRAINING) and metrics (schema METRICS). What a file does not tell is
NaN or left out, never made up.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.io.files import parse_json
from toposcale.io.step_names import MOST_STEPS

MOST_CHECKPOINTS = 200
"""Rows of a log without a validation loss that stand for its checkpoints: enough for a curve."""

TRAINER_STATE = "trainer_state.json"
"""The file in which transformers' Trainer keeps its log beside every checkpoint."""

# What trackers call a column, in lower case; of several names of the step the first that is there counts, since what a
# tracker counts itself (`_step`) need not be the training's own step.
_NAMES = {
    "step": ("step", "train/global_step", "trainer/global_step", "global_step", "_step", "iteration", "iter"),
    "loss": ("loss", "train/loss", "train_loss", "training_loss", "train/loss_step", "train_loss_step"),
    "gradient_norm": ("gradient_norm", "grad_norm", "train/grad_norm", "train/gradient_norm"),
    "learning_rate": ("learning_rate", "lr", "train/learning_rate", "train/lr"),
    "validation_loss": (
        *("validation_loss", "val_loss", "eval_loss", "eval/loss", "val/loss", "validation/loss"),
        *("valid_loss", "valid/loss", "test_loss", "test/loss"),
    ),
}
_NAMES_OF_STEP = set(_NAMES["step"])
_LOG = ("loss", "gradient_norm", "learning_rate")
_LOGGED_BY_THE_TRAINER = ("loss", "grad_norm", "learning_rate")
# What the Trainer measures of itself, not of the model.
_OF_THE_TRAINER = ("_runtime", "_per_second", "_time", "_flos")


@dataclass(frozen=True)
class LossCurve:
    """What a training left of its course.

    columns: float64 arrays of one length, `step` (ascending, once each), `loss`, `gradient_norm`, `learning_rate` and the
    metrics, NaN where a step has none, infinite where it has one that is no number. metrics: names of those columns that
    are metrics.
    """

    columns: Mapping[str, np.ndarray]
    metrics: tuple[str, ...]

    def log(self) -> pa.Table:
        """The training log: the rows that have a loss, a gradient norm or a learning rate."""
        logged = ~np.all([np.isnan(self.columns[name]) for name in _LOG], axis=0)
        columns = {name: self.columns[name][logged] for name in ("step", *_LOG)}
        columns["step"] = columns["step"].astype(np.int64)
        return tables.from_columns(schemas.TABLES["training"], columns)

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
        rows = [
            (step, "training_loss", losses[row]) for row in np.intersect1d(at, lost) for step in [steps[row]]
        ]
        known = {step for step, _, _ in rows}
        for step in sorted(set(checkpoints) - known):
            following = np.searchsorted(steps[lost], step)
            if step > 0 and following < len(lost):
                rows.append((step, "training_loss", losses[lost[following]]))
        rows += [
            (steps[row], name, self.columns[name][row]) for name, found in measured.items() for row in found
        ]
        return tables.from_rows(
            schemas.TABLES["metrics"],
            [
                {"model": model, "step": int(step), "metric": metric, "value": float(value)}
                for step, metric, value in rows
            ],
        )


def read(path: str | Path) -> LossCurve:
    """The loss curve behind a path: a table, JSON lines, the folder or state of a Trainer, or TensorBoard files.

    UserError: one line that names the file and what is wrong with it.
    """
    path = Path(path)
    if state := trainer_state_of(path):
        return read_trainer_state(state)
    if path.suffix in (".jsonl", ".ndjson"):
        return read_json_lines(path)
    if path.suffix == ".json":
        return read_json(path)
    if path.is_dir() or ".tfevents." in path.name:
        return read_events(path)
    return read_table(path)


def trainer_state_of(path: str | Path) -> Path | None:
    """The state of transformers' Trainer that a path is or, of its folder or one of its checkpoints, holds; None: none."""
    path = Path(path)
    if path.name == TRAINER_STATE:
        return path
    found = [*path.glob(TRAINER_STATE), *path.glob(f"checkpoint-*/{TRAINER_STATE}")] if path.is_dir() else []
    return max(found, key=lambda file: trainer_state(file)["global_step"], default=None)


def of_columns(columns: Mapping[str, Any], where: str | Path = "the loss curve") -> LossCurve:
    """The loss curve of columns by their names in a tracker, such as a data frame; where: how a message calls it."""
    found = _matched(columns, where)
    if missing := [name for name in ("step", "loss") if name not in found]:
        raise UserError(
            f"{where}: no column for {' and '.join(missing)}; its columns are {', '.join(columns)}"
        )
    own = {name: _floats(columns[column], column, where) for name, column in found.items()}
    if len({len(values) for values in own.values()}) > 1:
        lengths = ", ".join(f"{found[name]} {len(values)}" for name, values in own.items())
        raise UserError(f"{where}: the columns are not of one length: {lengths}")
    return _joined(own, where, tuple(name for name in found if name == "validation_loss"))


def read_json_lines(path: str | Path) -> LossCurve:
    """One JSON object a line with a step and a loss, as W&B and many training loops write it; lines without a step
    are no rows."""
    rows = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            rows.append(parse_json(line) if line.strip() else {})
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not JSON, one object a line ({error})") from error
        if not isinstance(rows[-1], dict):
            raise UserError(f"{path}: line {number} is not JSON, one object a line (it holds something else)")
    return _of_rows(rows, path)


def read_json(path: str | Path) -> LossCurve:
    """A list of JSON objects with a step and a loss, as W&B's interface and data frames give it."""
    try:
        rows = parse_json(_text(path))
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"{path}: neither a list of objects with a step and a loss nor the state of a Trainer ({TRAINER_STATE})"
        )
    return _of_rows(rows, path)


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: not readable ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text in UTF-8") from error


def _of_rows(objects: Iterable[Mapping[str, Any]], path: str | Path) -> LossCurve:
    rows = [
        {key: _logged(value) for key, value in one.items() if isinstance(value, int | float)}
        for one in objects
        if _NAMES_OF_STEP & {name.lower() for name in one}
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    return of_columns({name: np.array([row.get(name, np.nan) for row in rows]) for name in names}, path)


def _floats(values: Any, name: str, where: str | Path) -> np.ndarray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: column {name} contains values that are not numbers ({error})") from error
    if numbers.ndim != 1:
        raise UserError(f"{where}: column {name} is not a list of numbers")
    return numbers


def _logged(value: float) -> float:
    """A number that was logged; of what is no number infinity, since NaN stands for what was not logged."""
    return float(value) if value == value else np.inf


def read_table(path: str | Path) -> LossCurve:
    """A CSV file (separated by comma, semicolon or tab) or a Parquet file with a row a logged step.

    Needed are a step and a loss, in nats per token; the learning rate, the gradient norm and the validation loss are read
    where they are. Names are those of W&B, TensorBoard, Lightning and transformers, in any case. Rows of one step are
    joined, as Lightning writes a row for the training and one for the validation.
    """
    data, separator = tables.read_any(path)
    found = _matched(data.schema.names, path)
    missing = [name for name in ("step", "loss") if name not in found]
    if missing:
        there = ", ".join(data.schema.names)
        how = f" (separated by {separator})" if separator else ""
        raise UserError(
            f"{path}: no column for {' and '.join(missing)}; its columns are {there}{how}. "
            f"Name the column of the {missing[0]} for example {', '.join(_NAMES[missing[0]][:4])}"
        )
    columns = {name: _numbers(data[column], column, path) for name, column in found.items()}
    if not len(columns["step"]):
        raise UserError(f"{path}: no rows; a loss table has one row for each logged step")
    if np.isnan(columns["step"]).any():
        raise UserError(f"{path}: {found['step']} is missing in {np.isnan(columns['step']).sum()} rows")
    return _joined(columns, path, tuple(name for name in found if name == "validation_loss"))


def read_trainer_state(path: str | Path) -> LossCurve:
    """The log of transformers' Trainer: losses, gradient norms, learning rates, and what it evaluated.

    `eval_loss` is the metric validation_loss, any other `eval_NAME` that is a number the metric NAME. A logged loss is the
    mean over the steps since the log before.
    """
    history = trainer_state(path).get("log_history") or []
    entries: list[dict[str, float]] = []
    for entry in history:
        logged = {name: entry.get(key) for name, key in zip(_LOG, _LOGGED_BY_THE_TRAINER, strict=True)}
        known = {name: _logged(value) for name, value in logged.items() if isinstance(value, int | float)}
        entries.append({"step": float(entry["step"]), **evaluated(entry), **known})
    names = dict.fromkeys(name for row in entries for name in row)
    columns = {name: np.array([row.get(name, np.nan) for row in entries]) for name in ("step", *_LOG, *names)}
    metrics = tuple(name for name in names if name not in ("step", *_LOG))
    return _joined(columns, path, metrics, keep_last=True)


def trainer_state(path: str | Path) -> dict[str, Any]:
    """The content of a trainer_state.json. UserError: it is missing, cut, or of another kind."""
    try:
        state = parse_json(Path(path).read_text(encoding="utf-8"))
        if not isinstance(state["log_history"], list) or not isinstance(state["global_step"], int):
            raise TypeError
        return dict(state)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not the state of a Trainer ({type(error).__name__})") from error


def evaluated(entry: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of one evaluation as the Trainer logs it, by their names here."""
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


def read_events(path: str | Path) -> LossCurve:
    """The scalars of TensorBoard event files: one file, or all of a folder. Needs the package tensorboard."""
    path = Path(path)
    if not path.exists() or (path.is_dir() and not list(path.rglob("*.tfevents.*"))):
        raise UserError(f"{path}: no TensorBoard event files there (named events.out.tfevents...)")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise UserError(
            f"{path}: event files need the package tensorboard: {sys.executable} -m pip install tensorboard"
        ) from error
    folders = sorted({file.parent for file in path.rglob("*.tfevents.*")}) if path.is_dir() else [path]
    points: dict[str, dict[int, float]] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            known = points.setdefault(tag, {})
            new = {event.step: event.value for event in events.Scalars(tag)}
            if differs := sorted(step for step in known.keys() & new.keys() if known[step] != new[step]):
                raise UserError(
                    f"{path}: {tag} has two values at step {differs[0]}, in {folder} and in a folder before it; give the "
                    "folder of one training"
                )
            known.update(new)
    found = _matched([tag for tag in points if tag.lower() not in _NAMES["step"]], path)
    if "loss" not in found:
        raise UserError(f"{path}: no scalar for the loss; its scalars are {', '.join(sorted(points))}")
    steps = np.array(sorted({step for column in found.values() for step in points[column]}), dtype=np.float64)
    columns = {
        name: np.array([points[column].get(int(step), np.nan) for step in steps])
        for name, column in found.items()
    }
    metrics = tuple(name for name in found if name == "validation_loss")
    return _joined({"step": steps, **columns}, path, metrics)


def _matched(names: Iterable[str], path: str | Path) -> dict[str, str]:
    """Column by what it holds. W&B puts the run's name before a metric and adds columns for its extremes."""
    plain: dict[str, list[str]] = {}
    for name in names:
        if not name.endswith(("__MIN", "__MAX")):
            plain.setdefault(re.sub(r"^.* - ", "", name).strip().lower(), []).append(name)
    found = {}
    for what, known in _NAMES.items():
        named = [name for name in known if name in plain]
        named += [name for name in plain if what == "learning_rate" and name.startswith("lr-")]
        present = [own for name in named for own in plain[name]]
        if len(present) > 1 and what != "step":
            raise UserError(
                f"{path}: columns {' and '.join(present)} both hold the {what.replace('_', ' ')}; remove one of them"
            )
        if present:
            found[what] = present[0]
    return found


def _numbers(column: pa.ChunkedArray, name: str, path: str | Path) -> np.ndarray:
    try:
        numbers = pc.cast(column, pa.float64())
        return pc.if_else(pc.is_nan(numbers), np.inf, numbers).fill_null(np.nan).to_numpy()
    except pa.ArrowException as error:
        raise UserError(
            f"{path}: column {name} contains values that are not numbers ({str(error).splitlines()[0]})"
        ) from error


def _joined(
    columns: Mapping[str, np.ndarray], path: str | Path, metrics: tuple[str, ...], *, keep_last: bool = False
) -> LossCurve:
    """A curve with each step once, ascending; rows of one step are joined where they do not contradict each other."""
    steps = columns["step"]
    wrong = (steps % 1 != 0) | (steps < 0) | (steps > MOST_STEPS)
    if wrong.any():
        raise UserError(
            f"{path}: step holds {steps[wrong][0]:g}, but must be a whole number: 0, 1, 2, ... up to {MOST_STEPS:,}"
        )
    order = np.argsort(steps, kind="stable")
    unique, place = np.unique(steps[order], return_inverse=True)
    joined = {"step": unique}
    for name in dict.fromkeys((*_LOG, *columns)):
        if name == "step":
            continue
        values = columns.get(name, np.full(len(steps), np.nan))[order]
        known = ~np.isnan(values)
        last = np.full(len(unique), np.nan)
        last[place[known]] = values[known]
        again = known & (values != last[place])
        if again.any() and not keep_last:
            raise UserError(
                f"{path}: step {steps[order][again][0]:.0f} occurs more than once, with different values of {name}"
            )
        joined[name] = last
    if (low := np.nanmin(joined["loss"], initial=np.inf)) <= 0:
        raise UserError(f"{path}: the loss is {low:g} in a row, but a loss in nats per token is above 0")
    return LossCurve(joined, metrics)
