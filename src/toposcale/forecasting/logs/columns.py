"""Columns of a training log: which one holds the step, the losses, the learning rate and the gradient norm.

What has two readings is asked here, and nowhere else.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from toposcale.forecasting.logs.labels import METRICS, labels_of
from toposcale.forecasting.logs.measurements import of_a_perplexity
from toposcale.forecasting.logs.names import (
    AXIS,
    BITS,
    COUNTERS,
    END,
    LAST_STEP,
    NO_LOSS,
    NORMS,
    OF_LOSSES,
    RATES,
    TEST,
    TRAINING,
    VALIDATION,
    Counter,
    LossName,
    loss_name,
    plain_name,
    split_of,
)
from toposcale.forecasting.logs.rows import Log, LogError, as_numbers, known_cells, numbers_or_nan
from toposcale.forecasting.logs.trainer_states import float_or_none
from toposcale.io.errors import listed

_STEP_OF_TOTAL = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")

HIGHEST_RATE = 0.1
"""Highest value of a curve without a name that may be a learning rate; a loss in nats per token begins above it."""


def choose_columns(log: Log, chosen: Mapping[str, str]) -> None:
    """Make series of the columns of each quantity: step, loss, validation_loss, learning_rate, gradient_norm.

    `chosen` holds the columns that the user named, by quantity ("step", "loss"); no other loss is read then.
    """
    log.columns = _without_totals(log.columns)
    columns = {name: values for name, values in log.columns.items() if name not in log.metrics}
    names = {quantity: _named(log, columns, quantity, name) for quantity, name in chosen.items()}
    # W&B adds columns for the extremes of a metric.
    plain_of = {name: plain_name(name) for name in columns if not name.endswith(("__MIN", "__MAX"))}
    losses = {name: loss for name in plain_of if name not in names.values() and (loss := loss_name(name))}
    counters = {name: columns[name] for name in plain_of if plain_of[name] in COUNTERS}
    if "step" not in names and counters:
        names["step"] = _counter_of_updates(log, _of_losses(counters, [columns[name] for name in losses]))
    if "loss" not in names:
        names |= dict(_losses(log, losses))
    for quantity, aliases in (("learning_rate", RATES), ("gradient_norm", NORMS)):
        present = [name for alias in aliases for name in plain_of if plain_of[name] == alias]
        present += [name for name in plain_of if aliases is RATES and name.lower().startswith("lr-")]
        if len(present) > 1:
            raise LogError(
                f"columns {' and '.join(present)} both hold the {quantity.replace('_', ' ')}; remove one of them"
            )
        names |= {quantity: present[0]} if present else {}
    if not names.keys() & {"loss", "validation_loss"}:
        names |= _curve_alone(log, plain_of)
    order = ("step", "loss", "gradient_norm", "learning_rate", "validation_loss")
    log.names = {name: names[name] for name in order if name in names}
    if log.needs_losses:
        _refuse_bits(log)
        _refuse_missing(log)
    _make_series(log)


def _without_totals(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns, those of a step and its total such as `10/3000` in two."""
    result = dict(columns)
    for name, values in columns.items():
        step, _, total = name.rpartition("/")
        is_pair = plain_name(step) in COUNTERS and plain_name(total) in LAST_STEP
        texts = np.asarray(values) if is_pair or plain_name(name) in COUNTERS else np.empty(0)
        if texts.dtype != object and texts.dtype.kind != "U":
            continue
        pairs = [_STEP_OF_TOTAL.fullmatch(text) if isinstance(text, str) else None for text in texts.tolist()]
        if any(pairs) and all(pair or text is None for pair, text in zip(pairs, texts.tolist(), strict=True)):
            del result[name]
            result[step if is_pair else name] = np.array([float(pair[1]) if pair else np.nan for pair in pairs])
            result.setdefault(END, np.array([float(pair[2]) if pair else np.nan for pair in pairs]))
    return result


