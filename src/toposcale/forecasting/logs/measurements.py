"""Measurements in the rows of a log: what is none, the end of a run that failed, units, and tokens per step."""

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from toposcale.forecasting.logs.grammars import GRAMMARS
from toposcale.forecasting.logs.names import (
    CONSUMED,
    IN_SEQUENCES,
    PERPLEXITY,
    TRAINING,
    VALIDATION,
    loss_name,
    plain_name,
)
from toposcale.forecasting.logs.rows import Log, LogError, known_cells, numbers_or_nan
from toposcale.io.errors import counted

_IN_BITS = "if the losses are in bits, multiply them by 0.6931; if in nats, say so with --loss-column {} (loss_column)"

LARGEST_DISAGREEMENT = 0.03
"""Largest relative difference of a loss and the logarithm of its perplexity, which may be means over other rows."""

MOST_LOST = 1 / 20
"""Largest share of the losses whose step may be missing."""

LARGEST_BATCH_CHANGE = 1.05
"""Largest ratio of the tokens of a step late and early in a training whose batch is constant."""


def drop_unmeasured(log: Log) -> None:
    """Drop rows without a step, and validation losses that are none, also where the user names one as the loss."""
    missing = np.isnan(log.steps)
    if missing.any():
        has_loss = ~(np.isnan(log.values("loss")) & np.isnan(log.values("validation_loss")))
        if lost := int(np.sum(missing & has_loss)):
            if lost > MOST_LOST * has_loss.sum():
                raise LogError(
                    f"{log.names['step']} is missing in {counted(lost, 'row')} with a loss; give each its step, such as "
                    "epoch x steps of an epoch"
                )
            log.notes.append(f"left out: {counted(lost, 'row')} with a loss and no step")
        log.keep(np.flatnonzero(~missing))
    for quantity in ("loss", "validation_loss"):
        loss = loss_name(log.names[quantity]) if quantity in log.series and quantity in log.names else None
        if loss and loss.split is not TRAINING:
            _drop_unmeasured_evaluations(log, quantity)


def _drop_unmeasured_evaluations(log: Log, quantity: str) -> None:
    """Drop validation losses that are none: 0, -1, NaN between evaluations, and repetitions."""
    values, name = log.series[quantity].copy(), log.names[quantity]
    is_zero = (values == 0) | (values == -1)
    if is_zero.any():
        log.notes.append(f"{name} is 0 or -1 in {counted(int(is_zero.sum()), 'row')}, where nothing was measured")
        values[is_zero] = np.nan
    if between := _between_evaluations(values):
        place = f"{counted(len(between), 'row')} between evaluations"
        log.notes.append(f"{name} is NaN in {place}, where nothing was measured")
        values[between] = np.nan
    repeated = _carried_forward(values, ~np.isnan(log.values("loss")))
    if len(repeated):
        log.notes.append(f"{name} repeats the value of the row before in {len(repeated):,} rows: they were left out")
        values[repeated] = np.nan
    log.series[quantity] = values


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


def mark_failure(log: Log) -> None:
    """Make empty training losses at the end infinite: pandas writes NaN as an empty cell.

    Rows of other kinds (evaluations, summaries) are recognised by values in columns that rows of a loss leave empty.
    """
    logged = np.flatnonzero(~np.isnan(log.values("loss")))
    if len(logged) < 2 or not len(after := np.arange(logged[-1] + 1, len(log.steps))):
        return
    is_empty = np.all([np.isnan(values[after]) for name, values in log.series.items() if name != "step"], axis=0)
    for known in map(known_cells, log.columns.values()):
        if is_empty.any() and known[logged].mean() < 0.5:
            is_empty &= ~known[after]
    if is_empty.sum() >= np.diff(logged).max():
        log.series["loss"] = log.series["loss"].copy()
        log.series["loss"][after[is_empty]] = np.inf


