"""What no schema can say of a configuration: keys that are each right and do not go together."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import sweep
from config_errors import allowed, join, shown
from config_schema import schema
from schedule_keys import schedule_contradictions

# Ten times what a run of a week would have; planning more would fill the memory before anything was said.
MOST_CHECKPOINTS = 100_000


def contradictions(config: Mapping[str, Any]) -> Iterator[str]:
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
            "the checkpoint is the middle point"
        )
    swept = list(_sweep_contradictions(config))
    yield from swept or _training_contradictions(config)


def _sweep_contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    swept, models = config["sweep"], config["models"]
    for name in swept["models"]:
        if name not in models or models[name]["kind"] != "gpt":
            near = difflib.get_close_matches(name, models, n=1)
            hint = f"; did you mean {near[0]}?" if near and near[0] != name else ""
            yield f"config key sweep.models holds {shown(name)}, but must name models of kind gpt{hint}"
    keys = [key for key in sweep.NAMES if swept[key]]
    if keys and not swept["models"]:
        yield f"config key sweep.{keys[0]} is given, but sweep.models names no model to sweep"


def _training_contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    cells = {run.cell: run for run in sweep.runs({**config["sweep"], "seeds": 1})}
    entries = set(config["models"]) - set(config["sweep"]["models"])
    for name in sorted(name for name in entries if config["models"][name]["kind"] == "gpt"):
        cells[name] = sweep.Run(name, name, name, 0, {})
    copies = config["sweep"]["seeds"]
    copies = len(copies) if isinstance(copies, list) else copies
    checkpoints, trained = 0, 0
    for run in cells.values():
        training = sweep.training_of(config, run)
        schedule = training.get("schedule")
        if isinstance(schedule, Mapping):
            own = "schedule" in config["models"][run.entry]
            where = join("models", run.entry, "schedule") if own else "training.schedule"
            yield from schedule_contradictions(where, schedule, training["steps"])
        repeats = copies if run.training or run.entry in config["sweep"]["models"] else len(config["seeds"])
        trained += repeats
        checkpoints += repeats * (2 + training["steps"] // training["checkpoint_every"])
        if training["warmup_steps"] >= training["steps"]:
            yield (
                f"config key training.warmup_steps holds {training['warmup_steps']}, "
                f"but must be less than training.steps, {training['steps']}"
                + (f" (of {run.cell})" if training != config["training"] else "")
            )
    if checkpoints > MOST_CHECKPOINTS:
        yield (
            f"config key training.checkpoint_every holds {config['training']['checkpoint_every']}, which makes more "
            f"than {MOST_CHECKPOINTS} checkpoints of {trained} models with {config['training']['steps']} steps; "
            "make it larger"
        )


NEEDED = {
    "gpt": ("d_model", "n_layers", "n_heads"),
    "hub": ("repo", "revisions", "steps"),
    "folder": ("path",),
    "monitor": ("path",),
    "table": ("path", "n_parameters"),
    "planned": ("n_parameters", "schedule"),
}
"""Keys without which an entry of `models:` of that kind means nothing."""

# What a person knows of a training that was made elsewhere.
_TOLD = ("tokens_per_step", "final_step", "warmup_steps")
ALLOWED = {
    "gpt": (*NEEDED["gpt"], "training", "embeddings"),
    "hub": (*NEEDED["hub"], *_TOLD, "embeddings", "tokenizer"),
    "folder": (*NEEDED["folder"], "pattern", "steps", *_TOLD, "embeddings", "tokenizer"),
    "monitor": (*NEEDED["monitor"], *_TOLD),
    "table": (*NEEDED["table"], *_TOLD),
    "planned": (*NEEDED["planned"], "tokens_per_step"),
}
"""Keys that mean something for an entry of that kind, beside `kind`, `family` and `schedule`, which every one has."""


def _model_contradictions(name: str, model: Mapping[str, Any]) -> Iterator[str]:
    where = join("models", name)
    kind = model["kind"]
    for key in NEEDED[kind]:
        if key not in model:
            what = allowed(schema()["properties"]["models"]["additionalProperties"]["properties"][key])
            yield f"config key {where}.{key} is missing; for kind {kind} it must be {what}"
    known = {*ALLOWED[kind], "schedule"}
    for other in sorted({key for keys in ALLOWED.values() for key in keys} - known):
        if other in model:
            yield f"config key {where}.{other} is given, but has no meaning for kind {kind}"
    if kind == "gpt" and not set(NEEDED["gpt"]) - set(model) and model["d_model"] % model["n_heads"]:
        yield (
            f"config key {where}.n_heads holds {model['n_heads']}, but must divide d_model, {model['d_model']}"
        )
    if ".seed" in name:
        yield f"config key models: the name {name!r} contains .seed, which is reserved for the copies with other seeds"
    yield from _braces(f"{where}.path", model.get("path", ""))
    if kind != "gpt" and isinstance(model.get("schedule"), Mapping):
        yield from schedule_contradictions(f"{where}.schedule", model["schedule"], model.get("final_step"))
    for key in ("revisions", "pattern"):
        if key in model and "{step}" not in model[key]:
            yield f"config key {where}.{key} holds {shown(model[key])}, but must contain {{step}}"


def _braces(where: str, path: str) -> Iterator[str]:
    if set(path) & set("{}"):
        yield f"config key {where} holds {shown(path)}, but Snakemake reads braces in a path as a wildcard"
