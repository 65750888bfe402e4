"""Numbers that a training loop saved in its checkpoints, beside the weights: step, epoch, losses, learning rate."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toposcale.forecasting.logs.columns import NAMES, plain_name
from toposcale.io.bin_files import load_content

STEP, EPOCH, LEARNING_RATE = "step", "epoch", "learning_rate"
LOSSES = {"training_loss": "loss", "validation_loss": "validation_loss"}
"""Metrics of the losses, and their names in `NAMES`."""
_ALIASES = {
    **{metric: (*NAMES[name], *(f"{alias}es" for alias in NAMES[name])) for metric, name in LOSSES.items()},
    **{STEP: NAMES[STEP], EPOCH: (EPOCH,), LEARNING_RATE: NAMES[LEARNING_RATE]},
}


def saved_numbers(checkpoint: Path) -> dict[str, float]:
    """Return the numbers in a checkpoint of PyTorch by the names above, those that it holds; of a list the last one."""
    if not checkpoint.is_file() or checkpoint.suffix == ".safetensors":
        return {}
    content = load_content(checkpoint)
    if not isinstance(content, dict):
        return {}
    found: dict[str, float] = {}
    named = [(plain_name(str(key)), value) for key, value in _pairs(content)]
    for quantity, aliases in _ALIASES.items():
        numbers = [_number(value) for alias in aliases for key, value in named if key == alias]
        if known := [number for number in numbers if number is not None]:
            found[quantity] = known[0]
    return found


def _pairs(content: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a checkpoint, then those of its history, its optimiser and Lightning's monitored metric."""
    yield from content.items()
    for key, value in content.items():
        match key, value:
            case (("history" | "metrics" | "log"), dict()):
                yield from value.items()
            case "history", [*_, dict() as last]:
                yield from last.items()
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
