"""Configuration files: read as plain YAML, their paths relative to where they lie."""

import os
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from config_schema import Schema, join, of_its_kind, of_key, schema, shown
from toposcale.io.errors import UserError
from toposcale.io.files import read_text

MOST_VALUES = 1_000_000
"""Values that a file may stand for: a few lines of aliases to aliases stand for more than any memory holds."""


def read(file: str | Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises `UserError` for a file that is missing, is not YAML, holds itself, holds too much once its aliases are written
    out, gives one key twice, or asks Snakemake to run code (`__use_yte__`).
    """
    try:
        text = read_text(file)
        if node := yaml.compose(text, yaml.SafeLoader):
            _count(node, file, {})
        content = yaml.safe_load(text) or {}
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
            if key.value in lines:
                raise UserError(
                    f"{file}: {join(key.value)} stands twice in one section, in lines {lines[key.value]} and {line}"
                )
            lines[key.value] = line
        inner = [part for pair in node.value for part in pair]
    counted[id(node)] = 1 + sum(_count(part, file, counted) for part in inner)
    if counted[id(node)] > MOST_VALUES:
        raise UserError(f"{file}: with its aliases written out it holds more than {MOST_VALUES:,} values")
    return counted[id(node)]


def rebased(config: Mapping[str, Any], files: Sequence[str | Path]) -> dict[str, Any]:
    """Return a configuration with the paths of its files made relative to their folders, and with a name.

    What no file holds, such as a path from the command line, stays relative to the working directory. A configuration
    without `run` has the name of its file. Raises what `read` does.
    """
    changed = dict(config)
    for file in files:
        inside = Path(file).is_relative_to(Path.cwd())  # Snakemake makes every path absolute
        content = read(Path(file).relative_to(Path.cwd()) if inside else file)
        # Of another workflow, which has this one as a module, the file is not a configuration of toposcale.
        if "run" not in config and content.keys() & schema()["properties"].keys():
            changed["run"] = Path(file).stem
        # `..` behind a link is not the folder of the link.
        folder = os.path.relpath(Path(file).parent.resolve())
        changed = _rebased(changed, content, schema(), folder)
    return changed


def with_paths_from(config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a configuration with every path written as it is found from `folder`, for a file that lies elsewhere."""
    return _rebased(dict(config), dict(config), schema(), folder)


def _rebased(value: Any, of_file: Any, part: Schema, folder: str) -> Any:
    """Return a value in which every path is changed that is still the one of the file."""
    part = of_its_kind(part, value)
    if isinstance(value, dict) and isinstance(of_file, dict):
        return {
            key: _rebased(inner, of_file[key], of_key(part, str(key)), folder) if key in of_file else inner
            for key, inner in value.items()
        }
    if isinstance(value, list) and value == of_file:
        return [_rebased(item, item, part.get("items", {}), folder) for item in value]
    if isinstance(value, str) and value and value == of_file and part.get("format") == "path":
        return os.path.normpath(os.path.join(folder, value))
    return value


def check_files(config: Mapping[str, Any]) -> None:
    """Raise `UserError` where a resolved configuration names a file that does not exist, or a loss file without losses."""
    from toposcale.io import loss_curves

    models = config["models"].items()
    harness, fresh = config["metrics"]["harness"], config["confirm"]["run"]
    references = [("metrics.tables", path) for path in config["metrics"]["tables"]]
    references += [("metrics.harness", harness)] if not glob(harness, recursive=True) else []
    keys = ("path", "schedule", "tokenizer")
    references += [(join("models", name, key), model.get(key, "")) for name, model in models for key in keys]
    references += [("training.schedule", config["training"].get("schedule", ""))]
    references += [("confirm.run", f"results/{fresh}")] if fresh else []
    lines = [
        f"config key {key}: {path} does not exist; a path is relative to the configuration file that names it"
        for key, path in references
        if path and isinstance(path, str) and not Path(path).exists()
    ]
    for name, model in models:
        try:
            if model["kind"] == "table" and Path(model["path"]).exists():
                loss_curves.read(model["path"])
        except (UserError, OSError) as error:
            lines.append(
                f"config key {join('models', name, 'path')} must be a table with a step and a loss in each row, a "
                f"trainer_state.json or TensorBoard files: {error}"
            )
    if lines:
        raise UserError("\n".join(lines))
