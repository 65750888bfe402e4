"""How a run was made, as the report tells it: what it was run on, what it cost, and how to make it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from toposcale.io.files import read_json

TEXTS = {"python-docs": "English text that comes with Python", "wikitext-2": "WikiText-2"}


def what_was_run(
    config: Mapping[str, Any], corpus: Mapping[str, Any] | None, models: pd.DataFrame, features: pd.DataFrame
) -> dict[str, Any]:
    """A sentence (`lede`) and a list of facts (`facts`, pairs of a name and a text) on models, text and checkpoints.

    `corpus` is None in a run of models without weights, which reads no text.
    """
    sizes = models.sort_values("n_parameters")
    n_checkpoints = len(features[["model", "step"]].drop_duplicates())
    smallest, largest = sizes.iloc[0], sizes.iloc[-1]
    span = f"{smallest['n_parameters']:,}"
    if largest["n_parameters"] > smallest["n_parameters"]:
        span += f" to {largest['n_parameters']:,}"
    kinds = {model["kind"] for model in config["models"].values()}
    training = config["training"]
    read = _read(corpus, config) if corpus else ""
    count = f"{len(sizes)} language model{'s' if len(sizes) > 1 else ''} of {span} parameters"
    # What is trained here reads the text in training; published models only have their embeddings computed on it.
    if kinds == {"gpt"}:
        lede = f"{count}, trained for {training['steps']:,} steps on {read}, with {n_checkpoints} checkpoints in all."
    elif kinds == {"table"}:
        lede = f"The loss curves of {count}, without their weights: forecasts and the decision alone."
    else:
        lede = f"{count}, published or trained here, at {n_checkpoints} checkpoints in all."
    facts = [
        ("Models", "; ".join(_model(row) for row in sizes.to_dict("records"))),
        *(
            [("Text", f"{read} for training, {corpus['tokens']['validation']:,} for validation")]
            if corpus
            else []
        ),
        ("Checkpoints", f"{n_checkpoints} in all, of {len(sizes)} models"),
        ("Measured", _measured(features) or "no features"),
    ]
    if "gpt" in kinds:
        schedule = (
            f"{training['steps']:,} steps of {training['batch_size']} × {training['context']} tokens, a checkpoint every "
            f"{training['checkpoint_every']}; AdamW, learning rate {training['learning_rate']:g} after "
            f"{training['warmup_steps']} steps of warm-up; seed {', '.join(map(str, config['seeds']))}"
        )
        facts.insert(1, ("Training", schedule))
    return {"lede": lede, "facts": facts}


def _read(corpus: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    text = TEXTS.get(corpus["source"], ", ".join(map(str, config["corpus"]["train"])))
    return f"{corpus['tokens']['train']:,} tokens ({corpus['tokenizer']}) of {text}"


def _model(row: Mapping[Any, Any]) -> str:
    parts = [f"{row['n_parameters']:,} parameters"]
    parts += [
        f"{what} {int(row[key])}"
        for key, what in (("d_model", "width"), ("n_layers", "layers"), ("n_heads", "heads"))
        if pd.notna(row[key])
    ]
    return f"{row['model']} ({', '.join(parts)})"


def _measured(features: pd.DataFrame) -> str:
    counts = features.groupby("source")["feature"].nunique()
    return ", ".join(f"{count} features of the {source}" for source, count in counts.items())


def runtimes(logs: str | Path, models: Sequence[str]) -> pd.DataFrame:
    """What the jobs cost, by rule and model, from what they left beside their logs.

    Columns: rule, model, jobs, wall_seconds (without imports), longest_job_seconds, cpu_seconds (with imports),
    peak_memory_mb.
    """
    rows = []
    for path in sorted(Path(logs).rglob("*.cost.json")):
        parts = [part.removesuffix(".cost.json") for part in path.relative_to(logs).parts]
        model = next((name for part in parts[1:] if (name := part.partition(".step-")[0]) in models), "")
        rows.append({"rule": parts[0], "model": model, **read_json(path)})
    columns = ["rule", "model", "wall_seconds", "cpu_seconds", "peak_memory_mb"]
    return (
        pd.DataFrame(rows, columns=columns)
        .groupby(["rule", "model"], as_index=False)
        .agg(
            jobs=("wall_seconds", "size"),
            wall_seconds=("wall_seconds", "sum"),
            longest_job_seconds=("wall_seconds", "max"),
            cpu_seconds=("cpu_seconds", "sum"),
            peak_memory_mb=("peak_memory_mb", "max"),
        )
    )


def rerun(
    metadata: Mapping[str, Mapping[str, str]], *, run: str, lock_name: str, lock_hash: str, patch: str = ""
) -> dict[str, Any]:
    """The commands that make the run again, and the revisions and packages that its tables (by name) were made with.

    `patch`: the file with the changes that are not committed, empty where there are none. It is exact where every table was
    made of one revision without changes.
    """
    revisions: dict[str, list[str]] = {}
    versions: dict[str, set[str]] = {}
    for name, stored in metadata.items():
        revisions.setdefault(stored.get("revision", "unknown"), []).append(name)
        for package, version in json.loads(stored.get("versions", "{}")).items():
            versions.setdefault(package, set()).add(version)
    revision = max(revisions, key=lambda one: len(revisions[one]), default="unknown")
    commands = [
        f"git checkout {revision.removesuffix(CHANGED)}",
        *([f"git apply {patch}"] if patch else []),
        f"make run CONFIG={run}.yaml",
        f"# or, in an environment with {lock_name}:  snakemake --cores 2 --configfile {run}.yaml",
    ]
    return {
        "commands": "\n".join(commands),
        "revisions": [(one, ", ".join(made)) for one, made in revisions.items()],
        "changed": any(one.endswith(CHANGED) for one in revisions),
        "exact": len(revisions) == 1 and revision != "unknown" and not revision.endswith(CHANGED),
        "patch": Path(patch).name,
        "versions": [(package, " and ".join(sorted(found))) for package, found in sorted(versions.items())],
        "lock_name": lock_name,
        "lock_hash": lock_hash,
    }


CHANGED = "-dirty"
"""How git marks a revision whose files have changes that are not committed."""
