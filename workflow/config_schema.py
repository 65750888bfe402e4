"""The schema of the configuration, its types, and one line for each mistake.

`snakemake.utils.validate` would stop at the first mistake and print the schema with it: 1,600 lines for a key of a model.
"""

import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

Schema = Mapping[str, Any]


@cache
def schema() -> dict[str, Any]:
    """Return the schema, read once."""
    return yaml.safe_load((Path(__file__).parent / "schemas/config.schema.yaml").read_text(encoding="utf-8"))


def of_its_kind(part: Schema, value: Any) -> Schema:
    """Return the schema of a value; of an entry of `models:`, which has one for each kind (`oneOf`), that of its kind."""
    if "oneOf" not in part:
        return part
    kinds = {entry["properties"]["kind"]["const"]: entry for entry in part["oneOf"]}
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return kinds.get("gpt" if kind is None else str(kind), {"properties": {"kind": {"enum": list(kinds)}}})


def of_key(part: Schema, key: str) -> Schema:
    """Return the schema of a key in a section; empty for a key that is not known there."""
    return part.get("properties", {}).get(key) or part.get("additionalProperties") or {}


def _is_number(_: Any, value: Any) -> bool:
    """Return whether a value is a finite number: YAML has NaN and infinity, and NaN is within every bound."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


# No path may contain a NUL character or half of a surrogate pair.
TYPES = Draft202012Validator.TYPE_CHECKER.redefine_many(
    {
        "number": _is_number,
        "integer": lambda _, value: _is_number(_, value) and value == int(value),
        "string": lambda _, value: isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value),
    }
)
# The errors of an entry of `models:` are those of its own kind, not those of all kinds.
_ONE_OF = {"oneOf": lambda validator, _, value, part: validator.descend(value, of_its_kind(part, value))}
Validator = extend(Draft202012Validator, _ONE_OF, type_checker=TYPES)


def explain(error: ValidationError) -> Iterator[str]:
    """Yield a line for a mistake: where it is, what is there, what is allowed."""
    path, part, value = error.absolute_path, error.schema, error.instance
    kind = part.get("properties", {}).get("kind", {}).get("const")
    if "message" in part:  # of a condition on other keys
        yield f"config key {join(*path)} {part['message']}"
    elif error.validator == "additionalProperties":
        names = list(part["properties"])
        for key in sorted(set(map(str, value)) - set(names)):
            if instead := part.get("removed", {}).get(key):
                yield f"config key {join(*path, key)} was removed: {instead}"
                continue
            problem = f"has no meaning for kind {kind}" if kind else "is unknown"
            hint = did_you_mean(key, names) or f"; known here: {', '.join(names)}"
            yield f"config key {join(*path, key)} {problem}{hint}"
    elif error.validator == "required":
        for key in sorted(set(part["required"]) - set(value)):
            problem = f"for kind {kind} it" if kind else "it"
            yield f"config key {join(*path, key)} is missing; {problem} must be {allowed(part['properties'][key])}"
    elif "propertyNames" in error.absolute_schema_path:
        yield f"config key {join(*path)}: the name {shown(value)} must be {allowed(part)}"
    else:
        hint = did_you_mean(value, part["enum"]) if error.validator == "enum" else ""
        yield f"config key {join(*path) or '(top)'} holds {shown(value)}, but must be {allowed(part)}{hint}"


def did_you_mean(word: Any, names: Iterable[str]) -> str:
    """Return the end of a line: the name that is nearest to a word that is none of them, or nothing."""
    near = difflib.get_close_matches(word, names, n=1) if isinstance(word, str) else []
    return f"; did you mean {near[0]}?" if near and near[0] != word else ""


def join(*parts: Any) -> str:
    """Return a dotted path; a name that would not print as it is, is shown escaped."""
    names = [str(part) for part in parts if part != ""]
    return ".".join(name if re.fullmatch(r"[\w.{}-]+", name, re.ASCII) else json.dumps(name) for name in names)


def shown(value: Any, most: int = 80) -> str:
    """Return a value as text of at most so many characters."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"  # it holds itself, has keys of other kinds, or too many digits
    return text if len(text) <= most else text[: most - 3] + "..."


_NAMES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "a section of keys",
    "null": "null",
}
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    **dict.fromkeys(("minItems", "minLength", "minProperties"), "of length at least"),
}


def allowed(part: Mapping[str, Any]) -> str:
    """Return the allowed values of a key in words."""
    if "allowed" in part:
        return part["allowed"]
    if "enum" in part:
        return "one of " + ", ".join(map(str, part["enum"]))
    kinds = part.get("type", "object")
    if isinstance(kinds, list):
        return " or ".join(allowed({**part, "type": kind}) for kind in kinds)
    # A key that may be a number or a list has the bounds of both; of each kind only its own are named.
    of_kind = {"array": ["minItems"], "null": []}.get(kinds, set(_BOUNDS) - {"minItems"})
    bounds = [f"{words} {part[key]:,}" for key, words in _BOUNDS.items() if key in part and key in of_kind]
    bounds += ["without repeats"] if part.get("uniqueItems") and kinds == "array" else []
    return " ".join([_NAMES[kinds], ", ".join(bounds)]).strip()
