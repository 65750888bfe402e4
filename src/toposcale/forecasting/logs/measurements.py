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
    is_zero = (values == 0) | (values == -1)
    if is_zero.any():
        notes.append(f"{name} is 0 or -1 in {counted(int(is_zero.sum()), 'row')}, where nothing was measured")
        values[is_zero] = np.nan
    if between := _between_evaluations(values):
        place = f"{counted(len(between), 'row')} between evaluations"
        notes.append(f"{name} is NaN in {place}, where nothing was measured")
        values[between] = np.nan
    repeated = _carried_forward(values, ~np.isnan(series.of("loss")))
    if len(repeated):
        notes.append(f"{name} repeats the value of the row before in {len(repeated):,} rows: they were left out")
        values[repeated] = np.nan
    return series.changed({quantity: values}, *notes)


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


def _with_failure(series: Series) -> Series:
    """Return the series with empty training losses at the end infinite: pandas writes NaN as an empty cell.

    Rows of other kinds (evaluations, summaries) are recognised by values in columns that rows of a loss leave empty.
    """
    losses = series.of("loss")
    logged = np.flatnonzero(~np.isnan(losses))
    if len(logged) < 2 or not len(after := np.arange(logged[-1] + 1, len(losses))):
        return series
    is_empty = np.all([np.isnan(values[after]) for name, values in series.values.items() if name != "step"], axis=0)
    for known in map(known_cells, series.others.values()):
        if is_empty.any() and known[logged].mean() < 0.5:
            is_empty &= ~known[after]
    if is_empty.sum() < np.diff(logged).max():
        return series
    losses = losses.copy()
    losses[after[is_empty]] = np.inf
    return series.changed({"loss": losses})


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