def _of_losses(counters: Mapping[str, Any], losses: Sequence[Any]) -> Mapping[str, Any]:
    """Return the counters that most rows with a loss have; all of them if none is."""
    if not losses or len({len(values) for values in (*counters.values(), *losses)}) > 1:
        return counters
    has_loss = np.any([known_cells(values) for values in losses], axis=0)
    usual = {
        name: values for name, values in counters.items() if 2 * known_cells(values)[has_loss].sum() > has_loss.sum()
    }
    return usual or counters


def _curve_alone(log: Log, plain_of: Mapping[str, str]) -> dict[str, str]:
    """Return quantity and column of the curve that TensorBoard or MLflow exports alone; raise LogError if it is no loss."""
    column = next((name for name in plain_of if plain_of[name] == "value"), "")
    if not column or any(labels_of(log, METRICS)):
        return {}
    run, has_tag, tag = log.file.removesuffix(".gz").removesuffix(".csv").rpartition("-tag-")
    highest = np.nanmax(numbers_or_nan(log.columns[column]), initial=0)
    loss, plain = loss_name(tag), plain_name(tag)
    is_other = bool(NO_LOSS.fullmatch(plain)) or (
        loss.is_part if loss else bool(has_tag) and not OF_LOSSES.search(plain)
    )
    if is_other or 0 < highest < HIGHEST_RATE:
        curve = f"{tag or column}, which goes up to {highest:.3g},"
        raise LogError(f"{curve} is not the loss of a step; give its file (or name it: --loss-column {column})")
    return {"loss" if (split_of(tag) or split_of(run)) in (TRAINING, None) else "validation_loss": column}


def _named(log: Log, columns: Iterable[str], quantity: str, name: str) -> str:
    """Return the column that the user named, also by another spelling; raise LogError if there is none."""
    alike = [name] if name in columns else [one for one in columns if plain_name(one) == plain_name(name)]
    alike = alike or [one for one in columns if (loss := loss_name(name)) and loss == loss_name(one)]
    if len(alike) != 1:
        raise LogError(f"no column {name} for the {quantity}; its columns are {listed(columns, 40)}")
    return alike[0]


def _make_series(log: Log) -> None:
    """Make numbers of the chosen columns; raise LogError for one without, or of another length, and for no rows."""
    n_rows = len(next(iter(log.columns.values()), ()))
    log.series = {quantity: _floats(log, name) for quantity, name in log.names.items()}
    if len({len(values) for values in log.series.values()}) > 1:
        lengths = ", ".join(f"{name} {len(log.series[quantity])}" for quantity, name in log.names.items())
        raise LogError(f"the columns are not of one length: {lengths}")
    if log.names and not len(log.steps):
        raise LogError("no rows; a loss table has one row per logged step")
    losses = {log.names[name]: log.series[name] for name in ("loss", "validation_loss") if name in log.names}
    if losses and not any(np.isfinite(values).any() for values in losses.values()):
        raise LogError(f"{' and '.join(losses)} holds no number")
    log.series |= {name: np.asarray(log.columns[name], dtype=np.float64) for name in log.metrics}
    log.series.setdefault("step", np.empty(0))
    log.columns = {
        name: values
        for name, values in log.columns.items()
        if name not in (*log.names.values(), *log.metrics) and getattr(values, "ndim", 1) == 1 and len(values) == n_rows
    }
    log.totals = _totals(log, n_rows)
    log.drop_empty_loss()


def _totals(log: Log, n_rows: int) -> np.ndarray:
    """Return the last step of the training that each row states; NaN where none is, and if two contradict each other."""
    unknown = np.full(n_rows, np.nan)
    stated = {name: np.where(values > 0, values, np.nan) for name, values in log.others(LAST_STEP).items()}
    highest, lowest = (extreme.reduce([unknown, *stated.values()]) for extreme in (np.fmax, np.fmin))
    contradictory = np.flatnonzero(highest > lowest)
    if len(contradictory):
        row = {name: values[contradictory[0]] for name, values in stated.items()}
        totals = " and ".join(f"{name} {total:,.0f}" for name, total in row.items() if total > 0)
        log.notes.append(f"the last step is not read, since {totals} contradict each other")
        return unknown
    return highest


