"""Reference of the configuration, from its models, for `make reference`: the JSON Schema and config/README.md."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import config
from config_reading import SCHEMA, Schema, allowed, join, name_of, schema
from paths import ROOT
from toposcale.io.files import write_text


def keys_of(part: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Yield every key of a section, required ones first: its dotted path, its schema, and whether it is required."""
    for entry in part.get("oneOf", [part]):
        needed = entry.get("required", [])
        for key, inner in sorted(entry.get("properties", {}).items(), key=lambda item: item[0] not in needed):
            yield join(path, key), inner, key in needed
            yield from keys_of(inner, join(path, key))
        for inner in entry.get("patternProperties", {}).values():
            yield from keys_of(inner, join(path, "{name}"))


def schema_of_models() -> dict[str, Any]:
    """Return the JSON Schema of the models: each section where it is used, with the texts of its keys."""
    whole = config.Config.model_json_schema()
    return _inlined(whole, whole.pop("$defs"))


def _inlined(part: Any, sections: Mapping[str, Any]) -> Any:
    """Return a part of a schema with what it refers to, and each description in a line."""
    if isinstance(part, list):
        return [_inlined(item, sections) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        part = sections[part["$ref"].rpartition("/")[2]]  # without its default, which repeats those of the keys
    if isinstance(part.get("description"), str):
        part = {**part, "description": " ".join(part["description"].split())}
    # Titles repeat the keys, and the kind of a model stands in it as a constant.
    return {key: _inlined(inner, sections) for key, inner in part.items() if key not in ("discriminator", "title")}


def reference() -> str:
    """Return config/README.md: the keys of each section and kind of model, with meaning, values and default."""
    sections = schema()["properties"]
    values = {key: part for key, part in sections.items() if part["type"] != "object"}
    [models] = sections["models"]["patternProperties"].values()
    lines = [
        "# Configuration",
        "",
        "Written by `make reference` from `workflow/config.py` and `workflow/config_models.py`; change these instead.",
        "",
        "Any key can be given in a file (`snakemake --configfile FILE`, which takes the place of `config/config.yaml`)",
        "or on the command line (`snakemake --config 'training={steps: 100}'`), which goes on top of the file.",
        "A path in a file is relative to the folder of that file, a path on the command line to the working directory.",
        *_group("## The run", "Its name, and its seeds.", {"properties": values}, ""),
    ]
    for name, part in sections.items():
        if name == "models":
            lines += ["", "## models", "", part["description"]]
            for entry in models["oneOf"]:
                lines += _group(f"### kind: {name_of(entry)}", entry["description"], entry, "models.{name}")
        elif name not in values:
            lines += _group(f"## {name}", part["description"], part, name)
    schedule = sections["training"]["properties"]["schedule"]["oneOf"][0]
    lines += _group("## schedule", "In `training.schedule` and `models.{name}.schedule`.", schedule, "schedule")
    return "\n".join(lines) + "\n"


def _group(heading: str, text: str, part: Schema, path: str) -> list[str]:
    """Return the lines of a section of the reference."""
    lines = ["", heading, "", text, "", "| key | meaning | holds | if left out |", "| --- | --- | --- | --- |"]
    for key, inner, needed in keys_of(part, path):
        if "const" in inner or ".schedule." in key:
            continue  # the kind stands in the heading, and the parts of a schedule in a section of their own
        default = f"`{json.dumps(inner['default'])}`" if "default" in inner else "none"
        default = "" if "properties" in inner else default
        left_out = "it must be given" if needed else default
        lines.append(f"| `{key}` | {inner['description']} | {allowed(inner)} | {left_out} |")
    return lines


if __name__ == "__main__":
    write_text(SCHEMA, json.dumps(schema_of_models(), indent=2) + "\n")
    write_text(ROOT / "config/README.md", reference())
