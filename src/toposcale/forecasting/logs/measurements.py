"""Measurements in the rows of a log: what is none, the end of a run that failed, and tokens per step."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from toposcale.forecasting.logs.names import ACCURACY, CONSUMED, IN_SEQUENCES, TRAINING, loss_name, plain_name
from toposcale.forecasting.logs.rows import LogError, Series, known_cells
from toposcale.io.errors import counted

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


def measured(series: Series) -> Series:
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
"""What rows without a validation loss hold in its place, and where they do, (rows,)."""


def _with_failure(series: Series) -> Series:
    """Return the series with empty training losses at the end infinite: pandas writes NaN as an empty cell.

    Rows of evaluations and summaries are recognised by values in columns that rows of a loss leave empty.
    """
    losses = series.of("loss")
    logged = np.flatnonzero(~np.isnan(losses))
    if len(logged) < 2:
        return series
    is_empty = np.arange(len(losses)) > logged[-1]
    for name, values in {**series.values, **series.others}.items():
        known = known_cells(values)
        if name not in ("step", "loss") and known[logged].mean() < 0.5:
            is_empty &= ~known
    if not is_empty.any() or is_empty.sum() < np.diff(logged).max():
        return series
    return series.changed({"loss": np.where(is_empty, np.inf, losses)})


def looks_like_classification(names: Iterable[str], losses: np.ndarray) -> bool:
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
