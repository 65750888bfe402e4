"""The configuration: read from files, completed and checked, with a line for every mistake."""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from config import Config
from config_types import CONTRADICTION
from environment import mistakes_in_a_line
from toposcale.io.errors import UserError, did_you_mean
from toposcale.io.files import read_text

Schema = Mapping[str, Any]

SCHEMA = Path(__file__).parent / "schemas/config.schema.json"

MAX_VALUES = 1_000_000
"""Values that a file may stand for: a few lines of aliases to aliases stand for more than any memory holds."""


def read(file: str | Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises `UserError` for a file that is missing, is not YAML, holds itself, holds too much once its aliases are written
    out, gives one key twice, has a name or number that YAML reads as another one, or asks Snakemake to run code
    (`__use_yte__`).
    """
    try:
        text = read_text(file)
        loader = yaml.SafeLoader(text)
        if not (node := loader.get_single_node()):
            raise UserError(f"{file}: empty, but a configuration is a section of keys")
        _count(node, file, {})
        content = loader.construct_document(node)
    except OSError as error:
        raise UserError(f"{file}: no readable configuration ({error.strerror or error})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}, line {mark.line + 1}" if mark else file
        raise UserError(f"{where}: not YAML ({error.problem or error.context})") from None
    except RecursionError:
        raise UserError(f"{file}: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{file}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: holds {shown(content)}, but a configuration is a section of keys")
    if "__use_yte__" in content:
        raise UserError(
            f"{file}: holds __use_yte__, with which Snakemake runs Python code from the file; a configuration is plain "
            "YAML: remove that key"
        )
    return content


def _count(node: yaml.Node, file: str | Path, counted: dict[int, int]) -> int:
    """Count the values that a part of a file stands for, those behind an alias as often as it is used."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise UserError(f"{file}, line {node.start_mark.line + 1}: what begins there holds itself, by an alias")
        return counted[id(node)]
    counted[id(node)] = 0
    inner = node.value if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            line = key.start_mark.line + 1
            if (name := str(_value_of(key))) != key.value:
                raise UserError(f"{file}, line {line}: YAML reads the name {key.value} as {name}; put it in quotes")
            if key.value in lines:
                raise UserError(
                    f"{file}: {join(key.value)} stands twice in one section, in lines {lines[key.value]} and {line}"
                )
            lines[key.value] = line
        inner = [part for pair in node.value for part in pair]
    is_number = isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float"))
    if is_number and re.match(r"[-+]?0[\d_]+$|.*:", node.value):  # octal or sexagesimal
        number = f"{node.value} as {_value_of(node)}"
        raise UserError(f"{file}, line {node.start_mark.line + 1}: YAML reads {number}; write the number that is meant")
    counted[id(node)] = 1 + sum(_count(part, file, counted) for part in inner)
    if counted[id(node)] > MAX_VALUES:
        raise UserError(f"{file}: with its aliases written out it holds more than {MAX_VALUES:,} values")
    return counted[id(node)]


def _value_of(scalar: yaml.Node) -> Any:
    """Return the value that YAML gives to a scalar."""
    return yaml.SafeLoader("").construct_object(scalar)


def _alternative(part: Schema, value: Any) -> Schema:
    """Return the alternative of a schema that fits a value; a schema without alternatives is returned unchanged."""
    if "oneOf" not in part:
        return part
    if isinstance(value, str) and not any(name_of(entry) == "string" for entry in part["oneOf"]):
        value = _read_text(value, ())
    forms: dict[type, str] = {dict: "object", list: "array", str: "string"}
    names = [forms.get(type(value), "integer"), value.get("kind") or "gpt" if isinstance(value, dict) else None]
    return next((entry for entry in part["oneOf"] if name_of(entry) in names), {})


def name_of(alternative: Schema) -> str:
    """Return the name of an alternative: the kind of a model, or else the type."""
    return alternative.get("properties", {}).get("kind", {}).get("const", alternative["type"])


def of_key(part: Schema, key: Any) -> Schema:
    """Return the schema of a key in a section, or of an item in a list; empty for a key that is not known there."""
    item_schemas = [*part.get("patternProperties", {}).values(), part.get("additionalProperties"), part.get("items")]
    return part.get("properties", {}).get(key) or next(filter(None, item_schemas), {})


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration, each section where it is used."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def resolve(
    config: Mapping[str, Any], files: Sequence[str | Path] = (), *, files_exist: bool = False
) -> dict[str, Any]:
    """Return the configuration that a run uses: texts of `--config` read, defaults filled in, everything checked.

    A path of one of `files` is relative to its folder; what no file holds, such as a path from the command line, to the
    working directory. A configuration without `run` has the name of its file. With `files_exist`, what is named is there,
    and files of losses hold some. Raises `UserError`; its text has one line for every key that is wrong.
    """
    content, of_files = dict(config), {}
    for file in map(Path, files):
        inside = file.is_relative_to(Path.cwd())  # Snakemake makes every path absolute
        of_files[file] = read(file.relative_to(Path.cwd()) if inside else file)
        # Of another workflow, which has this one as a module, the file is not a configuration of toposcale.
        if "run" not in config and of_files[file].keys() & schema()["properties"].keys():
            content["run"] = file.stem
    content = _convert(content, schema(), of_files)
    try:
        return Config.model_validate(content, context={"files_exist": files_exist}).model_dump()
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    # A key that is unknown may be why another one is missing, so the last line is about it.
    mistakes.sort(key=lambda mistake: (mistake["type"] == "extra_forbidden", [*map(str, mistake["loc"])]))
    raise UserError("\n".join(dict.fromkeys(map(explain, mistakes))))


