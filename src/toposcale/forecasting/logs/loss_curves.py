"""Loss curves as trackers export them: tables, JSON, text logs, the state of transformers' Trainer, TensorBoard files.

Every reader yields rows in the order of the file, and `one_run` makes one `LossCurve` of them: the training log and the
metrics of one training. Unknown values are NaN or missing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs import event_files, json_logs, log_files, patterns, text_logs, trainer_states
from toposcale.forecasting.logs.choices import series_of
from toposcale.forecasting.logs.groups import one_run_of, one_training, refuse_table_of_runs
from toposcale.forecasting.logs.names import (
    ACCURACY,
    CONSUMED,
    IN_SEQUENCES,
    LAST_STEP,
    OF_THE_BATCH,
    PARAMETERS,
    TRAINING,
    loss_name,
    plain_name,
)
from toposcale.forecasting.logs.rows import (
    LogError,
    NotUnderstoodError,
    Rows,
    Series,
    StepsOfEpochsError,
    known_cells,
    last_number,
)
from toposcale.forecasting.runs.curves import has_dropped
from toposcale.forecasting.runs.facts import CLASSIFICATION, UNKNOWN, Provenance, RunFacts
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS
from toposcale.forecasting.runs.schedules import MAX_STEPS
from toposcale.forecasting.runs.series import logged_again
from toposcale.io.errors import UserError, counted

MAX_CHECKPOINTS = 200  # rows that stand for the checkpoints of a log without a validation loss
LOG = ("loss", "gradient_norm", "learning_rate")

MAX_LOST_SHARE = 1 / 20
"""Largest share of the losses whose step may be missing."""

MAX_BATCH_RATIO = 1.05
"""Largest ratio of the tokens of a step late and early in a training whose batch is constant."""

LOSS_OF_1000_CLASSES = 6.908
"""Cross-entropy of a uniform guess among the classes of ImageNet, nats."""

MAX_DISTANCE_TO_UNIFORM = 0.25
"""Largest distance of the first logged loss from it."""

MIN_LOSS_OF_TEXT = 1.5
"""Loss in nats below which a log with accuracies is hardly that of a language model."""

LAST_ROWS = 5
"""Last rows whose median is the present loss."""


class LossCurve(NamedTuple):
    """Training log and metrics of one training.

    columns: float64 arrays (rows,): `step` (ascending, unique), `loss`, `gradient_norm`, `learning_rate` and the metrics,
    NaN if missing at a step and infinite if not a number there. notes: what was left out or changed, one clause each.
    low_confidence_reasons: what makes a forecast uncertain. trainer: state of transformers' Trainer, if that was read.
    form: format of the file. names: its column by quantity. unread: its other columns. facts: those of the training that
    the file states.
    """

    columns: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()
    trainer: trainer_states.TrainerState | None = None
    form: str = "columns"
    names: Mapping[str, str] = {}
    unread: tuple[str, ...] = ()
    facts: RunFacts = UNKNOWN

    def log(self) -> dict[str, np.ndarray]:
        """Return the columns of the training log (rows,): the rows with a loss, a gradient norm or a learning rate."""
        logged = ~np.all([np.isnan(self.columns[name]) for name in LOG], axis=0)
        return {name: self.columns[name][logged] for name in ("step", *LOG)}

    def metric_series(self, checkpoints: Sequence[int] = ()) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return steps and values of each metric by name, and of the training loss at their steps and at the checkpoints.

        A checkpoint between two logged steps gets the next logged loss: the Trainer logs the mean since its last entry,
        which includes the step of the checkpoint. Without checkpoints and validation losses, the training loss is returned
        at `MAX_CHECKPOINTS` evenly spaced rows, including the first and the last.
        """
        steps, losses = self.columns["step"], self.columns["loss"]
        measured = {
            name: np.flatnonzero(np.isfinite(self.columns[name])) for name in self.columns.keys() - {"step", *LOG}
        }
        logged = np.flatnonzero(np.isfinite(losses))
        chosen = np.unique(np.concatenate([np.empty(0, int), *measured.values()]))
        if not len(checkpoints) and not len(measured.get(VALIDATION_LOSS, ())):
            spread = np.linspace(0, max(len(logged) - 1, 0), min(MAX_CHECKPOINTS, len(logged)))
            chosen = logged[spread.round().astype(int)]
        at = np.union1d(steps[np.intersect1d(chosen, logged)], [step for step in checkpoints if step > 0])
        following = np.searchsorted(steps[logged], at)
        at, following = at[following < len(logged)], following[following < len(logged)]
        series = {TRAINING_LOSS: (at, losses[logged[following]])}
        series |= {name: (steps[rows], self.columns[name][rows]) for name, rows in measured.items()}
        return {name: pair for name, pair in sorted(series.items()) if len(pair[0])}


