"""The schema of the configuration, and its types."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

SCHEMA_PATH = Path(__file__).parent / "schemas" / "config.schema.yaml"


def _is_finite_number(_checker: Any, value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False  # a whole number beyond the largest float


def _is_text(_checker: Any, value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and not re.search("[\ud800-\udfff]", value)


# JSON has no NaN and no infinity, but YAML has, and no bound of the schema would stop a NaN. A NUL and a lone half of
# a character fit in no path.
Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": _is_finite_number, "string": _is_text}
    ),
)


@cache
def schema() -> dict[str, Any]:
    """The schema, read once."""
    return yaml.safe_load(SCHEMA_PATH.read_text())
