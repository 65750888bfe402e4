"""Choices: which columns of a log hold the step, the losses, the learning rate and the gradient norm, and in which unit.

Each returns what it chose, why, and what it left out; what has two readings is asked here, and nowhere else.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.names import (
    BITS,
    COUNTERS,
    END,
    LAST_STEP,
    METRICS,
    NORMS,
    PERPLEXITY,
    RATES,
    TEST,
    TRAINING,
    VALIDATION,
    VALUES,
    Counter,
    LossName,
    loss_name,
    plain_name,
    split_of,
)
from toposcale.forecasting.logs.rows import LogError, Rows, Series, as_numbers, known_cells, labels_of, numbers_or_nan
from toposcale.forecasting.logs.trainer_states import float_or_none
from toposcale.io.errors import listed

MAX_NAMED = 12
"""Columns that a refusal names: the remedy after them is on the first screen."""

MAX_PERPLEXITY_MISMATCH = 0.03
"""Largest relative difference of a loss and the logarithm of its perplexity, which may be means over other rows."""

MAX_BASE_MISMATCH = 0.02
"""Largest difference of log(perplexity) / loss from 1 (nats) or from ln 2 (bits)."""

_STEP_OF_TOTAL = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")
_TWO_COUNTERS = "columns {} and {} count differently; name one with --step-column (step_column)"
_IN_BITS = "if the losses are in bits, multiply them by 0.6931; if in nats, say so with --loss-column {} (loss_column)"


class Choice(NamedTuple):
    """Columns by quantity that were chosen; what was left out and why; what makes a forecast uncertain."""

    names: Mapping[str, str]
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def series_of(rows: Rows, named: Mapping[str, str]) -> Series:
    """Return the series of the columns of each quantity: step, loss, validation_loss, learning_rate, gradient_norm.

    named: columns that the user named, by quantity ("step", "loss"); no other training loss is read then.
    """
    rows = _one_metric_a_column(rows)
    columns = {name: values for name, values in _without_totals(rows.columns).items() if name not in rows.metrics}
    by_user = {quantity: _column_called(columns, quantity, name) for quantity, name in named.items()}
    # W&B adds columns for the extremes of a metric.
    plain_of = {name: plain_name(name) for name in columns if not name.endswith(("__MIN", "__MAX"))}
    losses = {name: loss for name in plain_of if name not in by_user.values() and (loss := loss_name(name))}
    choices = [Choice(by_user)]
    if "step" not in by_user:
        choices.append(choose_step(columns, losses))
    if "loss" not in by_user:
        choices.append(choose_losses(columns, losses))
    choices += [_only_column(plain_of, "learning_rate", RATES), _only_column(plain_of, "gradient_norm", NORMS)]
    if not any(choice.names.keys() & {"loss", "validation_loss"} for choice in choices):
        choices.append(_unnamed_loss(rows, columns))
    names = {quantity: name for choice in choices for quantity, name in choice.names.items()}
    order = ("step", "loss", "gradient_norm", "learning_rate", "validation_loss")
    names = {quantity: names[quantity] for quantity in order if quantity in names}
    if rows.needs_losses:
        _refuse_bits(names, columns)
        _refuse_missing(names, columns, rows.form)
    series = _measured(rows, columns, names)
    totals, contradiction = _totals(series)
    notes = (*rows.notes, *(note for choice in choices for note in choice.notes), *contradiction)
    reasons = (*rows.reasons, *(reason for choice in choices for reason in choice.reasons))
    return _in_nats(replace(series, totals=totals, notes=notes, reasons=reasons), is_named="loss" in named)


def _one_metric_a_column(rows: Rows) -> Rows:
    """Return the rows of a long table, which has columns such as metric and value, with a column a metric."""
    columns = dict(rows.columns)
    value = next((column for column in columns if column.strip().lower() in VALUES), "")
    for labels in labels_of(columns, METRICS) if value else []:
        if any(map(loss_name, labels.texts)):
            numbers = np.array([float_or_none(cell) for cell in columns.pop(value)], dtype=np.float64)
            del columns[labels.column]
            columns |= {text: np.where(labels.codes == code, numbers, np.nan) for code, text in enumerate(labels.texts)}
            note = f"columns {labels.column} and {value}: one metric a row; read by its name"
            return replace(rows, columns=columns, notes=(*rows.notes, note))
    return rows


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


def _column_called(columns: Collection[str], quantity: str, name: str) -> str:
    """Return the column that the user named, also by another spelling; raise LogError if there is none."""
    alike = [name] if name in columns else [one for one in columns if plain_name(one) == plain_name(name)]
    alike = alike or [one for one in columns if (loss := loss_name(name)) and loss == loss_name(one)]
    if len(alike) != 1:
        raise LogError(f"no column {name} for the {quantity}; its columns are {listed([*columns], MAX_NAMED)}")
    return alike[0]


def _only_column(plain_of: Mapping[str, str], quantity: str, aliases: Collection[str]) -> Choice:
    """Choose the only column with one of the names of a quantity."""
    present = [name for alias in aliases for name in plain_of if plain_of[name] == alias]
    present += [name for name in plain_of if aliases is RATES and name.lower().startswith("lr-")]
    if len(present) > 1:
        raise LogError(
            f"columns {' and '.join(present)} both hold the {quantity.replace('_', ' ')}; remove one of them"
        )
    return Choice({quantity: present[0]} if present else {})


def choose_step(columns: Mapping[str, Any], losses: Mapping[str, LossName]) -> Choice:
    """Choose the column that counts the updates of the weights most surely; only those that most rows with a loss have."""
    counters = {name: numbers_or_nan(values) for name, values in columns.items() if plain_name(name) in COUNTERS}
    if losses and len({len(columns[name]) for name in (*counters, *losses)}) == 1:
        has_loss = np.any([known_cells(columns[name]) for name in losses], axis=0)
        usual = {name for name, steps in counters.items() if 2 * np.isfinite(steps[has_loss]).sum() > has_loss.sum()}
        counters = {name: counters[name] for name in usual or counters if name in counters}
    counters = {name: steps for name, steps in counters.items() if _is_whole(steps)} or counters
    kinds = {name: COUNTERS[plain_name(name)] for name in counters}
    surest = [name for name in columns if name in kinds and kinds[name] == max(kinds.values())]
    for name in surest[1:]:
        both = np.isfinite(counters[name]) & np.isfinite(counters[surest[0]])
        if not np.allclose(np.diff(counters[name][both]), np.diff(counters[surest[0]][both])):
            raise LogError(_TWO_COUNTERS.format(surest[0], name))
    for name in (name for name in counters if Counter.MICRO_STEP < kinds[name] < kinds[surest[0]]):
        if np.ptp(counters[name][np.isfinite(counters[name])]) < 0.99 * np.ptp(counters[surest[0]]):
            raise LogError(_TWO_COUNTERS.format(surest[0], name))  # what is not an update counts no slower
    return Choice({"step": surest[0]} if surest else {})


def _is_whole(values: np.ndarray) -> bool:
    return not np.any(values[np.isfinite(values)] % 1) and bool(np.isfinite(values).any())


def choose_losses(columns: Mapping[str, Any], losses: Mapping[str, LossName]) -> Choice:
    """Choose the columns of the training loss and of the validation loss; a test loss counts without one."""
    parts = [name for name, loss in losses.items() if loss.is_part and loss.split is TRAINING]
    whole = {name: loss for name, loss in losses.items() if not loss.is_part}
    training, validation, test = (
        {name: loss for name, loss in whole.items() if loss.split is split} for split in (TRAINING, VALIDATION, TEST)
    )
    counts = {name: known_cells(columns[name]).sum() for name in training} if len(training) > 1 else {}
    if max(counts.values(), default=0) > 1:  # a single value is the mean of the training
        training = {name: loss for name, loss in training.items() if counts[name] > 1}
    has_part = len(whole) < len(losses)
    names: dict[str, str] = {}
    notes: list[str] = []
    reasons: tuple[str, ...] = ()
    for quantity, of_split in {"loss": training, "validation_loss": validation or test}.items():
        if of_split:
            names[quantity], left_out = _one_loss(columns, of_split, has_part, quantity.replace("_", " "))
            notes += left_out
    if training and parts and not losses[names["loss"]].is_cross_entropy:
        reasons = (
            f"{names['loss']} may include {listed(parts, 4)}, which are logged with it; name that of the language model "
            "with --loss-column (loss_column)",
        )
    if validation and test:
        notes.append(f"{listed([*test], 4)} was left out, since there is a validation loss")
    return Choice(names, tuple(notes), reasons)


def _one_loss(
    columns: Mapping[str, Any], losses: Mapping[str, LossName], has_part: bool, quantity: str
) -> tuple[str, list[str]]:
    """Return the column of one training loss or validation loss under several names, and a note on the others."""
    values = {name for name, loss in losses.items() if not loss.is_mean} or set(losses)
    plain = {name for name in values if losses[name].is_cross_entropy and not losses[name].is_total}
    hold_more = all(
        losses[name].is_total or (has_part and not losses[name].is_cross_entropy) for name in values - plain
    )
    chosen = plain if len(plain) == 1 and hold_more else values
    first, *others = sorted(
        (name for name in losses if name in chosen), key=lambda name: -known_cells(columns[name]).sum()
    )
    if any(_differ(columns[first], columns[name]) for name in others):
        called = " and ".join(name for name in losses if name in chosen)
        remedy = "remove one of them, or name the loss with --loss-column (loss_column)"
        raise LogError(f"columns {called} both hold the {quantity}; {remedy}")
    left_out = [name for name in losses if name not in chosen]
    note = f"{first} is read; {listed(left_out, 4)}, a total or a mean by its name, was left out"
    return first, [note] if left_out else []


def _differ(values: Any, others: Any) -> bool:
    """Return whether two columns of losses differ where both are known; columns that are never both known do."""
    known = known_cells(values) & known_cells(others)
    values, others = numbers_or_nan(values)[known], numbers_or_nan(others)[known]
    return not len(values) or not np.allclose(values, others, rtol=1e-6, atol=1e-12)


def _unnamed_loss(rows: Rows, columns: Mapping[str, Any]) -> Choice:
    """Choose the curve that TensorBoard or MLflow exports without its name, if that of its file is the name of a loss."""
    column = next((name for name in columns if plain_name(name) == "value"), "")
    if not column or any(labels_of(columns, METRICS)):
        return Choice({})
    run, _, tag = rows.file.removesuffix(".gz").removesuffix(".csv").rpartition("-tag-")
    loss = loss_name(tag)
    if loss is None or loss.is_part or "epoch" in plain_name(tag):
        raise LogError(
            f"nothing says that {column} is the loss of a step: give the file of that curve under its name, such as "
            f"run-a-tag-train_loss.csv, or name the column: --loss-column {column} (loss_column)"
        )
    split = split_of(tag) or split_of(run)
    return Choice({"loss" if split in (TRAINING, None) else "validation_loss": column})


def _refuse_bits(names: Mapping[str, str], columns: Collection[str]) -> None:
    """Raise LogError if the name of the loss, or of any column if there is none, says bits."""
    losses = [names[quantity] for quantity in ("loss", "validation_loss") if quantity in names]
    if bits := [name for name in losses or columns if BITS.search(name.lower())]:
        raise LogError(
            f"column {bits[0]} is in bits by its name, but a loss must be in nats per token: bits per token "
            "x 0.6931 (bits per byte x bytes per token x 0.6931); give it as a column called loss"
        )


def _refuse_missing(names: Collection[str], columns: Collection[str], form: str) -> None:
    """Raise LogError if there is no column for the step or for a loss."""
    usual = {"step": "step, train/global_step, trainer/global_step", "loss": "loss, train/loss, train_loss"}
    has = {"step": "step" in names, "loss": "loss" in names or "validation_loss" in names}
    missing = [quantity for quantity in usual if not has[quantity]]
    if not missing:
        return
    if columns and all(re.fullmatch(r"[-+\d.eE]+", name) for name in columns):
        raise LogError("its first line holds numbers; begin it with the names of the columns: step,loss")
    form = f" ({form})" if form else ""
    present = f"its columns are {listed([*columns], MAX_NAMED)}{form}" if columns else "it has none"
    axis = "; steps are tokens / tokens of a step, or epoch x steps of an epoch" if missing == ["step"] else ""
    raise LogError(
        f"no column for {' and '.join(missing)}; {present}. Call it {usual[missing[0]]}, or name it: "
        f"--{missing[0]}-column of the command, {missing[0]}_column in Python{axis}"
    )


def _measured(rows: Rows, columns: Mapping[str, Any], names: Mapping[str, str]) -> Series:
    """Return the chosen columns as numbers; raise LogError for one without, or of another length, and for no rows."""
    n_rows = len(next(iter(columns.values()), ()))
    values = {quantity: _floats(rows, columns[name], name) for quantity, name in names.items()}
    if len({len(numbers) for numbers in values.values()}) > 1:
        lengths = ", ".join(f"{name} {len(values[quantity])}" for quantity, name in names.items())
        raise LogError(f"the columns are not of one length: {lengths}")
    steps = values.setdefault("step", np.empty(0))
    if names and not len(steps):
        raise LogError("no rows; a loss table has one row per logged step")
    losses = {names[quantity]: values[quantity] for quantity in ("loss", "validation_loss") if quantity in names}
    if losses and not any(np.isfinite(numbers).any() for numbers in losses.values()):
        raise LogError(f"{' and '.join(losses)} holds no number")
    values |= {name: np.asarray(rows.columns[name], dtype=np.float64) for name in rows.metrics}
    others = {
        name: numbers
        for name, numbers in columns.items()
        if name not in names.values() and getattr(numbers, "ndim", 1) == 1 and len(numbers) == n_rows
    }
    series = Series(rows, values, names, others, np.full(len(steps), np.nan), np.arange(len(steps)))
    return series.changed({})


def _floats(rows: Rows, values: Any, name: str) -> np.ndarray:
    """Return a column as numbers; raise LogError that names the first cell that is none."""
    cells = np.asarray(values)
    if cells.ndim != 1:
        raise LogError(f"column {name} is not a list of numbers")
    try:
        return as_numbers(values)
    except (TypeError, ValueError) as error:
        row = next((row for row, cell in enumerate(cells) if cell is not None and float_or_none(cell) is None), 0)
        reason = f"{rows.place(row)} has {str(cells[row])[:40]!r}" if len(cells) else str(error).splitlines()[0]
        raise LogError(f"column {name} contains values that are not numbers ({reason}); mend or delete it") from error


def _totals(series: Series) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the last step of the training that each row states, NaN where none is, and a note where two contradict."""
    stated = {name: np.where(values > 0, values, np.nan) for name, values in series.others_called(LAST_STEP).items()}
    unknown = np.full(len(series.steps), np.nan)
    highest, lowest = (extreme.reduce([unknown, *stated.values()]) for extreme in (np.fmax, np.fmin))
    if not np.any(highest > lowest):
        return highest, ()
    return unknown, (f"the last step is not read, since {' and '.join(stated)} contradict each other",)