def _floats(log: Log, name: str) -> np.ndarray:
    """Return a column as numbers; raise LogError that names the first cell that is none."""
    values = log.columns[name]
    cells = np.asarray(values)
    if cells.ndim != 1:
        raise LogError(f"column {name} is not a list of numbers")
    try:
        return as_numbers(values)
    except (TypeError, ValueError) as error:
        row = next((row for row, cell in enumerate(cells) if cell is not None and float_or_none(cell) is None), 0)
        reason = f"{log.place(row)} has {str(cells[row])[:40]!r}" if len(cells) else str(error).splitlines()[0]
        raise LogError(f"column {name} contains values that are not numbers ({reason}); mend or delete it") from error


def _counter_of_updates(log: Log, counters: Mapping[str, Any]) -> str:
    """Return the column that counts the updates of the weights; note if another counts more."""
    kinds = {name: COUNTERS[plain_name(name)] for name in counters}
    ranked = sorted(counters, key=lambda name: -kinds[name])
    steps = {name: known for name in ranked if _is_whole(known := numbers_or_nan(counters[name]))}
    best, *others = [*steps, *(name for name in ranked if name not in steps)]
    for name in others:
        if name not in steps or kinds[name] is Counter.TRACKER:
            continue
        if kinds[name] is Counter.MICRO_STEP and _goes_back(steps[name]) and not _goes_back(steps[best]):
            continue  # it numbers the parts of a step
        ratio = _ratio(steps[name], steps[best])
        if abs(ratio - 1) < 1e-6 or np.isnan(ratio):
            continue
        if kinds[name] == kinds[best] or ratio < 1:
            raise LogError(f"columns {best} and {name} count differently; name one with --step-column (step_column)")
        log.notes.append(f"{name} advances {ratio:.3g} times as fast as {best}, which counts the updates")
        break
    return best


def _is_whole(values: np.ndarray) -> bool:
    return not np.any(values[np.isfinite(values)] % 1) and bool(np.isfinite(values).any())


def _goes_back(values: np.ndarray) -> bool:
    return bool(np.any(np.diff(values[np.isfinite(values)]) < 0))


def _ratio(values: np.ndarray, others: np.ndarray) -> float:
    """Return how many times as fast as others values advance, NaN if unknown."""
    known = np.isfinite(values) & np.isfinite(others)
    advances = np.abs(np.diff(values[known])).sum(), np.abs(np.diff(others[known])).sum()
    return float(advances[0] / advances[1]) if min(advances) > 0 else np.nan


def _losses(log: Log, losses: Mapping[str, LossName]) -> Iterator[tuple[str, str]]:
    """Yield quantity and column of the training loss and the validation loss; a test loss counts without one."""
    parts = [name for name, loss in losses.items() if loss.is_part and loss.split is TRAINING]
    training, validation, test = (
        {name: loss for name, loss in losses.items() if loss.split is split and not loss.is_part}
        for split in (TRAINING, VALIDATION, TEST)
    )
    counts = {name: known_cells(log.columns[name]).sum() for name in training} if len(training) > 1 else {}
    if max(counts.values(), default=0) > 1:  # a single value is the mean of the training
        training = {name: loss for name, loss in training.items() if counts[name] > 1}
    has_part = any(loss.is_part for loss in losses.values())
    if training:
        name = _one_loss(log, training, has_part, "loss")
        yield "loss", name
        if parts and not losses[name].is_cross_entropy:
            log.low_confidence_reasons.append(
                f"{name} may include {listed(parts, 4)}, which are logged beside it; name that of the language model with "
                "--loss-column (loss_column)"
            )
    if validation or test:
        yield "validation_loss", _one_loss(log, validation or test, has_part, "validation loss")
        if validation and test:
            log.notes.append(f"{listed(test, 4)} was left out, since there is a validation loss")