def _convert(value: Any, part: Schema, of_files: Mapping[Path, Any]) -> Any:
    """Return a value with its texts read, its keys as texts, its paths from here, and no empty keys that have a default.

    `of_files`: the value of the same key in each file.
    """
    part = _alternative(part, value)
    types = {part.get("type"), *(entry["type"] for entry in part.get("anyOf", ()))}
    sources = [file for file, content in of_files.items() if content == value]
    if isinstance(value, str) and value and sources and part.get("format") == "path":
        # `..` behind a link is not the folder of the link.
        return os.path.normpath(os.path.join(os.path.relpath(sources[0].parent.resolve()), os.path.expanduser(value)))
    original = value
    if isinstance(value, str):
        value = _read_text(value, types)
    if isinstance(value, float) and "integer" in types:
        return int(value) if value.is_integer() else original
    if isinstance(value, bool) and "boolean" not in types:
        return original  # such as yes
    if isinstance(value, list) and "array" in types:
        return [_convert(item, part["items"], dict.fromkeys(sources, item)) for item in value]
    if not isinstance(value, Mapping) or "object" not in types:
        return value
    section = {}
    for key, inner in value.items():
        # YAML reads a name such as 70 as a number; no name of a key that is known has half of a surrogate pair.
        name = str(key).encode(errors="backslashreplace").decode()
        part_of_key = of_key(part, name)
        if inner is not None or part_of_key.keys().isdisjoint({"default", "properties"}):
            inner_of_files = {
                file: content[key] for file, content in of_files.items() if isinstance(content, dict) and key in content
            }
            section[name] = _convert(inner, part_of_key, inner_of_files)
    return section


def _read_text(text: str, types: Collection[str]) -> Any:
    """Return the value of a text from `--config` whose key is not a text; the text itself if it cannot be parsed."""
    if "string" in types:
        return None if text == "null" and "null" in types else text
    try:
        value = yaml.safe_load(text)
        # YAML 1.1 takes 25e6 and 3e-4 for texts.
        return float(value) if isinstance(value, str) else value
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


class _Location(NamedTuple):
    """Location of a mistake: the path of the key, the schema of its section, and its own."""

    path: list[Any]
    section: Schema
    part: Schema


