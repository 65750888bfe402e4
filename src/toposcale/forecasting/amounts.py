"""Format, parse and check what users state: large numbers (25M, 1.4B), whole numbers, names."""

import math
import re
from collections.abc import Sequence
from typing import Any

from toposcale.io.errors import UserError, did_you_mean, one_line

UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3}

MIN_PARAMETERS = 1000
"""Least number of parameters of a language model."""

MAX_PARAMETERS = 1e15
"""Largest number of parameters."""


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


def number(
    value: Any, what: str, least: float | None, most: float = math.inf, hint: str = "", example: str = "25e6"
) -> float | None:
    """Return a finite number from `least` (None: above 0) to `most`, or None; raise UserError if it is not one."""
    if value is None:
        return None
    try:
        parsed = number_of(str(value)) if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{what}: {one_line(repr(value)):.60} is not a number, for example {example}") from None
    high_enough = parsed > 0 if least is None else parsed >= least
    if not (high_enough and math.isfinite(parsed) and parsed <= most):
        limits = "above 0" if least is None else f"at least {least:g}"
        limits += f" and at most {most:g}" if math.isfinite(most) else ""
        raise UserError(f"{what}: {parsed:g}, but it must be {limits}{hint}")
    return parsed


def parameters(value: Any, what: str) -> float | None:
    """Return a number of parameters, or None; raise UserError if it is outside the range of language models."""
    n_parameters = number(value, what, 1, MAX_PARAMETERS)
    if n_parameters is not None and n_parameters < MIN_PARAMETERS:
        raise UserError(f"{what}: {n_parameters:g} parameters make no language model; write 25e6 or 25M for 25 million")
    return n_parameters


def whole_number(value: Any, what: str, least: int, most: float, example: str = "2000") -> int | None:
    """Return a whole number, or None; raise UserError if it is not one."""
    parsed = number(value, what, least, most, example=example)
    if parsed is not None and parsed % 1:
        raise UserError(f"{what}: {parsed:g}, but it must be a whole number")
    return None if parsed is None else int(parsed)


def text_of(value: Any, what: str, example: str, noun: str = "a name") -> str | None:
    """Return a text, or None; raise UserError if it is not one."""
    if not isinstance(value, str | None):
        raise UserError(f'{what}: {noun} such as "{example}", but it is {value!r:.60}')
    return value


def one_of(value: Any, what: str, names: Sequence[str]) -> str | None:
    """Return one of the names, whatever its case and hyphens; "" and None are unknown. Raise UserError for another one."""
    text = text_of(value, what, names[0])
    if not text:
        return text
    by_letters = {_letters(name): name for name in names}
    if _letters(text) not in by_letters:
        raise UserError(f"{what}: {text!r}, but it is one of {', '.join(names)}{did_you_mean(text.lower(), names)}")
    return by_letters[_letters(text)]


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
