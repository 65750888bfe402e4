"""A run of the plan: its text, its model before the first step, and the facts and weights that its row is made of.

The functions are those that the jobs of the workflow call, with the same settings, so a run has the same losses and
features as there.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import plan
from studies.study4.configurations import Configuration
from toposcale.checkpoints import Checkpoint
from toposcale.features import weights
from toposcale.training import corpus, trainer
from toposcale.training.gpt import GPTShape


class Start(NamedTuple):
    """A run before its first step, how it is trained, and the tokens that it is trained on."""

    state: trainer.TrainingState
    schedule: trainer.TrainingSettings
    tokens: NDArray[np.uint16]


def text_of(configuration: Configuration, work: Path) -> corpus.Corpus:
    """Return the text of a configuration, kept in `work`, since reading the documentation of Python takes seconds."""
    settings = configuration.config["corpus"]
    path = work / f"corpus-{settings['source']}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = corpus.build_corpus(
            settings["source"],
            settings["tokenizer"],
            context=configuration.config["training"]["context"],
            vocab_size=settings["vocab_size"],
            train=settings["train"],
            validation=settings["validation"],
        )
        corpus.save_corpus(made, path)
    return corpus.load_corpus(path)


def begin(run: plan.Model, text: corpus.Corpus) -> Start:
    """Return a run of the plan before its first step."""
    settings = run.training
    shape = GPTShape(
        text.vocab_size, settings["context"], *(int(run.settings[size]) for size in ("d_model", "n_layers", "n_heads"))
    )
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "warmup_steps")
    schedule = trainer.TrainingSettings(
        **{name: settings[name] for name in names}, clip=settings["gradient_clip"], seed=run.seed
    )
    tokens = trainer.share_of_text(text.train, settings["data_fraction"], shape.context)
    return Start(trainer.initial_state(run.name, shape, schedule, torch.device("cpu")), schedule, tokens)


def checkpoint_at(run: plan.Model, share: float) -> int:
    """Return the last checkpoint within a share of the training."""
    return max(step for step in run.steps if step <= share * run.steps[-1] + 1e-6)


def matrices_of(state: trainer.TrainingState) -> dict[str, np.ndarray]:
    """Return the weight matrices of a model by name."""
    return dict(Checkpoint(dict(state.model.named_parameters())).matrices())


def settings_of(config: Mapping[str, Any]) -> weights.WeightSettings:
    """Return what a configuration says of the features of weights."""
    chosen = {key: value for key, value in config["weights"].items() if key not in ("jobs", "distances", "threads")}
    return weights.WeightSettings.from_mapping(chosen)


def facts(run: plan.Model, shape: GPTShape, text: corpus.Corpus) -> dict[str, Any]:
    """Return the row of a run in the table of models of the workflow, its text, and what it was computed with."""
    known = {key: value for key, value in run.facts.items() if value is not None and key != "schedule"}
    return {
        "model": run.name,
        **known,
        "n_parameters": shape.n_parameters,
        "text_sha256": text.sha256["train"][:12],
        "processor": processor(),
        "torch": torch.__version__,
    }


def processor() -> str:
    """Return the kind of processor: the same bytes are promised on one kind alone."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
