"""The files of a monitored model: the same tables, under the same names, as in the folder of a run.

In the folder that the user names lie, for every model, `features/weights/{model}/step-*.parquet` and
`diagrams/weights/{model}/step-*.parquet` (a file a snapshot), `training/{model}/step-*.parquet` and
`metrics/monitor/{model}/step-*.parquet` (the rows up to a step since the file before), and `models/{model}.json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from toposcale import tables, weights
from toposcale.errors import UserError
from toposcale.files import written

SOURCE = "weights"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KINDS = ("features/weights", "diagrams/weights", "training", "metrics/monitor")
_FACTS = ("n_parameters", "tokens_per_step", "final_step")


@dataclass(frozen=True)
class Folder:
    """Where the rows of one monitored model are."""

    path: Path
    model: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.model):
            raise UserError(
                f"{self.model!r} cannot name a model: up to 64 letters, digits, dots, underscores and hyphens, "
                "starting with a letter or digit"
            )

    def file(self, kind: str, step: int) -> Path:
        """The file of a step; `kind` is one of features/weights, diagrams/weights, training, metrics/monitor."""
        return self.path / kind / self.model / f"step-{step:08d}.parquet"

    def files(self, kind: str) -> dict[int, Path]:
        """The files that are there, by step, ascending."""
        found = (self.path / kind / self.model).glob("step-*.parquet")
        return dict(sorted((int(path.stem.removeprefix("step-")), path) for path in found))

    def steps(self) -> list[int]:
        """Steps with features, ascending. UserError: none, with the models that the folder does have."""
        if steps := list(self.files("features/weights")):
            return steps
        others = sorted(path.name for path in (self.path / "features/weights").glob("*"))
        there = f"it has {', '.join(others)}" if others else "no monitor has written there yet"
        raise UserError(f"{self.path}: no rows of a model named {self.model}; {there}")

    def holds_rows(self) -> bool:
        """Whether anything was ever written of this model."""
        return any(self.files(kind) for kind in _KINDS)

    def facts(self) -> dict[str, int | None]:
        """n_parameters, tokens_per_step and final_step, None where nobody told. UserError: no such file, or damaged."""
        path = self._facts_file()
        try:
            facts = json.loads(path.read_text())
            return {name: facts.get(name) for name in _FACTS}
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path}: not the facts of a monitored model; is this a monitor's folder?"
            ) from error

    def write_facts(self, **facts: Any) -> None:
        """Set some of n_parameters, tokens_per_step, final_step, and whatever else is worth knowing."""
        path = self._facts_file()
        known = json.loads(path.read_text()) if path.exists() else {}
        with written(path) as temporary:
            temporary.write_text(json.dumps(known | facts, indent=1, sort_keys=True) + "\n")

    def drop_after(self, step: int) -> None:
        """Remove every row of a step after `step`."""
        for kind in _KINDS:
            for last, path in self.files(kind).items():
                if last <= step:
                    continue
                rows = [row for row in tables.read(_table(kind), path).to_pylist() if row["step"] <= step]
                path.unlink()
                if rows:
                    self.add(kind, step, rows)

    def add(self, kind: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows to the file of a step, beside those that it already holds."""
        table, path = _table(kind), self.file(kind, step)
        held = tables.read(table, path).to_pylist() if path.exists() else []
        by_key = {tuple(row[name] for name in table.key): row for row in [*held, *rows]}
        tables.write(tables.from_rows(table, by_key.values()), path)

    def _facts_file(self) -> Path:
        return self.path / "models" / f"{self.model}.json"


def _table(kind: str) -> tables.Table:
    return {
        "features/weights": tables.FEATURES,
        "diagrams/weights": tables.DIAGRAMS,
        "training": tables.TRAINING,
        "metrics/monitor": tables.METRICS,
    }[kind]


def write_snapshot(
    folder: Folder,
    step: int,
    matrices: Iterator[tuple[str, np.ndarray]],
    settings: weights.Settings,
    metadata: Mapping[str, str],
) -> weights.Features:
    """Compute and write the features and diagrams of one snapshot; the features of the whole model come back."""
    features, diagrams = weights.describe(matrices, settings, model=folder.model)
    where: dict[str, Any] = {"model": folder.model, "step": step, "source": SOURCE}
    # Diagrams first: who sees the features of a step finds its diagrams there too.
    tables.write(tables.diagram_rows(diagrams, **where), folder.file("diagrams/weights", step), metadata)
    tables.write(tables.feature_rows(features, **where), folder.file("features/weights", step), metadata)
    return features[tables.ALL_LAYERS]


@dataclass
class Log:
    """Losses and metrics that have been measured and not yet been written.

    A loss may be a tensor on a GPU: its value is asked for when it is written, not when it is measured, since
    asking makes the training wait.
    """

    folder: Folder
    snapshots: set[int] = field(default_factory=set)
    _training: dict[int, dict[str, Any]] = field(default_factory=dict)
    _metrics: dict[tuple[int, str], Any] = field(default_factory=dict)

    def training(self, step: int, loss: Any, gradient_norm: Any, learning_rate: Any) -> None:
        """One row of the training log."""
        self._training[step] = {"loss": loss, "gradient_norm": gradient_norm, "learning_rate": learning_rate}

    def metric(self, step: int, name: str, value: Any) -> None:
        """One metric of one step."""
        self._metrics[step, name] = value

    def write(self, step: int) -> None:
        """Write what there is as the files of `step`; the loss of a snapshot is a metric too."""
        log = {
            at: {name: _number(value) for name, value in values.items()}
            for at, values in self._training.items()
        }
        metrics = {key: _number(value) for key, value in self._metrics.items()}
        metrics |= {(at, "training_loss"): log[at]["loss"] for at in log if at in self.snapshots}
        if log:
            self.folder.add("training", step, [{"step": at, **values} for at, values in log.items()])
        if metrics:
            named = [
                {"model": self.folder.model, "step": at, "metric": name, "value": value}
                for (at, name), value in metrics.items()
            ]
            self.folder.add("metrics/monitor", step, named)
        self._training.clear()
        self._metrics.clear()


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
