"""The schema of the configuration, and what it means by its types."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

Schema = Mapping[str, Any]


@cache
def schema() -> dict[str, Any]:
    """The schema, read once."""
    return yaml.safe_load((Path(__file__).parent / "schemas/config.schema.yaml").read_text(encoding="utf-8"))


def of_its_kind(part: Schema, value: Any) -> Schema:
    """The schema of a value; for an entry of `models:`, which has a schema for each kind (`oneOf`), the one of its kind."""
    if "oneOf" not in part:
        return part
    kinds = {entry["properties"]["kind"]["const"]: entry for entry in part["oneOf"]}
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return kinds.get("gpt" if kind is None else str(kind), {"properties": {"kind": {"enum": list(kinds)}}})


def of_key(part: Schema, key: str) -> Schema:
    """The schema of a key in a section; empty for a key that is not known there."""
    return part.get("properties", {}).get(key) or part.get("additionalProperties") or {}


def _is_finite_number(_checker: Any, value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False  # an integer that is too large for a float


def _is_integer(checker: Any, value: Any) -> bool:
    return _is_finite_number(checker, value) and value == int(value)


def _is_text(_checker: Any, value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and not re.search("[\ud800-\udfff]", value)


def _of_its_kind(validator: Any, _entries: Any, value: Any, part: Schema) -> Iterator[Any]:
    yield from validator.descend(value, of_its_kind(part, value))


# YAML has NaN and infinity, which JSON does not have, and NaN is within every bound. No path may contain a NUL character or
# half of a surrogate pair.
TYPES = Draft202012Validator.TYPE_CHECKER.redefine_many(
    {"number": _is_finite_number, "integer": _is_integer, "string": _is_text}
)
# The errors of an entry of `models:` are those of its own kind, not those of all kinds.
Validator = extend(Draft202012Validator, {"oneOf": _of_its_kind}, type_checker=TYPES)
