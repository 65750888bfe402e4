"""The configuration: coerced, completed with the schema's defaults, checked, and explained in one line a mistake."""

from __future__ import annotations

import copy
import difflib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
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

# Ten times what a run of a week would have; planning more would fill the memory before anything was said.
MOST_CHECKPOINTS = 100_000


class ConfigurationError(ValueError):
    """What is wrong with the configuration, one line a mistake."""


@cache
def schema() -> dict[str, Any]:
    """The schema, read once."""
    return yaml.safe_load(SCHEMA_PATH.read_text())


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that a run uses: strings of `--config` coerced, defaults filled in, everything checked.

    Raises `ConfigurationError`; its text has one line for every key that is wrong.
    """
    try:
        completed = _complete(schema(), dict(config))
        errors = sorted(
            Validator(schema()).iter_errors(completed), key=lambda e: list(map(str, e.absolute_path))
        )
        lines = [line for error in errors for line in _explain(error)]
    except ConfigurationError:
        raise
    except (RecursionError, ValueError):
        raise ConfigurationError(
            "config key (top) is nested too deeply, holds itself, or holds a number of thousands of digits"
        ) from None
    if not lines:
        lines = list(_contradictions(completed))
    if lines:
        raise ConfigurationError("\n".join(dict.fromkeys(lines)))
    return completed


# Keys that hold a path, or a list of paths; `*` stands for any name.
PATH_KEYS = (
    ("corpus", "train"),
    ("corpus", "validation"),
    ("models", "*", "path"),
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
        raise ConfigurationError(f"{file}: holds {_shown(content)}, but a configuration is a section of keys")
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
    named += [("metrics.harness", config["metrics"]["harness"])]
    named += [
        (_join("models", name, "path"), model.get("path", "")) for name, model in config["models"].items()
    ]
    lines = [
        f"config key {key}: {path} does not exist; a path is relative to the configuration file that names it"
        for key, path in named
        if path and not Path(path).exists()
    ]
    if lines:
        raise ConfigurationError("\n".join(lines))


def _complete(schema: Mapping[str, Any], value: Any) -> Any:
    """`value` with strings turned into what the schema asks for, and missing keys filled with their defaults."""
    kind = schema.get("type")
    if isinstance(value, str) and kind in ("integer", "number", "boolean", "array", "object"):
        value = _coerce(kind, value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "object" and isinstance(value, Mapping):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        completed = {}
        for key, item in value.items():
            key = str(key)  # YAML reads a name such as 70 as a number
            if key in completed:
                raise ConfigurationError(f"config key {_join(key)} stands twice, as a text and as a number")
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


def _explain(error: ValidationError) -> Iterator[str]:
    """One line for a mistake: where it is, what is there, what would be right."""
    where = _join(*error.absolute_path)
    if error.validator == "additionalProperties":
        allowed = list(error.schema.get("properties", {}))
        for key in sorted(set(map(str, error.instance)) - set(allowed)):
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(allowed)}"
            yield f"config key {_join(*error.absolute_path, key)} is unknown; {hint}"
        return
    if error.validator == "required":
        for key in sorted(set(error.validator_value) - set(error.instance)):
            what = _allowed(error.schema["properties"][key])
            yield f"config key {_join(*error.absolute_path, key)} is missing; it must be {what}"
        return
    if "propertyNames" in error.absolute_schema_path:
        yield (
            f"config key {where}: the name {error.instance!r} is not safe in a path; "
            "use up to 64 letters, digits, dots, underscores and hyphens, starting with a letter or digit"
        )
        return
    if error.validator == "pattern":
        yield (
            f"config key {where} holds {_shown(error.instance)}, which is not safe in a path; "
            "use up to 64 letters, digits, dots, underscores and hyphens, starting with a letter or digit"
        )
        return
    hint = ""
    if error.validator == "enum" and isinstance(error.instance, str):
        near = difflib.get_close_matches(error.instance, error.validator_value, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
    yield f"config key {where or '(top)'} holds {_shown(error.instance)}, but must be {_allowed(error.schema)}{hint}"


def _contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    """What no schema can say: keys that are each right and do not go together."""
    for name, model in config["models"].items():
        yield from _model_contradictions(name, model)
    corpus = config["corpus"]
    for key in ("train", "validation"):
        if corpus["source"] == "files" and not corpus[key]:
            yield f"config key corpus.{key} is empty, but corpus.source: files needs at least one path or glob there"
        if corpus["source"] != "files" and corpus[key]:
            yield f"config key corpus.{key} is given, but is read only with corpus.source: files"
    for path in config["metrics"]["tables"]:
        yield from _braces("metrics.tables", path)
    if config["weights"]["null_draws"] == 1:
        yield "config key weights.null_draws holds 1, but must be 0 or at least 2: one draw has no spread"
    if config["landscape"]["resolution"] % 2 == 0:
        yield (
            f"config key landscape.resolution holds {config['landscape']['resolution']}, but must be odd: "
            "the checkpoint stands in the middle"
        )
    training = config["training"]
    trained = len(config["seeds"]) * sum(model["kind"] == "gpt" for model in config["models"].values())
    checkpoints = trained * (2 + training["steps"] // training["checkpoint_every"])
    if checkpoints > MOST_CHECKPOINTS:
        yield (
            f"config key training.checkpoint_every holds {training['checkpoint_every']}, which makes more than "
            f"{MOST_CHECKPOINTS} checkpoints of {trained} models with {training['steps']} steps; make it larger"
        )
    if training["warmup_steps"] >= training["steps"]:
        yield (
            f"config key training.warmup_steps holds {training['warmup_steps']}, "
            f"but must be less than training.steps, {training['steps']}"
        )


NEEDED = {
    "gpt": ("d_model", "n_layers", "n_heads"),
    "hub": ("repo", "revisions", "steps"),
    "folder": ("path",),
    "monitor": ("path",),
    "table": ("path", "n_parameters"),
}
"""Keys without which an entry of `models:` of that kind means nothing."""

ALLOWED = {
    "gpt": NEEDED["gpt"],
    "hub": (*NEEDED["hub"], "tokens_per_step", "final_step"),
    "folder": (*NEEDED["folder"], "pattern", "steps", "tokens_per_step", "final_step"),
    "monitor": (*NEEDED["monitor"], "tokens_per_step", "final_step"),
    "table": (*NEEDED["table"], "tokens_per_step", "final_step"),
}
"""Keys that mean something for an entry of that kind, beside `kind` and `family`, which every one has."""


def _model_contradictions(name: str, model: Mapping[str, Any]) -> Iterator[str]:
    where = _join("models", name)
    kind = model["kind"]
    for key in NEEDED[kind]:
        if key not in model:
            what = _allowed(schema()["properties"]["models"]["additionalProperties"]["properties"][key])
            yield f"config key {where}.{key} is missing; for kind {kind} it must be {what}"
    for other in sorted({key for keys in ALLOWED.values() for key in keys} - set(ALLOWED[kind])):
        if other in model:
            yield f"config key {where}.{other} is given, but means nothing for kind {kind}"
    if kind == "gpt" and not set(NEEDED["gpt"]) - set(model) and model["d_model"] % model["n_heads"]:
        yield (
            f"config key {where}.n_heads holds {model['n_heads']}, but must divide d_model, {model['d_model']}"
        )
    if ".seed" in name:
        yield f"config key models: the name {name!r} holds .seed, which marks the copies that seeds make"
    yield from _braces(f"{where}.path", model.get("path", ""))
    for key in ("revisions", "pattern"):
        if key in model and "{step}" not in model[key]:
            yield f"config key {where}.{key} holds {_shown(model[key])}, but must have {{step}} in it"


def _braces(where: str, path: str) -> Iterator[str]:
    if set(path) & set("{}"):
        yield f"config key {where} holds {_shown(path)}, but Snakemake takes a brace in a path for a wildcard"


def _join(*parts: Any) -> str:
    """A dotted path; a name that would not print as it is, is shown escaped."""
    names = [str(part) for part in parts if part != ""]
    return ".".join(
        name if re.fullmatch(r"[\w.{}-]+", name, re.ASCII) else json.dumps(name) for name in names
    )


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ):  # it holds itself, has keys of other kinds, or too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def _allowed(schema: Mapping[str, Any]) -> str:
    """What a key may hold, in words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    name = {
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
        "string": "a text",
        "array": "a list",
        "object": "a section of keys",
    }.get(schema.get("type", ""), "something else")
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
        if key in schema
    ]
    if schema.get("uniqueItems"):
        bounds.append("without repeats")
    return " ".join([name, ", ".join(bounds)]).strip()


def documented_keys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every key of the schema with its description, in order, as (dotted path, schema of the key)."""

    def walk(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for key, inner in part.get("properties", {}).items():
            yield _join(path, key), inner
            yield from walk(inner, _join(path, key))
        others = part.get("additionalProperties")
        if isinstance(others, Mapping):
            yield from walk(others, _join(path, "{name}"))

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
        "| key | meaning | holds | default |",
        "| --- | --- | --- | --- |",
    ]
    for path, part in documented_keys():
        default = "none" if "default" not in part else f"`{json.dumps(part['default'])}`"
        if part.get("type") == "object" and "properties" in part:
            default = ""
        meaning = " ".join(part["description"].split())
        lines.append(f"| `{path}` | {meaning} | {_allowed(part)} | {default} |")
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
