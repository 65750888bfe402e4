"""`python -m studies.controls.train TABLES WORK [UNTIL [TABLE]]` trains what the plan has and WORK lacks, in its order.

A finished run leaves its row in WORK, so that an interruption loses one run; the runs that TABLES has are not trained
again. UNTIL, a time of the day in UTC as 14:50: no run is begun after it. TABLE: only the runs of this table are trained.
Several processes can work together. At the end the rows that are there are written to TABLES.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

import plan
from studies import small_tables
from studies.controls import gradient
from studies.norms import MEAN_ROW_NORM, mean_row_norm
from studies.over_seeds import EARLY, LATER, SHARE
from studies.study4.configurations import LOSS_SHARES, Configuration, loss_column, planned
from studies.study4.runs import begin, checkpoint_at, facts, matrices_of, settings_of, text_of
from studies.study4.train import Row, measured, row_file, write_row
from toposcale import homology
from toposcale.features import weights
from toposcale.io import tensor_files
from toposcale.io.schemas import ALL_LAYERS
from toposcale.training import trainer
from toposcale.training.corpus import Corpus
from toposcale.training.gpt import GPTShape

PLAN, WIKITEXT_PLAN = "studies/controls/study.yaml", "studies/controls/wikitext.yaml"
NAME_COLUMNS = {"replication.csv.gz": "model", "settings.csv": "name", "scale.csv": "model"}
"""Tables of the runs, and which of their columns names a run."""

CONTEXT = 128
SETTINGS = 120
SETTING_STEPS = 300
SETTING_WARMUP = 30
SIGNUM_MOMENTUM = 0.9
SIGNUM_RATE = (0.1, 0.3)
"""Rates of Signum, as shares of one that suits AdamW: its updates have full size in every coordinate."""
SETTING_FEATURES = (
    "frobenius_norm",
    "nuclear_norm",
    "h0_total",
    "h0_mean",
    "neural_persistence",
    "h1_total",
    "h0_surrogate_z",
)

SCALE_STEPS = 600
SCALE_WARMUP = 60
SCALE_AT = 180
"""The step at which the models of question 5 are measured, 30% of their training."""
TOKEN_EMBEDDING = "token_embedding.weight"


class Size(NamedTuple):
    """A size of question 5: width, layers, heads, and how many seeds are trained."""

    d_model: int
    n_layers: int
    n_heads: int
    seeds: int


SIZES = {
    "3k": Size(8, 1, 1, 3),
    "7k": Size(16, 1, 2, 3),
    "21k": Size(24, 2, 2, 3),
    "46k": Size(32, 3, 4, 3),
    "97k": Size(48, 3, 4, 2),
    "301k": Size(76, 4, 4, 2),
    "1m": Size(128, 5, 4, 1),
}


@dataclass(frozen=True)
class Setting:
    """A setting of question 3."""

    name: str
    d_model: int
    n_layers: int
    batch_size: int
    weight_decay: float
    learning_rate: float
    optimizer: str


class Job(NamedTuple):
    """A run: the table that it belongs to, its name there, and the function that returns its row."""

    table: str
    name: str
    row: Callable[[], Row]


def settings() -> list[Setting]:
    """Return the settings of question 3, drawn at random."""
    random = np.random.default_rng(42)
    drawn = []
    for number in range(SETTINGS):
        optimizer = str(random.choice(["adamw", "signum"]))
        rate = float(np.exp(random.uniform(np.log(0.0005), np.log(0.03))))
        if optimizer == "signum":
            rate *= float(random.uniform(*SIGNUM_RATE))
        width, layers, batch = (int(random.choice(values)) for values in ((8, 12, 16), (1, 2), (8, 16, 32)))
        decay = float(random.choice([0.0, 0.01, 0.1, 0.3]))
        drawn.append(Setting(f"setting-{number:03d}", width, layers, batch, decay, rate, optimizer))
    return drawn


def jobs(work: Path) -> Iterator[Job]:
    """Yield the runs of the plans in their order; those of WikiText-2 where the text is there."""
    configurations = planned(Path(), PLAN)
    text = text_of(configurations[0], work)
    weight_settings = settings_of(configurations[0].config)
    for name, size in SIZES.items():
        for seed in range(size.seeds):
            yield Job("scale.csv", f"{name}.seed{seed}", partial(scale_row, name, seed, text, weight_settings))
    yield from _in_turn(configurations, text, work)
    on_wikitext = planned(Path(), WIKITEXT_PLAN)
    if all(Path(path).exists() for path in on_wikitext[0].config["corpus"]["train"]):
        yield from _in_turn(on_wikitext, text_of(on_wikitext[0], work), work)
    for setting in settings():
        yield Job("settings.csv", setting.name, partial(setting_row, setting, text, weight_settings))


def _in_turn(configurations: list[Configuration], text: Corpus, work: Path) -> Iterator[Job]:
    """Yield the runs of configurations of the replication in turn."""
    for runs in zip(*(one.runs.values() for one in configurations), strict=True):
        for run, configuration in zip(runs, configurations, strict=True):
            yield Job("replication.csv.gz", run.name, partial(replication_row, run, configuration, text, work))


def replication_row(run: plan.Model, configuration: Configuration, text: Corpus, work: Path) -> Row:
    """Train a run of the replication, keep its weights at `SHARE`, and return its row."""
    state, schedule, tokens = begin(run, text)
    sequences = trainer.validation_sequences(text.validation, CONTEXT, run.training["validation_sequences"])
    row, features = facts(run, state.model.shape, text), {}
    for share in LOSS_SHARES:
        gradient.train(state, schedule, tokens, checkpoint_at(run, share))
        row[loss_column(share)] = gradient.validation_loss(state, sequences)
        if share == SHARE:
            features = measured(state, configuration.config)
            tensor_files.write(weights_file(work, run.name), matrices_of(state), {})
    return row | features


def weights_file(work: Path, run: str) -> Path:
    """Return the file of the matrices of a run of the replication at `SHARE`."""
    return work / "weights" / f"{run}.safetensors"


def setting_row(setting: Setting, text: Corpus, weight_settings: weights.WeightSettings) -> Row:
    """Train a setting of question 3, and return its row; without a final loss where it diverges."""
    shape = GPTShape(text.vocab_size, CONTEXT, setting.d_model, setting.n_layers, 2 if setting.d_model > 8 else 1)
    schedule = trainer.TrainingSettings(
        SETTING_STEPS,
        setting.batch_size,
        setting.learning_rate,
        setting.weight_decay,
        SETTING_WARMUP,
        seed=homology.sampling.seeded_number((setting.name,)) % 2**31,
    )
    state = trainer.initial_state(setting.name, shape, schedule, torch.device("cpu"))
    sequences = trainer.validation_sequences(text.validation, CONTEXT)
    row: dict[str, Any] = asdict(setting) | {"n_parameters": shape.n_parameters}
    update = gradient.adamw if setting.optimizer == "adamw" else signum
    for share in (EARLY, SHARE, LATER, 1.0):
        try:
            gradient.train(state, schedule, text.train, round(share * SETTING_STEPS), update)
        except trainer.NonFiniteLossError:
            return row
        row[loss_column(share)] = gradient.validation_loss(state, sequences)
        if share == SHARE:
            matrices = matrices_of(state)
            features, _ = weights.compute_features(matrices.items(), weight_settings)
            row |= {name: features[ALL_LAYERS][name] for name in SETTING_FEATURES}
            row[MEAN_ROW_NORM] = mean_row_norm(matrices.values())
    return row


@torch.no_grad()
def signum(state: trainer.TrainingState, slope: torch.Tensor, schedule: trainer.TrainingSettings, step: int) -> None:
    """Make an update by the sign of the momentum (Bernstein et al. 2018) in place, with decoupled weight decay."""
    state.first_moment.lerp_(slope, 1 - SIGNUM_MOMENTUM)
    rate = schedule.rates.rate(step)
    state.weights.mul_(1 - rate * schedule.weight_decay).add_(state.first_moment.sign(), alpha=-rate)


def scale_row(name: str, seed: int, text: Corpus, weight_settings: weights.WeightSettings) -> Row:
    """Train a model of question 5 to `SCALE_AT`, and return its scores among surrogates."""
    size = SIZES[name]
    shape = GPTShape(text.vocab_size, CONTEXT, size.d_model, size.n_layers, size.n_heads)
    schedule = trainer.TrainingSettings(SCALE_STEPS, 32, 0.003, 0.1, SCALE_WARMUP, seed=1000 + seed)
    state = trainer.initial_state(name, shape, schedule, torch.device("cpu"))
    trainer.train(state, schedule, text.train, SCALE_AT)
    scores = scores_of(matrices_of(state), replace(weight_settings, max_dimension=0), (name, seed))
    loss = trainer.validation_loss(state.model, trainer.validation_sequences(text.validation, CONTEXT))
    facts = {"model": f"{name}.seed{seed}", "size": name, "seed": seed, "n_parameters": shape.n_parameters}
    return facts | scores | {"validation_loss": loss}


def scores_of(
    matrices: Mapping[str, np.ndarray], weight_settings: weights.WeightSettings, seed: tuple[int | str, ...]
) -> Row:
    """Return the scores of H0 among surrogates of a model: their mean, extremes, and that of the token embedding, as it is
    and rotated from the left at random."""
    features, _ = weights.compute_features(matrices.items(), weight_settings)
    rotated = homology.spectrum_surrogate(matrices[TOKEN_EMBEDDING], seed=("rotated", *seed))
    of_rotated, _ = weights.compute_features([(TOKEN_EMBEDDING, rotated)], weight_settings)
    scores = {layer: values["h0_surrogate_z"] for layer, values in features.items()}
    of_layers = [score for layer, score in scores.items() if layer != ALL_LAYERS]
    return {
        "mean_score": scores[ALL_LAYERS],
        "token_embedding": scores[TOKEN_EMBEDDING],
        "rotated_token_embedding": of_rotated[TOKEN_EMBEDDING]["h0_surrogate_z"],
        "lowest_score": min(of_layers),
        "highest_score": max(of_layers),
        "matrices": len(of_layers),
    }


def train_missing(tables: Path, work: Path, until: str | None, table: str | None) -> None:
    """Train the runs of a table, or all, that are not there; none is begun after `until`, a time of the day in UTC."""
    trainer.configure_torch("cpu")
    (work / "weights").mkdir(parents=True, exist_ok=True)
    restore(tables, work)
    for job in jobs(work):
        folder = work / job.table
        if row_file(folder, job.name).exists() or table not in (None, job.table):
            continue
        if until and datetime.now(UTC).strftime("%H:%M") >= until:
            break
        with (folder / f"{job.name}.lock").open("w") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # another process trains it
            if not row_file(folder, job.name).exists():
                write_row(pd.DataFrame([job.row()]), row_file(folder, job.name))
                print(datetime.now(UTC).strftime("%H:%M:%S"), job.table, job.name, flush=True)


def restore(tables: Path, work: Path) -> None:
    """Put the rows that the tables have into `work`, where they are not there."""
    for table, column in NAME_COLUMNS.items():
        (work / table).mkdir(parents=True, exist_ok=True)
        if (tables / table).exists():
            for name, row in pd.read_csv(tables / table).groupby(column):
                if not row_file(work / table, str(name)).exists():
                    write_row(row, row_file(work / table, str(name)))


def gather(tables: Path, work: Path) -> None:
    """Write the rows that are finished as the tables of the runs."""
    for table in NAME_COLUMNS:
        if parts := sorted((work / table).glob("*.csv")):
            small_tables.write(pd.concat(map(pd.read_csv, parts), ignore_index=True), tables / table)


if __name__ == "__main__":
    to, finished, clock, only, *_ = [*sys.argv[1:], None, None]
    try:
        train_missing(Path(to), Path(finished), clock, only)
    except KeyboardInterrupt:
        sys.exit("toposcale: interrupted; what is finished is kept")
    finally:
        gather(Path(to), Path(finished))
