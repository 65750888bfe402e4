"""Format, parse and check large numbers: 25M, 1.4B."""

import math
import re
from typing import Any

from toposcale.io.errors import UserError, one_line

UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3}

LEAST_PARAMETERS, MOST_PARAMETERS = 1000, 1e15
"""Bounds on the parameters of a language model."""


def amount(number: float) -> str:
    """Return a number as text in the largest unit that fits: 100M, 1.4B."""
    for letter, unit in UNITS.items():
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"


def number_of(text: str) -> float:
    """Return the number that a text stands for (25e6, 25M, 0.5B, 25,000,000); raise ValueError for other texts."""
    text = text.strip()
    unit = UNITS.get(text[-1:].upper(), 1.0)
    digits = text[:-1] if unit != 1 else text
    if "," in digits and not re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", digits):
        raise ValueError(f"{text!r} is not a number")
    return float(digits.replace(",", "")) * unit


def number(value: Any, what: str, least: float | None, most: float = math.inf, hint: str = "") -> float | None:
    """Return a finite number from `least` (None: above 0) to `most`, or None; raise UserError if it is not one."""
    if value is None:
        return None
    try:
        parsed = number_of(str(value)) if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{what}: {one_line(repr(value)):.60} is not a number, for example 25e6") from None
    high_enough = parsed > 0 if least is None else parsed >= least
    if not (high_enough and math.isfinite(parsed) and parsed <= most):
        limits = "above 0" if least is None else f"at least {least:g}"
        limits += f" and at most {most:g}" if math.isfinite(most) else ""
        raise UserError(f"{what}: {parsed:g}, but it must be {limits}{hint}")
    return parsed


def parameters(value: Any, what: str) -> float | None:
    """Return a number of parameters, or None; raise UserError if it is outside the range of language models."""
    n_parameters = number(value, what, 1, MOST_PARAMETERS)
    if n_parameters is not None and n_parameters < LEAST_PARAMETERS:
        raise UserError(f"{what}: {n_parameters:g} parameters make no language model; write 25e6 or 25M for 25 million")
    return n_parameters