def _locate(loc: Sequence[Any]) -> _Location:
    """Return the location of an error of pydantic, in whose path are alternatives too."""
    path: list[Any] = []
    section: Schema = {}
    part: Schema = schema()
    meant = part
    for key in loc:
        if "oneOf" in meant:
            meant = next((entry for entry in meant["oneOf"] if name_of(entry) == key), meant)
            continue
        path.append(key)
        section, part = meant, of_key(meant, key)
        meant = part
    return _Location(path, section, part)


def explain(mistake: Mapping[str, Any]) -> str:
    """Return the line of an error of pydantic: where it is, what is there, what is allowed."""
    kind, loc, value = mistake["type"], mistake["loc"], mistake["input"]
    if loc and loc[-1] == "[key]":
        *path, name = _locate(loc[:-1]).path
        names = _locate(loc[:-1]).section["propertyNames"]
        return f"config key {join(*path)}: the name {shown(name)} must be {allowed(names)}"
    path, section, part = _locate(loc)
    line = f"config key {join(*path) or '(top)'}"
    of_kind = f" for kind {name_of(section)}" if "kind" in section.get("properties", {}) else ""
    if kind == CONTRADICTION:
        says = "" if value is None else f" holds {shown(value)},"
        return f"{line}{says or ':'} {mistake['msg']}{did_you_mean(value, mistake['ctx']['names'])}"
    if kind == "extra_forbidden":
        names = list(section["properties"])
        hint = did_you_mean(path[-1], names) or f"; known here: {', '.join(names)}"
        return f"{line} {f'has no meaning{of_kind}' if of_kind else 'is unknown'}{hint}"
    if kind == "missing":
        return f"{line} is missing;{of_kind} it must be {allowed(part)}"
    if kind.startswith("union_tag"):
        kinds = [name_of(entry) for entry in part["oneOf"]]
        must = f"but must be one of {', '.join(kinds)}{did_you_mean(value['kind'], kinds)}"
        return f"{line}.kind holds {shown(value['kind'])}, {must}"
    return f"{line} holds {shown(value)}, but must be {allowed(part)}{did_you_mean(value, part.get('enum', []))}"


def join(*parts: Any) -> str:
    """Return a dotted path; a name that would not print as it is, is shown escaped."""
    names = [str(part) for part in parts if part != ""]
    return ".".join(name if re.fullmatch(r"[\w.{}-]+", name, re.ASCII) else json.dumps(name) for name in names)


def shown(value: Any, most: int = 80) -> str:
    """Return a value as text of at most `most` characters."""
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


def allowed(part: Schema) -> str:
    """Return the allowed values of a key in words."""
    if "allowed" in part:
        return part["allowed"]
    if "enum" in part:
        return "one of " + ", ".join(map(str, part["enum"]))
    if alternatives := part.get("oneOf", part.get("anyOf")):
        return " or ".join(dict.fromkeys(map(allowed, alternatives)))
    bounds = [f"{words} {part[key]:,}" for key, words in _BOUNDS.items() if key in part]
    bounds += ["without repeats"] if part.get("uniqueItems") else []
    return " ".join([_NAMES[part["type"]], ", ".join(bounds)]).strip()


def folder(path: str) -> Path:
    """Return the folder of the run of a configuration."""
    return Path("results", resolve(read(path), [path])["run"])


def outputs(path: str) -> str:
    """Return where a run left what people look at, and how many checkpoints are in none of it."""
    from toposcale.io import tables

    run = folder(path)
    count = int(tables.read_metadata(run / "tables/warnings.parquet")["left_out"])
    left_out = f" ({count:,} checkpoint{'s' * (count > 1)} left out; its warnings say why)" if count else ""
    pages = f"Explorer: {run}/explorer.html\nFigures:  {run}/figures/\nTables:   {run}/tables/\n"
    return f"{pages}Report:   {run}/report.html{left_out}\n"


if __name__ == "__main__":
    with mistakes_in_a_line():
        match sys.argv[1:]:
            case ["check", file]:
                read(file)
            case ["folder", file]:
                print(folder(file))
            case ["outputs", file]:
                print(outputs(file), end="")
            case _:
                sys.exit("usage: config_reading.py (check | folder | outputs) FILE")
