"""Numbers that a training loop saved in its checkpoints with the weights: step, epoch, losses, learning rate."""

from collections.abc import Iterator, Mapping
from typing import Any

from toposcale.forecasting.logs.names import COUNTERS, RATES, TRAINING, VALIDATION, loss_name, plain_name

STEP = "step"
EPOCH = "epoch"
LEARNING_RATE = "learning_rate"
PEAK_RATE = "peak_learning_rate"
LOSSES = {"training_loss": TRAINING, "validation_loss": VALIDATION}
"""Metrics of the losses, and their splits."""


def saved_numbers(content: Any) -> dict[str, float]:
    """Return the numbers in the content of a checkpoint by the names above, those that it holds; of a list the last one."""
    if not isinstance(content, dict):
        return {}
    numbers: dict[str, float] = {}
    named = [(quantity, _number(value)) for key, value in _pairs(content) if (quantity := _quantity(str(key)))]
    for quantity, number in named:
        if number is not None:
            numbers.setdefault(quantity, number)
    return numbers


def _quantity(key: str) -> str:
    """Return the quantity of a key, "" for another."""
    if key == PEAK_RATE:
        return key
    plain = plain_name(key)
    if plain == EPOCH or plain in RATES or plain in COUNTERS:
        return EPOCH if plain == EPOCH else LEARNING_RATE if plain in RATES else STEP
    loss = loss_name(plain.removesuffix("es") if plain.endswith("losses") else plain)
    splits = [metric for metric, split in LOSSES.items() if loss and not loss.is_part and loss.split is split]
    return next(iter(splits), "")


def _pairs(content: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a checkpoint, then those of its history, schedule and optimiser, and Lightning's metric."""
    yield from content.items()
    for key, value in content.items():
        match key, value:
            case (("history" | "metrics" | "log"), dict()):
                yield from value.items()
            case "history", [*_, dict() as last]:
                yield from last.items()
            case _, {"_last_lr": rates, **schedule} | [{"_last_lr": rates, **schedule}, *_]:
                yield LEARNING_RATE, rates
                if "lr_lambdas" in schedule:  # factors of the peak, other schedules begin anywhere
                    yield PEAK_RATE, schedule.get("base_lrs")
            case _, {"param_groups": [{"lr": rate}, *_]} | [{"param_groups": [{"lr": rate}, *_]}, *_]:
                yield LEARNING_RATE, rate
            case "callbacks", dict():
                yield from (
                    (state["monitor"], state["current_score"])
                    for state in value.values()
                    if isinstance(state, dict) and state.get("monitor") and "current_score" in state
                )


def _number(value: Any) -> float | None:
    """Return a number, also of a tensor or an array, or the last of a list; None for anything else."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    while isinstance(value, list) and value:
        value = value[-1]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
