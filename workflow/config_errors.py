"""What is wrong with a key of the configuration, in one line: where it is, what is there, what would be right."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError


def explain(error: ValidationError) -> Iterator[str]:
    """One line for a mistake: where it is, what is there, what would be right."""
    where = join(*error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for key in sorted(set(map(str, error.instance)) - set(known)):
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
            yield f"config key {join(*error.absolute_path, key)} is unknown; {hint}"
        return
    if error.validator == "required":
        for key in sorted(set(error.validator_value) - set(error.instance)):
            what = allowed(error.schema["properties"][key])
            yield f"config key {join(*error.absolute_path, key)} is missing; it must be {what}"
        return
    is_name = "propertyNames" in error.absolute_schema_path
    if is_name or error.validator == "pattern":
        name = f": the name {error.instance!r} is" if is_name else f" holds {shown(error.instance)}, which is"
        yield (
            f"config key {where}{name} not safe in a path; "
            "use up to 64 letters, digits, dots, underscores and hyphens, starting with a letter or digit"
        )
        return
    hint = ""
    if error.validator == "enum" and isinstance(error.instance, str):
        near = difflib.get_close_matches(error.instance, error.validator_value, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
    yield f"config key {where or '(top)'} holds {shown(error.instance)}, but must be {allowed(error.schema)}{hint}"


def join(*parts: Any) -> str:
    """A dotted path; a name that would not print as it is, is shown escaped."""
    names = [str(part) for part in parts if part != ""]
    return ".".join(
        name if re.fullmatch(r"[\w.{}-]+", name, re.ASCII) else json.dumps(name) for name in names
    )


def shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ):  # it holds itself, has keys of other kinds, or too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def allowed(schema: Mapping[str, Any]) -> str:
    """What a key may hold, in words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "")
    if isinstance(kinds, list):
        return " or ".join("null" if kind == "null" else allowed({**schema, "type": kind}) for kind in kinds)
    name = {
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
        "string": "a text",
        "array": "a list",
        "object": "a section of keys",
    }.get(kinds, "something else")
    bounds = [
        f"{words} {schema[key]}"
        for key, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "less than"),
            ("minItems", "of length at least"),
            ("minLength", "of length at least"),
            ("minProperties", "of length at least"),
        )
        # Of a number or a list, each has bounds of its own.
        if key in schema and (kinds == "array") == (key == "minItems")
    ]
    if schema.get("uniqueItems") and kinds == "array":
        bounds.append("without repeats")
    return " ".join([name, ", ".join(bounds)]).strip()
