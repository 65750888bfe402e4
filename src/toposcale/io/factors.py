"""Names of the factors of a low-rank adapter (LoRA)."""

import re

_FACTOR = re.compile(r"(.+[._])?lora[._]?(?P<factor>A|B|down|up)(\.\w+)?\.weight")
_SECOND = {"A": "B", "down": "up"}
PRODUCT = "lora_BA"
"""Last part of the name of a product."""


def second_factor(first: str) -> str | None:
    """Return the name of the factor that completes a first one; None for any other matrix."""
    match = _FACTOR.fullmatch(first)
    if match is None or match["factor"] not in _SECOND:
        return None
    start, end = match.span("factor")
    return first[:start] + _SECOND[match["factor"]] + first[end:]


def product_of(first: str) -> str:
    """Return the name of the product of a first factor and its second one."""
    start = _FACTOR.fullmatch(first).start("factor")  # type: ignore[union-attr]
    return re.sub(r"lora[._]?$", PRODUCT, first[:start])
