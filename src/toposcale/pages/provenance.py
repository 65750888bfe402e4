"""Provenance of a run for the report: its inputs, its cost, and how to reproduce it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from toposcale import __version__
from toposcale.analysis.series import all_in_nats, whole_model
from toposcale.checkpoints.model_kinds import GPT, MODEL_KINDS, TABLE, ModelKind
from toposcale.features.ripser_check import ROUNDING
from toposcale.io.errors import counted
from toposcale.io.files import read_json

TEXTS = {"python-docs": "English text that comes with Python", "wikitext-2": "WikiText-2"}


def what_was_run(
    config: Mapping[str, Any], corpus: Mapping[str, Any] | None, models: pd.DataFrame, features: pd.DataFrame
) -> dict[str, Any]:
    """Return a sentence (`lede`) and pairs of name and text (`facts`) on models, corpus (None: none was read) and steps."""
    sizes = models.sort_values("n_parameters")
    n_checkpoints = len(features[["model", "step"]].drop_duplicates())
    kinds = [_kind_of_model(name, config["models"]) for name in models["model"]]
    training = config["training"]
    noun = "language model" if all_in_nats(models) else "model"
    count = f"{counted(len(sizes), noun)}{_size_range(sizes['n_parameters'].dropna())}"
    checkpoints = counted(n_checkpoints, "checkpoint")
    if set(kinds) == {GPT}:
        trained = f"trained for {training['steps']:,} steps on {_training_text(corpus, config)}"
        lede = f"{count}, {trained}, with {checkpoints} in all."
    elif set(kinds) == {TABLE}:
        lede = f"{count}, {TABLE.origin}: forecasts and the decision, no topology."
    elif len(set(kinds)) == 1:
        lede = f"{count}, {kinds[0].origin}: {checkpoints}."
    else:
        origins = [f"{kinds.count(kind)} {kind.origin}" for kind in MODEL_KINDS.values() if kind in kinds]
        lede = f"{count}: {', '.join(origins)}; {checkpoints} in all."
    facts = []
    if GPT in kinds:
        schedule = (
            f"{training['steps']:,} steps of {training['batch_size']} × {training['context']} tokens, a checkpoint every "
            f"{training['checkpoint_every']}; AdamW, learning rate {training['learning_rate']:g} after "
            f"{training['warmup_steps']} steps of warm-up; seed {', '.join(map(str, config['seeds']))}"
        )
        facts.append(("Training", schedule))
    if text := _texts_read(corpus, config, kinds, set(features["source"])):
        facts.append(("Text", text))
    features_measured = [_features_measured(str(source), rows) for source, rows in features.groupby("source")]
    facts.append(("Measured", "; ".join(features_measured) or "no features"))
    return {"lede": lede, "facts": facts}


def _features_measured(source: str, features: pd.DataFrame) -> str:
    """Return the number of features of a source, and how many of them are of the whole model."""
    n_features, n_whole = features["feature"].nunique(), whole_model(features)["feature"].nunique()
    of_whole = f", {n_whole} of them of the whole model" if n_whole != n_features else ""
    return f"{counted(n_features, 'feature')} of the {source}{of_whole}"


def _kind_of_model(model: str, entries: Mapping[str, Mapping[str, Any]]) -> ModelKind:
    """Return the kind of a model by its entry, whose name is that of the model or, with several seeds, its prefix."""
    fitting = [name for name in entries if model == name or model.startswith(f"{name}.")]
    return MODEL_KINDS[entries[max(fitting, key=len)]["kind"]]


def _size_range(sizes: pd.Series) -> str:
    if sizes.empty:
        return ""
    low, high = int(sizes.min()), int(sizes.max())
    return f" of {low:,} parameters" if low == high else f" of {low:,} to {high:,} parameters"


def _texts_read(
    corpus: Mapping[str, Any] | None, config: Mapping[str, Any], kinds: Sequence[ModelKind], sources: set[str]
) -> str:
    """Return which text was read, and for what; "" if none was."""
    if corpus is None:
        return ""
    parts = []
    if GPT in kinds:
        parts.append(
            f"{_training_text(corpus, config)} for training, {corpus['tokens']['validation']:,} for validation"
        )
    if any(kind.has_weights and kind != GPT for kind in kinds) and sources & {"embeddings", "landscape", "gradients"}:
        name = TEXTS.get(corpus["source"], ", ".join(map(str, config["corpus"]["validation"])))
        parts.append(f"models that were not trained here read {name} with their own tokenizers, to be measured only")
    return "; ".join(parts)


def _training_text(corpus: Mapping[str, Any] | None, config: Mapping[str, Any]) -> str:
    if corpus is None:
        return "no text"
    text = TEXTS.get(corpus["source"], ", ".join(map(str, config["corpus"]["train"])))
    return f"{corpus['tokens']['train']:,} tokens ({corpus['tokenizer']}) of {text}"


def runtimes(logs: str | Path, models: Sequence[str]) -> pd.DataFrame:
    """Return the cost of the jobs by rule and model, from the records with their logs.

    Columns: rule, model, jobs, wall_seconds (no imports), longest_job_seconds, cpu_seconds (with imports), peak_memory_mb.
    """
    rows = []
    for path in sorted(Path(logs).rglob("*.cost.json")):
        parts = [part.removesuffix(".cost.json") for part in path.relative_to(logs).parts]
        model = next((part for part in reversed(parts[1:]) if part in models), "")
        rows.append({"rule": parts[0], "model": model, **read_json(path)})
    jobs = pd.DataFrame(rows, columns=["rule", "model", "wall_seconds", "cpu_seconds", "peak_memory_mb"])
    return jobs.groupby(["rule", "model"], as_index=False).agg(
        jobs=("wall_seconds", "size"),
        wall_seconds=("wall_seconds", "sum"),
        longest_job_seconds=("wall_seconds", "max"),
        cpu_seconds=("cpu_seconds", "sum"),
        peak_memory_mb=("peak_memory_mb", "max"),
    )


def agreement(clouds: Sequence[Mapping[str, Any]], model: str, step: int, program: str) -> str:
    """Return the largest difference of diagrams from those of another program (`ripser_check.check`), in a sentence."""
    if not clouds:
        return ""
    farthest = max(clouds, key=lambda cloud: cloud["difference"])
    difference = farthest["difference"]
    verdict = (
        "which is its rounding to float32"
        if difference <= ROUNDING
        else f"in {farthest['layer']}, which rounding does not explain: do not trust the topology of this run"
    )
    return (
        f"{program} computed the persistence diagrams of {len(clouds)} weight "
        f"matri{'x' if len(clouds) == 1 else 'ces'} of {model} at step {step:,} again: the largest "
        f"difference between the diagrams (bottleneck distance) is {difference:.1e} of the mean distance between rows, "
        f"{verdict}."
    )


def rerun(
    metadata: Mapping[str, Mapping[str, str]], *, run: str, lock_name: str, lock_hash: str, patch: str = ""
) -> dict[str, Any]:
    """Return the commands that reproduce the run, and the revisions and packages of its tables (by name).

    `patch`: file with the uncommitted changes, "" if none. Exact if one revision without changes made every table.
    """
    revisions: dict[str, list[str]] = {}
    versions: dict[str, set[str]] = {}
    for name, stored in metadata.items():
        revisions.setdefault(stored.get("revision", "unknown"), []).append(name)
        for package, version in json.loads(stored.get("versions", "{}")).items():
            versions.setdefault(package, set()).add(version)
    revision = max(revisions, key=lambda name: len(revisions[name]), default="unknown")
    commands = [
        f"git checkout {revision.removesuffix(CHANGED)}",
        *([f"git apply {patch}"] if patch else []),
        f"make run CONFIG={run}.yaml",
        f"# or, in an environment with {lock_name}:  snakemake --cores 2 --configfile {run}.yaml",
    ]
    if revision == "unknown":  # no clone
        commands = [f"toposcale run {run}.yaml   # of toposcale {__version__}, with the packages of {lock_name}"]
    return {
        "commands": "\n".join(commands),
        "revisions": [(name, ", ".join(made)) for name, made in revisions.items()],
        "changed": any(name.endswith(CHANGED) for name in revisions),
        "exact": len(revisions) == 1 and revision != "unknown" and not revision.endswith(CHANGED),
        "patch": Path(patch).name,
        "versions": [(package, " and ".join(sorted(releases))) for package, releases in sorted(versions.items())],
        "lock_name": lock_name,
        "lock_hash": lock_hash,
    }


CHANGED = "-dirty"
"""Suffix of a git revision with uncommitted changes."""