def read(
    path: str | Path,
    *,
    loss_column: str | None = None,
    step_column: str | None = None,
    run: int | None = None,
    pattern: str | None = None,
) -> LossCurve:
    """Read the loss curve of a table, JSON, a text log, the folder or state of a Trainer, or TensorBoard files.

    A table is CSV (with commas, semicolons or tabs) or Parquet; JSON is one object per line, or a list of
    objects; text logs are those of `grammars.GRAMMARS`, and others with step and loss on a line or by a pattern. A step and
    a loss of training or validation, in nats per token, are required; learning rate and gradient norm are optional. Names
    are those of W&B, TensorBoard, Lightning, Megatron and transformers, in any case. Rows of one step are merged, since
    Lightning writes one for training and one for validation. Files may be compressed with gzip; without a known suffix
    their first bytes decide.

    loss_column, step_column: names of the columns, if not usual ones. run: number of the run to read, if the file holds
    several. pattern: regular expression of the lines of a text log, with groups called step and loss. Raise UserError, one
    line that names file and fault.
    """
    path, chosen = Path(path), _chosen(loss_column, step_column)
    state = trainer_states.latest_state(path)
    with _faults_of(state.path if state else path):
        if state:
            return one_run(json_logs.rows_of_state(state), {}, run)._replace(trainer=state)
        if path.is_dir() or ".tfevents." in path.name:
            return one_run(event_files.read(path, is_named="loss" in chosen), chosen, run)
        rows = None
        try:
            rows = replace(log_files.read(path, chosen.values(), pattern), file=path.name)
            return one_run(rows, chosen, run)
        except (NotUnderstoodError, StepsOfEpochsError) as error:
            if pattern is not None or (rows is not None and rows.form != text_logs.FORM):
                raise
            raise LogError(f"{error}; {_remedy(path, error, chosen, run)}") from error


def of_columns(
    columns: Mapping[str, Any],
    *,
    loss_column: str | None = None,
    step_column: str | None = None,
    run: int | None = None,
) -> LossCurve:
    """Return the loss curve of columns under their names in a tracker; the options are those of `read`."""
    columns = {name: values for name in columns if np.ndim(values := _as_column(columns[name]))}
    with _faults_of("the loss curve"):
        return one_run(Rows(columns), _chosen(loss_column, step_column), run)


def _remedy(path: Path, error: LogError, chosen: Mapping[str, str], run: int | None) -> str:
    """Return the remedy for a text log that is not understood: a pattern that was tried on it, or how one looks."""
    content = log_files.content_of(path)
    if pattern := patterns.suggested(content, starts_again=isinstance(error, StepsOfEpochsError)):
        with suppress(LogError, UserError):
            rows = patterns.read(content, pattern)
            n = len(rows.lines if rows.lines is not None else ())
            one_run(rows, chosen, run)
            of = max(sum(b"loss" in line for line in content.lower().split(b"\n")), n)
            return f"a pattern matches {n:,} of {counted(of, 'line')} with a loss: --pattern '{pattern}'"
    return (
        f"give a pattern of its lines, such as --pattern '{patterns.EXAMPLE}', or a CSV with the columns step and loss"
    )


