"""`python -m studies.study3.train TABLES WORK` trains what the plan has and TABLES lacks, small models first.

A configuration whose tables are complete is skipped. A finished run leaves its rows in WORK, so that an interruption
loses one run; when all runs of a configuration are there, the configuration is written to TABLES. The functions are
those that the jobs of the workflow call, with the same settings, so a run has the same losses and features as there
(tests/studies/test_study_3_training.py).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import plan
from studies import small_tables
from studies.norms import MEAN_ROW_NORM
from studies.study2.questions import FOLLOWED as EARLIER
from studies.study3 import configurations, measures
from studies.study3.configurations import Configuration
from toposcale.analysis.over_seeds import EARLY, SHARE
from toposcale.checkpoints.matrices import iterate_arrays
from toposcale.features import weights
from toposcale.io.errors import UserError
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.io.schemas import ALL_LAYERS
from toposcale.training import corpus, trainer
from toposcale.training.gpt import GPTShape

FOLLOWED = (*EARLIER, MEAN_ROW_NORM, measures.NUCLEAR, measures.NEAREST, "h0_total_l2_scaled")
"""The features of every checkpoint; at 30% of the training everything is kept."""
GAP_SEQUENCES, GAP_PARTS = 1400, 4
"""Sequences of each text on which the gap is measured, and into how many interleaved parts they are cut: what the parts of
one run differ by tells the noise."""
GAP_SHARES = (EARLY, SHARE, 0.5, 1.0)
"""Shares of the training at which the gap is measured."""

Rows = dict[str, pd.DataFrame]
TrainOne = Callable[[plan.Model, Mapping[str, Any], corpus.Corpus], Rows]


class Start(NamedTuple):
    """A run before its first step, how it is trained, and the tokens that it is trained on."""

    state: trainer.TrainingState
    schedule: trainer.TrainingSettings
    tokens: NDArray[np.uint16]


def train_missing(plan_configurations: Sequence[Configuration], tables: Path, work: Path) -> None:
    """Train every configuration that is not complete in `tables`."""
    train_each(
        plan_configurations,
        partial(configurations.complete, tables),
        lambda configuration: train_configuration(configuration, tables, work),
    )


def train_each(
    plan_configurations: Sequence[Configuration],
    is_complete: Callable[[Configuration], bool],
    train_one: Callable[[Configuration], None],
) -> None:
    """Train every configuration that is not complete, and say how many are."""
    trainer.configure_torch("cpu")
    for configuration in plan_configurations:
        if is_complete(configuration):
            print(f"{configuration.name}: there", flush=True)
            continue
        train_one(configuration)
        done = sum(map(is_complete, plan_configurations))
        print(
            f"{configuration.name}: {len(configuration.runs)} runs; {done} of {len(plan_configurations)} configurations",
            flush=True,
        )


def train_configuration(configuration: Configuration, tables: Path, work: Path) -> None:
    """Train the runs of a configuration that `work` does not have, and write the configuration to `tables`."""
    train_runs(configuration, tables, work, timed, configurations.TABLES)


def train_runs(
    configuration: Configuration, tables: Path, work: Path, train_one: TrainOne, names: Sequence[str]
) -> None:
    """Train the runs of a configuration that `work` does not have, and write its tables of these names to `tables`."""
    text = text_of(configuration, work)
    for name, run in configuration.runs.items():
        if not (work / name).exists():
            write_run(train_one(run, configuration.config, text), work / name)
    for table in names:
        parts = [pd.read_csv(work / name / f"{table}.csv") for name in configuration.runs]
        small_tables.write(
            pd.concat(parts, ignore_index=True), configurations.file_of(tables, table, configuration.name)
        )


def timed(run: plan.Model, config: Mapping[str, Any], text: corpus.Corpus) -> Rows:
    """The rows of one run, with the seconds that it took."""
    started = time.process_time()
    rows = trained(run, config, text)
    rows["models"]["cpu_s"] = round(time.process_time() - started, 1)
    return rows


def write_run(rows: Rows, folder: Path) -> None:
    """The rows of a run in a folder that is there whole or not at all."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for table, part in rows.items():
        small_tables.write(part, unfinished / f"{table}.csv")
    os.replace(unfinished, folder)


