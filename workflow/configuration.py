"""The configuration: completed with the defaults of the schema, checked, and explained in config/README.md."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from config_files import read, rebased
from config_schema import TYPES, Schema, Validator, allowed, explain, join, of_its_kind, of_key, schema
from contradictions import contradictions
from environment import mistakes_in_a_line
from toposcale.io.errors import UserError


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that a run uses: texts of `--config` read, defaults filled in, everything checked.

    Raises `UserError`; its text has one line for every key that is wrong.
    """
    try:
        completed = _complete(schema(), dict(config))
        errors = list(Validator(schema()).iter_errors(completed))
        # A key that is unknown may be why another one is missing, so the last line is about it.
        errors.sort(key=lambda e: (e.validator == "additionalProperties", [*map(str, e.absolute_path)]))
        lines = [line for error in errors for line in explain(error)] or list(contradictions(completed))
    except (RecursionError, ValueError):
        raise UserError(
            "config key (top) is nested too deeply, holds itself, or holds a number of thousands of digits"
        ) from None
    if lines:
        raise UserError("\n".join(dict.fromkeys(lines)))
    return completed


def _complete(part: Schema, value: Any) -> Any:
    """Return a value with texts turned into what the schema asks for, and absent keys filled with their defaults."""
    part = of_its_kind(part, value)
    types = part.get("type", [])
    types = [types] if isinstance(types, str) else types
    if isinstance(value, str):
        value = _read_text(value, types)
    if isinstance(value, float) and "integer" in types and value.is_integer():
        return int(value)
    if isinstance(value, list) and "array" in types:
        return [_complete(part["items"], item) for item in value]
    if not isinstance(value, Mapping) or "object" not in types:
        return value
    # YAML reads a name such as 70 as a number. A section with nothing under it (`training:`) means its defaults.
    section = {str(key): item for key, item in value.items()}
    for key, inner in part.get("properties", {}).items():
        if "default" in inner and section.get(key) is None:
            section[key] = inner["default"]
    return {key: _complete(of_key(part, key), item) for key, item in section.items()}


def _read_text(text: str, types: Sequence[str]) -> Any:
    """Return the value of a text from `--config` whose key holds no text; the text itself where it has none."""
    if "string" in types:
        return None if text == "null" and "null" in types else text
    try:
        value = yaml.safe_load(text)
        # YAML 1.1 takes 25e6 and 3e-4 for texts.
        value = float(value) if isinstance(value, str) else value
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return value if any(TYPES.is_type(value, kind) for kind in types) else text


def keys_of(part: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Yield every key of a section, required ones first: its dotted path, its schema, and whether it is required."""
    for entry in part.get("oneOf", [part]):
        needed = entry.get("required", [])
        for key, inner in sorted(entry.get("properties", {}).items(), key=lambda item: item[0] not in needed):
            yield join(path, key), inner, key in needed
            yield from keys_of(inner, join(path, key))
    if isinstance(part.get("additionalProperties"), Mapping):
        yield from keys_of(part["additionalProperties"], join(path, "{name}"))


def reference() -> str:
    """Return config/README.md: the keys of each section and kind of model, with meaning, values and default."""
    sections = schema()["properties"]
    alone = {key: part for key, part in sections.items() if part["type"] != "object"}
    lines = [
        "# Configuration",
        "",
        "Written by `make reference` from `workflow/schemas/config.schema.yaml`; change the schema, not this page.",
        "",
        "Any key can be given in a file (`snakemake --configfile FILE`, which takes the place of `config/config.yaml`)",
        "or on the command line (`snakemake --config 'training={steps: 100}'`), which goes on top of the file.",
        "A path in a file is relative to the folder of that file, a path on the command line to the working directory.",
        *_group("## The run", "Its name, and its seeds.", {"properties": alone}, ""),
    ]
    for name, part in sections.items():
        if name == "models":
            lines += ["", "## models", "", part["description"]]
            for entry in part["additionalProperties"]["oneOf"]:
                kind = entry["properties"]["kind"]["const"]
                lines += _group(f"### kind: {kind}", entry["description"], entry, "models.{name}")
        elif name not in alone:
            lines += _group(f"## {name}", part["description"], part, name)
    schedule = schema()["$defs"]["schedule"]
    lines += _group("## schedule", "In `training.schedule` and `models.{name}.schedule`.", schedule, "schedule")
    return "\n".join(lines) + "\n"


def _group(heading: str, text: str, part: Schema, path: str) -> list[str]:
    """Return the lines of a section of the reference."""
    lines = ["", heading, "", text, "", "| key | meaning | holds | if left out |", "| --- | --- | --- | --- |"]
    for key, inner, needed in keys_of(part, path):
        if "const" in inner or ".schedule." in key:
            continue  # the kind stands in the heading, and the parts of a schedule in a section of their own
        default = f"`{json.dumps(inner['default'])}`" if "default" in inner else "none"
        default = "" if inner["type"] == "object" and "properties" in inner else default
        left_out = "it must be given" if needed else default
        lines.append(f"| `{key}` | {inner['description']} | {allowed(inner)} | {left_out} |")
    return lines


def outputs(path: str) -> str:
    """Return where a run left what people look at, and how many checkpoints are in none of it."""
    from toposcale.io import tables

    run = Path("results", resolve(rebased(read(path), [path]))["run"])
    count = int(tables.read_metadata(run / "tables/warnings.parquet")["left_out"])
    left_out = f" ({count:,} checkpoint{'s' * (count > 1)} left out; its warnings say why)" if count else ""
    pages = f"Explorer: {run}/explorer.html\nFigures:  {run}/figures/\nTables:   {run}/tables/\n"
    return f"{pages}Report:   {run}/report.html{left_out}\n"


if __name__ == "__main__":
    with mistakes_in_a_line():
        match sys.argv[1:]:
            case ["reference"]:
                print(reference(), end="")
            case ["check", file]:
                read(file)
            case ["outputs", file]:
                print(outputs(file), end="")
            case _:
                sys.exit("usage: configuration.py reference | configuration.py (check | outputs) FILE")