def convert_bits(log: Log, *, is_named: bool) -> None:
    """Convert the losses of a program in bits to nats; raise LogError where a perplexity does not tell their unit.

    is_named: whether the user named the loss, and so answered the question.
    """
    ratios = [*_perplexity_ratios(log)]
    if log.program in GRAMMARS and GRAMMARS[log.program].in_bits:
        if any(abs(ratio - 1) <= 0.02 for *_, ratio in ratios):
            return
        if ratios:
            log.series |= {key: log.series[key] * np.log(2) for key in {"loss", "validation_loss"} & log.series.keys()}
            log.notes.append(f"losses of {log.program} are in bits: they were multiplied by ln 2")
        elif not is_named:
            loss = log.names.get("loss") or log.names["validation_loss"]
            raise LogError(f"{log.program} logs losses in bits, and no perplexity confirms it: {_IN_BITS.format(loss)}")
    elif not is_named:
        for column, quantity, ratio in ratios:
            if abs(ratio - np.log(2)) <= 0.02:
                raise LogError(f"{column} is 2^{log.names[quantity]}: {_IN_BITS.format(log.names[quantity])}")
        agreed = {column for column, _, ratio in ratios if abs(ratio - 1) <= LARGEST_DISAGREEMENT}
        for column, quantity, _ in (found for found in ratios if found[0] not in agreed):
            _take_loss_of(log, column, quantity)


def _take_loss_of(log: Log, perplexity: str, quantity: str) -> None:
    """Take the one other column that is the logarithm of a perplexity as the loss; raise LogError without one."""
    wanted, values = np.log(numbers_or_nan(log.columns[perplexity])), log.values(quantity)
    others = {name: numbers for name in log.columns if len(numbers := numbers_or_nan(log.columns[name])) == len(values)}
    others = {name: numbers for name, numbers in others.items() if _agree(numbers, wanted)}
    loss = log.names[quantity]
    if len(others) != 1:
        row = int(np.flatnonzero(np.isfinite(values) & np.isfinite(wanted))[-1])
        raise LogError(
            f"{perplexity} {np.exp(wanted[row]):.4g} contradicts {loss} {values[row]:.4g} at {log.place(row)} (exp gives "
            f"{np.exp(min(values[row], 700)):.4g}): which is in nats? If {loss} is the cross-entropy alone, say so "
            f"with --loss-column {loss} (loss_column)"
        )
    log.names[quantity], log.series[quantity] = next(iter(others.items()))
    log.notes.append(
        f"{log.names[quantity]} is read, whose exponential is {perplexity}; {loss} contradicts it: left out"
    )


def of_a_perplexity(columns: Mapping[str, np.ndarray], names: Iterable[str]) -> list[str]:
    """Return the columns of these names whose exponential is a perplexity in another column."""
    perplexities = (numbers_or_nan(columns[name]) for name in columns if PERPLEXITY.search(name.lower()))
    wanted = [np.log(np.where(values > 1, values, np.nan)) for values in perplexities]
    return [name for name in names if any(_agree(numbers_or_nan(columns[name]), values) for values in wanted)]


def _agree(values: np.ndarray, log_perplexity: np.ndarray) -> bool:
    known = np.isfinite(values) & np.isfinite(log_perplexity) & (values > 0)
    ratio = np.median(log_perplexity[known] / values[known]) if known.sum() > 1 else np.nan
    return bool(abs(ratio - 1) <= LARGEST_DISAGREEMENT)


def _perplexity_ratios(log: Log) -> Iterator[tuple[str, str, float]]:
    """Yield a column of perplexities, the quantity of its split, and the median of log(perplexity) / loss."""
    for column in (column for column in log.columns if PERPLEXITY.search(column.lower())):
        perplexity = numbers_or_nan(log.columns[column])
        is_of_validation = bool(set(re.split(r"[\W_]+", column.lower())) & VALIDATION)
        for name in ("validation_loss",) if is_of_validation else ("loss", "validation_loss"):
            losses = log.values(name)
            usable = np.isfinite(losses) & np.isfinite(perplexity) & (perplexity > 1) & (losses > 0)
            if usable.sum() > 1 and np.ptp(perplexity[usable]) > 0:  # one that never changes measures nothing
                yield column, name, float(np.median(np.log(perplexity[usable]) / losses[usable]))


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
    return max(early / late, late / early) <= LARGEST_BATCH_CHANGE
