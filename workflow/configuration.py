"""The configuration: coerced, completed with the schema's defaults, checked, and explained in one line a mistake."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from config_errors import allowed, explain, join, shown
from config_schema import Validator, schema
from contradictions import contradictions


class ConfigurationError(ValueError):
    """What is wrong with the configuration, one line a mistake."""


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that a run uses: strings of `--config` coerced, defaults filled in, everything checked.

    Raises `ConfigurationError`; its text has one line for every key that is wrong.
    """
    try:
        completed = _complete(schema(), dict(config))
        errors = sorted(
            Validator(schema()).iter_errors(completed), key=lambda e: list(map(str, e.absolute_path))
        )
        lines = [line for error in errors for line in explain(error)]
    except ConfigurationError:
        raise
    except (RecursionError, ValueError):
        raise ConfigurationError(
            "config key (top) is nested too deeply, holds itself, or holds a number of thousands of digits"
        ) from None
    if not lines:
        lines = list(contradictions(completed))
    if lines:
        raise ConfigurationError("\n".join(dict.fromkeys(lines)))
    return completed


# Keys that hold a path, or a list of paths; `*` stands for any name.
PATH_KEYS = (
    ("corpus", "train"),
    ("corpus", "validation"),
    ("models", "*", "path"),
    ("models", "*", "schedule"),
    ("training", "schedule"),
    ("models", "*", "tokenizer"),
    ("metrics", "tables"),
    ("metrics", "harness"),
    ("hub", "cache"),
)


def rebase(config: Mapping[str, Any], files: Sequence[str | Path]) -> dict[str, Any]:
    """`config` with the paths that one of its files names made relative to the folder of that file.

    What no file holds, such as a path from the command line, stays relative to the working directory. Raises
    `ConfigurationError` for a file that is missing or no YAML.
    """
    rebased = copy.deepcopy(dict(config))
    for file in files:
        content, folder = _read(file), Path(os.path.relpath(Path(file).parent))
        for keys in PATH_KEYS:
            _rebase(rebased, content, keys, folder)
    return rebased


def _read(file: str | Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigurationError(f"{file}: no readable configuration ({error.strerror or error})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{file}: holds {shown(content)}, but a configuration is a section of keys")
    return content


def _rebase(part: Any, given: Any, keys: Sequence[str], folder: Path) -> None:
    """Change the values behind `keys` in `part` that are still what the file, `given`, holds."""
    if not isinstance(part, dict) or not isinstance(given, dict):
        return
    first, *rest = keys
    for name in set(part) & set(given) if first == "*" else {first} & set(part) & set(given):
        value = part[name]
        if rest:
            _rebase(value, given[name], rest, folder)
        elif value == given[name] and isinstance(value, str) and value:
            part[name] = str(folder / value)
        elif value == given[name] and isinstance(value, list):
            part[name] = [str(folder / one) if isinstance(one, str) else one for one in value]


def check_files(config: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` where a resolved configuration names a file or folder that is not there."""
    named = [("metrics.tables", path) for path in config["metrics"]["tables"]]
    harness = config["metrics"]["harness"]
    named += [("metrics.harness", harness)] if not glob(harness, recursive=True) else []
    named += [
        (join("models", name, key), model.get(key, ""))
        for name, model in config["models"].items()
        for key in ("path", "schedule", "tokenizer")
    ]
    named += [("training.schedule", config["training"].get("schedule", ""))]
    lines = [
        f"config key {key}: {path} does not exist; a path is relative to the configuration file that names it"
        for key, path in named
        if path and isinstance(path, str) and not Path(path).exists()
    ]
    if lines:
        raise ConfigurationError("\n".join(lines))


def _complete(schema: Mapping[str, Any], value: Any) -> Any:
    """`value` with strings turned into what the schema asks for, and missing keys filled with their defaults."""
    kind = _kind(schema, value)
    if isinstance(value, str) and kind in ("integer", "number", "boolean", "array", "object"):
        value = _coerce(kind, value)
    if value == "null" and "null" in schema.get("type", ()):
        return None
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "object" and isinstance(value, Mapping):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        completed = {}
        for key, item in value.items():
            key = str(key)  # YAML reads a name such as 70 as a number
            if key in completed:
                raise ConfigurationError(f"config key {join(key)} stands twice, as a text and as a number")
            inner = properties.get(key, others if isinstance(others, Mapping) else {})
            # An empty section (`training:` with nothing under it) means its defaults.
            completed[key] = _complete(
                inner, inner["default"] if item is None and "default" in inner else item
            )
        for key, inner in properties.items():
            if key not in completed and "default" in inner:
                completed[key] = _complete(inner, inner["default"])
        return completed
    if kind == "array" and isinstance(value, list):
        return [_complete(schema.get("items", {}), item) for item in value]
    return value


def _kind(schema: Mapping[str, Any], value: Any) -> str | None:
    """The type that a value should have; of several, the one that it can have."""
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return kinds
    if "object" in kinds:
        return "object" if isinstance(value, Mapping) or str(value).lstrip().startswith("{") else "string"
    if "array" in kinds and (isinstance(value, list) or str(value).lstrip().startswith("[")):
        return "array"
    return None if value in (None, "null") else kinds[0]


def _coerce(kind: str, text: str) -> Any:
    """`--config` hands over nested values as strings: read one as YAML, keep it if it is not of the kind asked for."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text  # ValueError: what looks like a date and is none, or a number of thousands of digits
    if kind == "number" and isinstance(value, str):
        # YAML 1.1 reads 3e-3 as a string.
        try:
            return float(value)
        except ValueError:
            return text
    expected = {"integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}[kind]
    right = isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool))
    return value if right else text


def documented_keys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every key of the schema with its description, in order, as (dotted path, schema of the key)."""

    def walk(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for key, inner in part.get("properties", {}).items():
            yield join(path, key), inner
            yield from walk(inner, join(path, key))
        others = part.get("additionalProperties")
        if isinstance(others, Mapping):
            yield from walk(others, join(path, "{name}"))

    return walk(schema(), "")


def reference() -> str:
    """config/README.md: every key, its meaning, what it may hold and its default."""
    lines = [
        "# Configuration",
        "",
        "Written by `make reference` from `workflow/schemas/config.schema.yaml`; change the schema, not this page.",
        "",
        "Any key can be given in a file (`snakemake --configfile FILE`, which takes the place of `config/config.yaml`)",
        "or on the command line (`snakemake --config 'training={steps: 100}'`), which goes on top of the file.",
        "A path in a file is relative to the folder of that file, a path on the command line to the working directory.",
        "",
        "| key | meaning | holds | if left out |",
        "| --- | --- | --- | --- |",
    ]
    for path, part in documented_keys():
        default = "none" if "default" not in part else f"`{json.dumps(part['default'])}`"
        if part.get("type") == "object" and "properties" in part:
            default = ""
        meaning = " ".join(part["description"].split())
        lines.append(f"| `{path}` | {meaning} | {allowed(part)} | {default} |")
    return "\n".join(lines) + "\n"


def outputs(path: str) -> str:
    """Where the run of a configuration file leaves what people look at."""
    run = resolve(_read(path))["run"]
    return "".join(
        f"{name + ':':9s} results/{run}/{path}\n"
        for name, path in (
            ("Explorer", "explorer.html"),
            ("Figures", "figures/"),
            ("Tables", "tables/"),
            ("Report", "report.html"),
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["reference"]:
            print(reference(), end="")
        case ["outputs", file]:
            print(outputs(file), end="")
        case _:
            sys.exit("usage: configuration.py reference | configuration.py outputs FILE")
