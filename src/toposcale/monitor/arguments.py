"""Checks of what a monitor is given."""

import torch


def whole_number(argument: str, count: float, least: int = 1) -> int:
    """Return a count as an integer; raise ValueError if it is not one, or less than `least`."""
    try:
        is_whole = int(count) == count >= least
    except (TypeError, ValueError, OverflowError):  # not a number, NaN, infinity
        is_whole = False
    if not is_whole:
        raise ValueError(f"{argument} must be a whole number of at least {least}, got {count!r}")
    return int(count)


def is_first_process() -> bool:
    """Return whether this process is the first of those that train one model."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0)
