"""Columns of a training log: which one holds the step, the losses, the learning rate and the gradient norm, by name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.names import (
    AXIS,
    BITS,
    COUNTERS,
    NORMS,
    RATES,
    TEST,
    TRAINING,
    VALIDATION,
    Counter,
    LossName,
    loss_name,
    plain_name,
)
from toposcale.io.errors import UserError, listed


class Matched(NamedTuple):
    """Names of the columns by quantity, notes on those that do not count, and reasons for low confidence."""

    columns: dict[str, str]
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()


def matched(columns: Mapping[str, Any], where: str | Path, chosen: Mapping[str, str]) -> Matched:
    """Return the column of each quantity that is logged: step, loss, validation_loss, learning_rate, gradient_norm.

    `chosen` holds the columns that the user named, by quantity ("step", "loss"); no other loss is read then. Raise
    UserError if two columns could hold one quantity, or if a named column does not exist.
    """
    names: dict[str, str] = {}
    for quantity, name in chosen.items():
        plain = plain_name(name)
        alike = [name] if name in columns else [one for one in columns if plain_name(one) == plain]
        alike = alike or [one for one in columns if (said := loss_name(plain)) and said == loss_name(plain_name(one))]
        if len(alike) != 1:
            raise UserError(f"{where}: no column {name} for the {quantity}; its columns are {listed(columns, 40)}")
        names[quantity] = alike[0]
    notes, doubts = [], []
    # W&B adds columns for the extremes of a metric.
    plain_of = {name: plain_name(name) for name in columns if not name.endswith(("__MIN", "__MAX"))}
    if "step" not in names and (counters := [name for name in plain_of if plain_of[name] in COUNTERS]):
        names["step"], note = _counter_of_updates({name: columns[name] for name in counters}, where)
        notes += note
    if "loss" not in names:
        losses = {name: said for name in plain_of if name not in names.values() and (said := loss_name(plain_of[name]))}
        for quantity, column, note in _losses(losses, columns, where):
            names[quantity] = column
            notes += note
        parts = [name for name, said in losses.items() if said.is_part and said.split is TRAINING]
        if parts and names.get("loss") in losses and not losses[names["loss"]].is_cross_entropy:
            of_model = "name that of the language model with --loss-column (loss_column)"
            doubts.append(f"{names['loss']} may include {listed(parts, 4)}, which are logged beside it; {of_model}")
    for quantity, aliases in (("learning_rate", RATES), ("gradient_norm", NORMS)):
        present = [name for alias in aliases for name in plain_of if plain_of[name] == alias]
        present += [name for name in plain_of if quantity == "learning_rate" and name.lower().startswith("lr-")]
        if len(present) > 1:
            quantity = quantity.replace("_", " ")
            raise UserError(f"{where}: columns {' and '.join(present)} both hold the {quantity}; remove one of them")
        names |= {quantity: present[0]} if present else {}
    # The export of one TensorBoard curve calls its loss `Value`; next to a loss, a value is something else.
    if not names.keys() & {"loss", "validation_loss"} and (
        values := [name for name in plain_of if plain_of[name] == "value"]
    ):
        names["loss"] = values[0]
    order = ("step", "loss", "gradient_norm", "learning_rate", "validation_loss")
    return Matched({name: names[name] for name in order if name in names}, tuple(notes), tuple(doubts))


def _counter_of_updates(counters: Mapping[str, Any], where: str | Path) -> tuple[str, list[str]]:
    """Return the column that counts the updates of the weights, and a note if another counts more."""
    if len(counters) == 1:
        return next(iter(counters)), []
    sure = {name: COUNTERS[plain_name(name)] for name in counters}
    ranked = sorted(counters, key=lambda name: -sure[name])
    steps = {name: known for name in ranked if _is_whole(known := numbers_or_nan(counters[name]))}
    best, *others = [*steps, *(name for name in ranked if name not in steps)]
    for name in others:
        if name not in steps or sure[name] is Counter.TRACKER:
            continue
        if sure[name] is Counter.MICRO_STEP and _goes_back(steps[name]) and not _goes_back(steps[best]):
            continue  # it numbers the parts of a step
        ratio = _ratio(steps[name], steps[best])
        if abs(ratio - 1) < 1e-6 or np.isnan(ratio):
            continue
        if sure[name] == sure[best] or ratio < 1:
            raise UserError(
                f"{where}: columns {best} and {name} count differently; name one with --step-column (step_column)"
            )
        return best, [f"{name} advances {ratio:.3g} times as fast as {best}, which counts the updates"]
    return best, []


def _is_whole(values: np.ndarray) -> bool:
    return not np.any(values[np.isfinite(values)] % 1) and bool(np.isfinite(values).any())


def _goes_back(values: np.ndarray) -> bool:
    return bool(np.any(np.diff(values[np.isfinite(values)]) < 0))


def _ratio(values: np.ndarray, others: np.ndarray) -> float:
    """Return how many times as fast as others values advance, NaN if unknown."""
    known = np.isfinite(values) & np.isfinite(others)
    advances = np.abs(np.diff(values[known])).sum(), np.abs(np.diff(others[known])).sum()
    return float(advances[0] / advances[1]) if min(advances) > 0 else np.nan


def _losses(
    losses: Mapping[str, LossName], columns: Mapping[str, Any], where: str | Path
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield quantity, column and notes for the training loss and the validation loss; a test loss counts without one."""
    has_part = any(said.is_part for said in losses.values())
    training, validation, test = (
        {name: said for name, said in losses.items() if said.split is split and not said.is_part}
        for split in (TRAINING, VALIDATION, TEST)
    )
    counts = {name: int(known_cells(columns[name]).sum()) for name in training} if len(training) > 1 else {}
    if max(counts.values(), default=0) > 1:  # a single value is the mean of the training
        training = {name: said for name, said in training.items() if counts[name] > 1}
    if training:
        yield "loss", *_one_loss(training, has_part, columns, where, "loss")
    if validation or test:
        column, notes = _one_loss(validation or test, has_part, columns, where, "validation loss")
        notes += [f"{listed(test, 4)} was left out, since there is a validation loss"] if validation and test else []
        yield "validation_loss", column, notes