def text_of(configuration: Configuration, work: Path) -> corpus.Corpus:
    """The text of a configuration, kept in `work`, since reading the documentation of Python takes seconds."""
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
    """A run of the plan, before its first step."""
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


def trained(run: plan.Model, config: Mapping[str, Any], text: corpus.Corpus) -> Rows:
    """The rows of one run: its tables of `configurations.TABLES`."""
    state, schedule, tokens = begin(run, text)
    shape = state.model.shape
    both = text.validation, tokens
    small, large = (
        [trainer.validation_sequences(one, shape.context, count) for one in both]
        for count in (run.training["validation_sequences"], GAP_SEQUENCES)
    )
    series, early, gaps = [], pd.DataFrame(), []
    for step in run.steps:
        trainer.train(state, schedule, tokens, step)
        values = measured(state, config)
        validation, seen = (trainer.validation_loss(state.model, sequences) for sequences in small)
        losses = {VALIDATION_LOSS: validation, "generalisation_gap": validation - seen}
        where = {"model": run.name, "step": step}
        series.append({**where, **{name: values[name] for name in FOLLOWED}, **losses})
        if step == checkpoint_at(run, SHARE):
            early = pd.DataFrame([where | values])
        if step in {checkpoint_at(run, share) for share in GAP_SHARES}:
            gaps += [{**where, **row} for row in losses_of_parts(state, *large)]
    models = pd.DataFrame([facts(run, shape, text)])
    return {"models": models, "series": pd.DataFrame(series), "early": early, "gaps": pd.DataFrame(gaps)}


def measured(state: trainer.TrainingState, config: Mapping[str, Any]) -> weights.Features:
    """Every feature of the whole model, and some of every layer as feature/layer."""
    matrices = matrices_of(state)
    features, _ = weights.compute_features(matrices.items(), settings_of(config))
    return features[ALL_LAYERS] | measures.of_model(matrices, features) | measures.by_layer(features)


def matrices_of(state: trainer.TrainingState) -> dict[str, np.ndarray]:
    """The weight matrices of a model by name."""
    return dict(iterate_arrays(dict(state.model.named_parameters())))


def settings_of(config: Mapping[str, Any]) -> weights.WeightSettings:
    """What a configuration says of the features of weights."""
    chosen = {key: value for key, value in config["weights"].items() if key not in ("jobs", "distances", "threads")}
    return weights.WeightSettings.from_mapping(chosen)


def losses_of_parts(
    state: trainer.TrainingState, validation: NDArray[np.int64], seen: NDArray[np.int64]
) -> list[dict[str, float]]:
    """Validation and training loss on each of `GAP_PARTS` interleaved parts of the sequences of both texts."""
    if len(validation) != len(seen):
        raise UserError(f"{len(validation)} sequences of the validation text, {len(seen)} of the training text")
    return [
        {
            "part": part,
            "sequences": len(validation[part::GAP_PARTS]),
            "validation_loss": trainer.validation_loss(state.model, validation[part::GAP_PARTS]),
            "training_loss": trainer.validation_loss(state.model, seen[part::GAP_PARTS]),
        }
        for part in range(GAP_PARTS)
    ]


def checkpoint_at(run: plan.Model, share: float) -> int:
    """The last checkpoint within a share of the training."""
    return max(step for step in run.steps if step <= share * run.steps[-1] + 1e-6)


def facts(run: plan.Model, shape: GPTShape, text: corpus.Corpus) -> dict[str, Any]:
    """The row of a run in the table of models: that of the workflow, the text, and what it was computed with."""
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
    """The kind of processor: the same bytes are promised on one kind alone."""
    lines: Sequence[str] = ()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    try:
        train_missing(configurations.planned(Path()), *map(Path, sys.argv[1:]))
    except UserError as error:
        sys.exit(f"toposcale: {error}")