@contextmanager
def _faults_of(where: str | Path) -> Iterator[None]:
    """Raise UserError, which names the log, for a LogError."""
    try:
        yield
    except LogError as error:
        raise UserError(f"{where}: {error}") from error


def _chosen(loss_column: str | None, step_column: str | None) -> dict[str, str]:
    return {key: name for key, name in {"step": step_column, "loss": loss_column}.items() if name is not None}


def one_run(rows: Rows, named: Mapping[str, str], run: int | None = None) -> LossCurve:
    """Return the loss curve of one run of the rows of a log, or raise LogError, which asks.

    named: columns that the user named, by quantity. run: number of the run, from 1.
    """
    refuse_table_of_runs(rows.columns)
    series, restarts = one_run_of(one_training(_measured(series_of(rows, named))), run)
    columns, notes, reasons = _joined(series, restarts)
    of_batch, parameters = series.others_called(OF_THE_BATCH), series.others_called([PARAMETERS])
    is_classification = _looks_like_classification([*series.others, *series.values], series.main)
    return LossCurve(
        columns,
        (*series.notes, *notes),
        (*series.reasons, *reasons, *changed_batch(series.steps, of_batch)),
        form=rows.form or "columns",
        names=series.names,
        unread=tuple(name for name in series.others if plain_name(name) not in (*LAST_STEP, *OF_THE_BATCH, PARAMETERS)),
        facts=UNKNOWN.with_provenance(
            Provenance.LOGGED,
            final_step=last_number(series.totals),
            tokens_per_step=float(tokens_per_step(series.steps, of_batch) or np.nan),
            n_parameters=last_number(next(iter(parameters.values()), np.empty(0))) or np.nan,
            objective=CLASSIFICATION if is_classification else "",
        ),
    )