def _one_loss(log: Log, losses: Mapping[str, LossName], has_part: bool, quantity: str) -> str:
    """Return the column of one training loss or validation loss under several names; note the others."""
    values = {name for name, loss in losses.items() if not loss.is_mean} or set(losses)
    plain = {name for name in values if losses[name].is_cross_entropy and not losses[name].is_total}
    hold_more = all(
        losses[name].is_total or (has_part and not losses[name].is_cross_entropy) for name in values - plain
    )
    chosen = plain if len(plain) == 1 and hold_more else values
    first, *others = sorted(
        (name for name in losses if name in chosen), key=lambda name: -known_cells(log.columns[name]).sum()
    )
    if any(_differ(log.columns[first], log.columns[name]) for name in others):
        if len(agreeing := of_a_perplexity(log.columns, chosen)) == 1:
            return agreeing[0]
        named = " and ".join(name for name in losses if name in chosen)
        remedy = "remove one of them, or name the loss with --loss-column (loss_column)"
        raise LogError(f"columns {named} both hold the {quantity}; {remedy}")
    if left_out := [name for name in losses if name not in chosen]:
        log.notes.append(f"{first} is read; {listed(left_out, 4)}, a total or a mean by its name, was left out")
    return first


def _differ(values: Any, others: Any) -> bool:
    """Return whether two columns of losses differ where both are known; columns that are never both known do."""
    known = known_cells(values) & known_cells(others)
    one, other = numbers_or_nan(values)[known], numbers_or_nan(others)[known]
    return not len(one) or not np.allclose(one, other, rtol=1e-6, atol=1e-12)


def _refuse_missing(log: Log) -> None:
    """Raise LogError if there is no column for the step or for a loss."""
    needed = {"step": {"step"}, "loss": {"loss", "validation_loss"}}
    usual = {"step": ("step", "train/global_step", "trainer/global_step"), "loss": ("loss", "train/loss", "train_loss")}
    missing = [quantity for quantity, columns in needed.items() if not columns & log.names.keys()]
    if not missing:
        return
    columns, form = [*log.columns], f" ({log.form})" if log.form else ""
    if columns and all(re.fullmatch(r"[-+\d.eE]+", name) for name in columns):
        raise LogError("its first line holds numbers; begin it with the names of the columns: step,loss")
    present = f"its columns are {listed(columns, 40)}{form}" if columns else "it has none"
    if missing == ["step"] and (step := _step_of_axis(columns)):
        raise LogError(f"no column for step; {present}. Add one called step: {step}")
    first = missing[0]
    raise LogError(
        f"no column for {' and '.join(missing)}; {present}. Call it {', '.join(usual[first])}, or name it: "
        f"--{first}-column of the command, {first}_column in Python"
    )


def _step_of_axis(columns: Iterable[str]) -> str:
    """Return how steps follow from the column that counts something else; "" without one."""
    by_unit = {axis[1]: name for name in columns if (axis := AXIS.fullmatch(plain_name(name)))}
    epoch = by_unit.pop("epoch", "")
    if "batch" in by_unit:
        return "(epoch - first epoch) x batches of an epoch + batch" if epoch else ""
    if unit := next(iter(by_unit), ""):
        return f"{by_unit[unit]} / {unit} of a step"
    return f"{epoch} x steps of an epoch, or count epochs as steps: --step-column {epoch}" if epoch else ""


def _refuse_bits(log: Log) -> None:
    """Raise LogError if the name of the loss, or of any column if there is none, says bits."""
    losses = [log.names[quantity] for quantity in ("loss", "validation_loss") if quantity in log.names]
    if bits := [name for name in losses or log.columns if BITS.search(name.lower())]:
        raise LogError(
            f"column {bits[0]} is in bits by its name, but a loss must be in nats per token: bits per token "
            "x 0.6931 (bits per byte x bytes per token x 0.6931); give it as a column called loss"
        )
