"""What is wrong with a key of the configuration, in one line: where it is, what is there, what would be right."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError


def explain(error: ValidationError) -> Iterator[str]:
    """One line for a mistake: where it is, what is there, what would be right."""
    path, part, value = error.absolute_path, error.schema, error.instance
    kind = part.get("properties", {}).get("kind", {}).get("const")
    if error.validator == "additionalProperties":
        names = list(part["properties"])
        for key in sorted(set(map(str, value)) - set(names)):
            what = f"has no meaning for kind {kind}" if kind else "is unknown"
            hint = did_you_mean(key, names) or f"; known here: {', '.join(names)}"
            yield f"config key {join(*path, key)} {what}{hint}"
    elif error.validator == "required":
        for key in sorted(set(part["required"]) - set(value)):
            what = f"for kind {kind} it" if kind else "it"
            yield f"config key {join(*path, key)} is missing; {what} must be {allowed(part['properties'][key])}"
    elif "propertyNames" in error.absolute_schema_path:
        yield f"config key {join(*path)}: the name {shown(value)} must be {allowed(part)}"
    else:
        hint = did_you_mean(value, part["enum"]) if error.validator == "enum" else ""
        yield f"config key {join(*path) or '(top)'} holds {shown(value)}, but must be {allowed(part)}{hint}"


def did_you_mean(word: Any, names: Iterable[str]) -> str:
    """The end of a line: the name that is nearest to a word that is none of them, or nothing."""
    near = difflib.get_close_matches(word, names, n=1) if isinstance(word, str) else []
    return f"; did you mean {near[0]}?" if near and near[0] != word else ""


def join(*parts: Any) -> str:
    """A dotted path; a name that would not print as it is, is shown escaped."""
    names = [str(part) for part in parts if part != ""]
    return ".".join(name if re.fullmatch(r"[\w.{}-]+", name, re.ASCII) else json.dumps(name) for name in names)


def shown(value: Any, most: int = 80) -> str:
    """A value as text of at most 80 characters, or as many as asked for."""
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
    """What a key may hold, in words."""
    if "allowed" in part:
        return part["allowed"]
    if "enum" in part:
        return "one of " + ", ".join(map(str, part["enum"]))
    kinds = part.get("type", "object")
    if isinstance(kinds, list):
        return " or ".join(allowed({**part, "type": kind}) for kind in kinds)
    # A key that may be a number or a list has the bounds of both; of each kind only its own are told.
    of_kind = {"array": ["minItems"], "null": []}.get(kinds, set(_BOUNDS) - {"minItems"})
    bounds = [f"{words} {part[key]:,}" for key, words in _BOUNDS.items() if key in part and key in of_kind]
    bounds += ["without repeats"] if part.get("uniqueItems") and kinds == "array" else []
    return " ".join([_NAMES[kinds], ", ".join(bounds)]).strip()