def _as_column(values: Any) -> Any:
    """Return a list or tensors of PyTorch as an array, masked entries as missing, other objects unchanged."""
    if hasattr(values, "detach") or isinstance(values, np.ma.MaskedArray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return values
    column = np.empty(len(values), dtype=object)
    column[:] = [value.tolist() if hasattr(value, "detach") else value for value in values]
    return column


def _joined(series: Series, restarts: Sequence[float]) -> tuple[dict[str, np.ndarray], Sequence[str], Sequence[str]]:
    """Return columns of unique, ascending steps, in which the last value of a step counts; notes, and what is uncertain."""
    steps = series.steps
    wrong = (steps % 1 != 0) | (steps < 0) | (steps > MAX_STEPS)
    if wrong.any():
        tokens = "; are these tokens? Divide them by the tokens per step (--tokens-per-step)"
        raise LogError(
            f"step holds {steps[wrong][0]:g}, but must be a whole number: 0, 1, 2, ... up to {MAX_STEPS:,}"
            + (tokens if steps[wrong][0] > MAX_STEPS else "")
        )
    joined = {name: series.of(name) for name in dict.fromkeys(("step", *LOG, *series.values))}
    repeated = np.zeros(len(steps), dtype=bool)
    if not np.all(np.diff(steps) > 0):
        joined, repeated = _merged(joined)
    unique = joined["step"]
    notes = [logged_again(int(repeated.sum()))] if repeated.any() else []
    validation = joined.get("validation_loss", np.empty(0))
    numbers, broken = np.flatnonzero(np.isfinite(validation)), np.flatnonzero(np.isinf(validation))
    if len(later := broken[broken > numbers.max(initial=-1)]):
        newest = f"; the last number is at step {unique[numbers[-1]]:,.0f}" if len(numbers) else ""
        notes.append(f"the validation loss is not a number since step {unique[later[0]]:,.0f}{newest}")
    main = joined["loss"] if "loss" in series.values else joined.get("validation_loss", joined["loss"])
    return joined, notes, [*_drops(unique, main, [*restarts, *unique[repeated]])]


def _merged(columns: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the columns with one row a step, the last value of each, and where it is one of several."""
    unique, index = np.unique(columns["step"], return_inverse=True)
    merged, repeated = dict[str, np.ndarray](), np.zeros(len(unique), dtype=bool)
    for name, values in columns.items():
        known = ~np.isnan(values)
        merged[name] = np.full(len(unique), np.nan)
        merged[name][index[known]] = values[known]  # of several the last one stays
        repeated[index[known][values[known] != merged[name][index[known]]]] = True
    return merged, repeated


def _drops(steps: np.ndarray, losses: np.ndarray, restarts: Iterable[float]) -> Iterator[str]:
    """Yield that the loss dropped abruptly at the first step of a restart, once if it did."""
    finite = np.isfinite(losses)
    # A restart is the first of consecutive steps that were logged again.
    index = np.searchsorted(steps, sorted(set(restarts)))
    index = index[(np.diff(index, prepend=-2) > 1) & (index < len(steps))]
    for row in index[-20:]:
        if has_dropped(steps[finite], losses[finite], steps[row]):
            yield (
                f"the loss dropped abruptly at step {steps[row]:,.0f}, where the log was resumed: if the batch or the data "
                "changed there, the curve before it says little"
            )
            return


def _measured(series: Series) -> Series:
    """Return the rows with a step; validation losses that are none are missing, and those of a failure are infinite."""
    missing = np.isnan(series.steps)
    if missing.any():
        has_loss = ~(np.isnan(series.of("loss")) & np.isnan(series.of("validation_loss")))
        if lost := int(np.sum(missing & has_loss)):
            if lost > MAX_LOST_SHARE * has_loss.sum():
                raise LogError(
                    f"{series.names['step']} is missing in {counted(lost, 'row')} with a loss; give each its step, such as "
                    "epoch x steps of an epoch"
                )
            series = series.changed({}, f"left out: {counted(lost, 'row')} with a loss and no step")
        series = series.keep(np.flatnonzero(~missing))
    for quantity in ("loss", "validation_loss"):
        loss = loss_name(series.names[quantity]) if quantity in series.values and quantity in series.names else None
        if loss and loss.split is not TRAINING:  # also where the user names one as the loss
            series = _without_repetitions(series, quantity)
    return _with_failure(series)


def _without_repetitions(series: Series, quantity: str) -> Series:
    """Return the series without validation losses that are none: 0, -1, NaN between evaluations, and repetitions."""
    values, name = series.values[quantity].copy(), series.names[quantity]
    notes = []
    for what, find in _UNMEASURED.items():
        unmeasured = find(values, ~np.isnan(series.of("loss")))
        if unmeasured.any():
            notes.append(f"{name} {what} in {counted(int(unmeasured.sum()), 'row')}, where nothing was measured")
            values[unmeasured] = np.nan
    return series.changed({quantity: values}, *notes)


def _placeholders(values: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.asarray((values == 0) | (values == -1))


def _between_evaluations(values: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return where a NaN, held as infinite, stands between evaluations, or after them for no longer, (rows,)."""
    logged = np.flatnonzero(~np.isnan(values))
    numbers = np.flatnonzero(np.isfinite(values[logged]))
    between = np.zeros(len(values), dtype=bool)
    if len(numbers):
        is_after = np.arange(len(logged)) > numbers[-1]
        is_failure = is_after.sum() >= np.diff(numbers).max(initial=1)
        between[logged] = np.isinf(values[logged]) & ~(is_after & is_failure)
    return between


def _carried_forward(values: np.ndarray, is_training: np.ndarray) -> np.ndarray:
    """Return where a row with a training loss repeats the last evaluation, if most rows do, (rows,)."""
    known = np.flatnonzero(np.isfinite(values))
    repeats = np.zeros(len(values), dtype=bool)
    repeats[known[1:]] = (np.diff(values[known]) == 0) & is_training[known[1:]]
    if 2 * repeats.sum() < len(known):
        return np.zeros(len(values), dtype=bool)
    lengths = np.diff(np.flatnonzero(~repeats[known]))
    if len(lengths) > 1 and lengths[0] > lengths[1:].max():  # also written before it was measured
        repeats[known[0]], repeats[known[lengths[0] - lengths[1:].max()]] = True, False
    return repeats


_UNMEASURED = {
    "is 0 or -1": _placeholders,
    "is NaN between evaluations": _between_evaluations,
    "repeats the value of the row before": _carried_forward,
}
"""Placeholders of rows without a validation loss, and the functions that find these rows, (rows,)."""


def _with_failure(series: Series) -> Series:
    """Return the series with empty training losses at the end infinite: pandas writes NaN as an empty cell.

    Rows with a learning rate or a validation loss are a schedule that goes on, or evaluations. Summaries are recognised by
    values in columns that rows of a loss leave empty.
    """
    losses = series.of("loss")
    logged = np.flatnonzero(~np.isnan(losses))
    if len(logged) < 2:
        return series
    is_empty = np.arange(len(losses)) > logged[-1]
    for name, values in {**series.values, **series.others}.items():
        known = known_cells(values)
        if name not in ("step", "loss") and (name in series.values or known[logged].mean() < 0.5):
            is_empty &= ~known
    if not is_empty.any() or is_empty.sum() < np.diff(logged).max():
        return series
    return series.changed({"loss": np.where(is_empty, np.inf, losses)})


def _looks_like_classification(names: Iterable[str], losses: np.ndarray) -> bool:
    """Return whether a log has accuracies, and losses (rows,) that start near the log of 1,000 classes or end very low."""
    losses = losses[np.isfinite(losses)]
    if not len(losses) or not any(ACCURACY.search(name.lower()) for name in names):
        return False
    starts_uniform = abs(losses[0] - LOSS_OF_1000_CLASSES) < MAX_DISTANCE_TO_UNIFORM
    return bool(starts_uniform or np.median(losses[-LAST_ROWS:]) < MIN_LOSS_OF_TEXT)


def changed_batch(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return a reason for low confidence where the log shows that its batch size changes.

    steps: (rows,); columns: those of `OF_THE_BATCH` that are logged, (rows,) each.
    """
    return tuple(
        f"according to {name}, the batch size changed from {early:.3g} to {late:.3g}; the law assumes that it is constant"
        for name, (early, late) in _batches(steps, columns)
        if not _is_constant(early, late)
    )[:1]


def tokens_per_step(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> int | None:
    """Return the tokens of a step that a column of tokens states; None without one, or if they change.

    steps, columns: as in `changed_batch`. Fractions are of another unit, such as billions of tokens.
    """
    of_tokens = {
        name: values
        for name, values in columns.items()
        if plain_name(name) not in IN_SEQUENCES and not np.any(values[np.isfinite(values)] % 1)
    }
    batches = (batch for _, batch in _batches(steps, of_tokens) if _is_constant(*batch))
    return next((round((early + late) / 2) for early, late in batches), None)


def _batches(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the name of each column of the batch, and the median batch in the first and in the last quarter of the log."""
    for name, values in columns.items():
        usable = np.isfinite(values)
        per_step = values[usable]
        if plain_name(name) in CONSUMED:
            forward = np.diff(steps[usable]) > 0  # not where a restart goes back
            per_step = np.diff(per_step)[forward] / np.diff(steps[usable])[forward]
        quarter = -(-len(per_step) // 4)
        if quarter and per_step.min() > 0:
            yield name, (float(np.median(per_step[:quarter])), float(np.median(per_step[-quarter:])))


def _is_constant(early: float, late: float) -> bool:
    return max(early / late, late / early) <= MAX_BATCH_RATIO
