"""Format and parse large numbers: 25M, 1.4B."""

import re

UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3}


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
