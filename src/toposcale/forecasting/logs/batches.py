"""Tokens per step and changes of the batch, as columns of a log state them."""

from collections.abc import Iterator, Mapping

import numpy as np

from toposcale.forecasting.logs.names import CONSUMED, IN_SEQUENCES, plain_name

LARGEST_BATCH_CHANGE = 1.05
"""Largest ratio of the tokens of a step late and early in a training whose batch is constant."""


def changed_batch(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return a reason for low confidence where the log shows that its batch size changes.

    steps: (rows,); columns: those of `OF_THE_BATCH` that are logged, (rows,) each.
    """
    for name, (early, late) in _batches(steps, columns):
        if not _is_constant(early, late):
            change = f"according to {name}, the batch size changed from {early:.3g} to {late:.3g}"
            return (f"{change}; the law assumes that it is constant",)
    return ()


def tokens_per_step(steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> int | None:
    """Return the tokens of a step that a column of tokens states; None without one, or if they change.

    steps, columns: as in `changed_batch`. Fractions are of another unit, such as billions of tokens.
    """
    counted = {
        name: values
        for name, values in columns.items()
        if plain_name(name) not in IN_SEQUENCES and not np.any(values[np.isfinite(values)] % 1)
    }
    for _, (early, late) in _batches(steps, counted):
        if _is_constant(early, late):
            return round((early + late) / 2)
    return None


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