def _one_loss(
    losses: Mapping[str, LossName], has_part: bool, columns: Mapping[str, Any], where: str | Path, quantity: str
) -> tuple[str, list[str]]:
    """Return the loss of one training loss or validation loss under several names, and notes on the others."""
    values = {name for name, said in losses.items() if not said.is_mean} or set(losses)
    plain = {name for name in values if losses[name].is_cross_entropy and not losses[name].is_total}
    hold_more = all(
        losses[name].is_total or (has_part and not losses[name].is_cross_entropy) for name in values - plain
    )
    chosen = plain if len(plain) == 1 and hold_more else values
    first, *others = [name for name in losses if name in chosen]
    if others:
        first, *others = sorted([first, *others], key=lambda name: -int(known_cells(columns[name]).sum()))
    if any(_differ(columns[first], columns[name]) for name in others):
        named = " and ".join(name for name in losses if name in chosen)
        remedy = "remove one of them, or name the loss with --loss-column (loss_column)"
        raise UserError(f"{where}: columns {named} both hold the {quantity}; {remedy}")
    left_out = [name for name in losses if name not in chosen]
    return first, [
        f"{first} is read; {listed(left_out, 4)}, a total or a mean by its name, was left out"
    ] if left_out else []


def _differ(values: Any, others: Any) -> bool:
    """Return whether two columns of losses differ where both are known; columns that are never both known do."""
    known = known_cells(values) & known_cells(others)
    one, other = numbers_or_nan(values)[known], numbers_or_nan(others)[known]
    return not len(one) or not np.allclose(one, other, rtol=1e-6, atol=1e-12)


def numbers_or_nan(values: Any) -> np.ndarray:
    """Return a column as numbers (rows,), all NaN if it holds something else."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty((0, 0))
    return numbers if numbers.ndim == 1 else np.full(len(values), np.nan)


def known_cells(values: Any) -> np.ndarray:
    """Return where a column has a value, (rows,)."""
    values = np.asarray(values)
    return np.array([value is not None for value in values]) if values.dtype == object else values == values


def column_or_nan(series: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return a column (rows,), NaN if it is missing."""
    return series.get(name, np.full(len(series["step"]), np.nan))


def main_loss(series: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the training losses, or the validation losses if there are none."""
    loss = column_or_nan(series, "loss")
    return column_or_nan(series, "validation_loss") if np.isnan(loss).all() else loss


def refuse_missing(names: Mapping[str, str], columns: Iterable[str], where: str | Path, remark: str = "") -> None:
    """Raise UserError if there is no column for the step or for a loss; `remark` follows the list of columns."""
    needed = {"step": {"step"}, "loss": {"loss", "validation_loss"}}
    usual = {"step": ("step", "train/global_step", "trainer/global_step"), "loss": ("loss", "train/loss", "train_loss")}
    if missing := [quantity for quantity, columns_of in needed.items() if not columns_of & names.keys()]:
        columns = list(columns)
        if columns and all(re.fullmatch(r"[-+\d.eE]+", name) for name in columns):
            raise UserError(f"{where}: its first line holds numbers; begin it with the names of the columns: step,loss")
        present = f"its columns are {text}{remark}" if (text := listed(columns, 40)) else "it has none"
        first = missing[0]
        if missing == ["step"] and (step := _step_of_axis(columns)):
            raise UserError(f"{where}: no column for step; {present}. Add one called step: {step}")
        raise UserError(
            f"{where}: no column for {' and '.join(missing)}; {present}. Call it {', '.join(usual[first])}, or name "
            f"it: --{first}-column of the command, {first}_column in Python"
        )


def _step_of_axis(columns: Iterable[str]) -> str:
    """Return how steps follow from the column that counts something else; "" without one."""
    by_unit = {found[1]: name for name in columns if (found := AXIS.fullmatch(plain_name(name)))}
    epoch = by_unit.pop("epoch", "")
    if "batch" in by_unit:
        return "(epoch - first epoch) x batches of an epoch + batch" if epoch else ""
    if unit := next(iter(by_unit), ""):
        return f"{by_unit[unit]} / {unit} of a step"
    return f"{epoch} x steps of an epoch, or count epochs as steps: --step-column {epoch}" if epoch else ""


def refuse_bits(names: Mapping[str, str], columns: Iterable[str], where: str | Path) -> None:
    """Raise UserError if the name of the loss, or of any column if there is none, says bits."""
    losses = [names[quantity] for quantity in ("loss", "validation_loss") if quantity in names]
    if bits := [name for name in losses or columns if BITS.search(name.lower())]:
        raise UserError(
            f"{where}: column {bits[0]} is in bits by its name, but a loss must be in nats per token: bits per token "
            "x 0.6931 (bits per byte x bytes per token x 0.6931); give it as a column called loss"
        )
