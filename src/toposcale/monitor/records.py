"""Rows of a monitored model: the tables of the workflow, written snapshot by snapshot."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toposcale.features import weights
from toposcale.io import schemas, tables
from toposcale.monitor.folder import KINDS, Folder

TABLES = {kind: schemas.TABLES[kind.partition("/")[0]] for kind in KINDS}
"""Table of each kind of file."""


def drop_after(folder: Folder, step: int) -> None:
    """Remove every row of a step after `step`."""
    for kind in TABLES:
        for last, path in folder.files(kind).items():
            if last > step:
                rows = [row for row in tables.read(TABLES[kind], path).to_pylist() if row["step"] <= step]
                path.unlink()
                if rows:
                    add(folder, kind, step, rows)


def add(folder: Folder, kind: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to the file of a step; they replace those of the same keys."""
    table, path = TABLES[kind], folder.file(kind, step)
    earlier = tables.read(table, path).to_pylist() if path.exists() else []
    by_key = {tuple(row[name] for name in table.key): row for row in [*earlier, *rows]}
    tables.write(tables.from_rows(table, by_key.values()), path)


def add_logged(folder: Folder, kind: str, step: int, rows: list[dict[str, Any]]) -> None:
    """Add the rows since the last file to the file of `step`; those of the step of the last file go into that one.

    That file may have rows of the same keys: a resumed training may evaluate the weights that it starts from once more.
    """
    first = min((row["step"] for row in rows), default=step)
    if first < step and folder.file(kind, first).exists():
        add(folder, kind, first, [row for row in rows if row["step"] == first])
        rows = [row for row in rows if row["step"] > first]
    if rows:
        add(folder, kind, step, rows)


def write_snapshot(
    folder: Folder,
    step: int,
    matrices: Iterator[tuple[str, np.ndarray]],
    settings: weights.WeightSettings,
    metadata: Mapping[str, str],
    largest_elsewhere: float,
    changes: Mapping[str, weights.Features] = {},
) -> weights.Features:
    """Compute and write the features and diagrams of one snapshot; return the features of the whole model.

    changes: features by layer of what happened since the snapshot before.
    """
    features, diagrams = weights.compute_features(matrices, settings, largest_elsewhere=largest_elsewhere)
    features = {layer: named | changes.get(layer, {}) for layer, named in features.items()}
    where: dict[str, Any] = {"model": folder.model, "step": step, "source": "weights"}
    # Diagrams before features, the reverse order of KINDS: a reader that finds the features of a step finds its diagrams.
    tables.write(tables.diagram_rows(diagrams, **where), folder.file("diagrams/weights", step), metadata)
    tables.write(tables.feature_rows(features, **where), folder.file("features/weights", step), metadata)
    return features[schemas.ALL_LAYERS]


@dataclass
class Log:
    """Losses and metrics that are measured and not yet written.

    A loss may be a tensor on a GPU, and reading its value makes the training wait: it is read when it is written. Until
    then a copy is kept, since the training may write over the tensor.
    """

    folder: Folder
    snapshots: set[int] = field(default_factory=set)
    _training: dict[int, dict[str, Any]] = field(default_factory=dict)
    _metrics: list[tuple[int, str, Any]] = field(default_factory=list)

    def training(self, step: int, loss: Any, gradient_norm: Any, learning_rate: Any) -> None:
        """Keep one row of the training log."""
        row = {"loss": loss, "gradient_norm": gradient_norm, "learning_rate": learning_rate}
        self._training[step] = {name: _copied(value) for name, value in row.items()}

    def metric(self, step: int, name: str, value: Any) -> None:
        """Keep one metric of one step."""
        self._metrics.append((step, name, _copied(value)))

    def write(self, step: int) -> dict[int, float]:
        """Write all that is kept as the files of `step`; the loss of a snapshot is a metric, too. Return losses by step."""
        log = {past: {name: _number(value) for name, value in row.items()} for past, row in self._training.items()}
        add_logged(self.folder, "training", step, [{"step": past, **row} for past, row in log.items()])
        metrics = self._metrics + [(past, "training_loss", log[past]["loss"]) for past in log if past in self.snapshots]
        key = {"model": self.folder.model}
        rows = [key | {"step": past, "metric": name, "value": _number(value)} for past, name, value in metrics]
        add_logged(self.folder, "metrics/monitor", step, rows)
        self._training.clear()
        self._metrics.clear()
        return {past: row["loss"] for past, row in log.items()}


def _copied(value: Any) -> Any:
    """Copy a tensor without waiting for its value."""
    return value.detach().clone() if hasattr(value, "detach") else value


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
