"""Large numbers as people write them: 25M, 1.4B."""

from __future__ import annotations

UNITS = {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3}


def amount(number: float) -> str:
    """The text of a number, in the largest unit that it fills: 100M, 1.4B."""
    for letter, unit in UNITS.items():
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"


def number_of(text: str) -> float:
    """The number that a text stands for: 25e6, 25M, 0.5B. ValueError: none."""
    unit = UNITS.get(text[-1:].upper())
    return float(text[:-1]) * unit if unit else float(text)