def _in_nats(series: Series, *, is_named: bool) -> Series:
    """Return the losses in nats; raise LogError where a perplexity of the same rows contradicts their unit, or the loss.

    is_named: whether the user named the loss, and so answered.
    """
    ratios = [*_perplexity_ratios(series)]
    if series.rows.are_in_bits:
        return _from_bits(series, [ratio for *_, ratio in ratios], is_named=is_named)
    if is_named:
        return series
    for column, quantity, ratio in ratios:
        if abs(ratio - np.log(2)) <= MAX_BASE_MISMATCH:
            name = series.names[quantity]
            raise LogError(f"{column} is 2^{name}: {_IN_BITS.format(name)}")
    agreed = {column for column, _, ratio in ratios if abs(ratio - 1) <= MAX_PERPLEXITY_MISMATCH}
    for column, quantity, _ in ratios:
        if column not in agreed:
            _refuse_contradiction(series, column, quantity)
    return series


def _from_bits(series: Series, ratios: Collection[float], *, is_named: bool) -> Series:
    """Return losses of a program that logs them to base 2, unless its perplexities are those of nats."""
    program = series.rows.program
    if any(abs(ratio - 1) <= MAX_BASE_MISMATCH for ratio in ratios) or (is_named and not ratios):
        return series
    losses = [quantity for quantity in ("loss", "validation_loss") if quantity in series.values]
    if not ratios:
        loss = series.names[losses[0]]
        raise LogError(f"{program} logs losses in bits, and no perplexity confirms it: {_IN_BITS.format(loss)}")
    nats = {quantity: series.values[quantity] * np.log(2) for quantity in losses}
    return series.changed(nats, f"losses of {program} are in bits: they were multiplied by ln 2")


def _refuse_contradiction(series: Series, perplexity: str, quantity: str) -> None:
    """Raise LogError for a loss whose exponential is not the perplexity beside it; name the column that is."""
    values, loss = series.of(quantity), series.names[quantity]
    wanted = np.log(numbers_or_nan(series.others[perplexity]))
    ratios = {name: np.nanmedian(wanted / numbers_or_nan(cells)) for name, cells in series.others.items()}
    agreeing = [name for name, ratio in ratios.items() if abs(ratio - 1) <= MAX_PERPLEXITY_MISMATCH]
    remedy = f"If {loss} is only the cross-entropy, say so with --loss-column {loss} (loss_column)"
    if agreeing:
        remedy = f"{listed(agreeing, 4)} agrees with it: --loss-column {agreeing[0]} (loss_column)"
    row = int(np.flatnonzero(np.isfinite(values) & np.isfinite(wanted))[-1])
    raise LogError(
        f"{perplexity} {np.exp(wanted[row]):.4g} contradicts {loss} {values[row]:.4g} at {series.place(row)} (exp "
        f"gives {np.exp(min(values[row], 700)):.4g}): which is in nats? {remedy}"
    )


def _perplexity_ratios(series: Series) -> Iterator[tuple[str, str, float]]:
    """Yield a column of perplexities, the quantity of its split, and the median of log(perplexity) / loss."""
    for column in (column for column in series.others if PERPLEXITY.search(column.lower())):
        perplexity = numbers_or_nan(series.others[column])
        is_of_validation = bool(set(re.split(r"[\W_]+", column.lower())) & VALIDATION)
        for quantity in ("validation_loss",) if is_of_validation else ("loss", "validation_loss"):
            losses = series.of(quantity)
            usable = np.isfinite(losses) & np.isfinite(perplexity) & (perplexity > 1) & (losses > 0)
            if usable.sum() > 1 and np.ptp(perplexity[usable]) > 0:  # one that never changes measures nothing
                yield column, quantity, float(np.median(np.log(perplexity[usable]) / losses[usable]))
