"""A local page that follows a training: the explorer, fed anew as checkpoints come.

One process on the loopback address. It only reads: what it computes of a checkpoint stays in its memory.
"""

from __future__ import annotations

import itertools
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from toposcale import checkpoints
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.features import weights
from toposcale.features.names import TRAINING_LOSS
from toposcale.forecasting.advice import advise_on
from toposcale.forecasting.training_run import TrainingRun
from toposcale.io import loss_curves, schemas, tables
from toposcale.io.errors import UserError
from toposcale.monitor.folder import Folder
from toposcale.monitor.records import TABLES
from toposcale.pages import explorer, to_json
from toposcale.pages.columns import rounded
from toposcale.training.schedules import planned

ADDRESS = "127.0.0.1"

_HOST = re.compile(rf"({re.escape(ADDRESS)}|localhost)(:\d{{1,5}})?")

FAMILY = "monitor"
"""All models of one folder are sizes of one family, as in a run of the workflow that reads the folder."""


@dataclass
class Seen:
    """What a folder tells so far: tables as in a run, the training logs in one, and why some of it cannot be read."""

    models: list[dict[str, Any]]
    schedules: dict[str, Any]
    features: pa.Table
    metrics: pa.Table
    diagrams: pa.Table
    log: pd.DataFrame
    gaps: list[str]


class Follower:
    """Reads a folder again and again; holds the parts of the page as of the last time."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
        self.folder = folder
        self._read_so_far: dict[tuple[Any, ...], Any] = {}
        self._signature: Any = None
        self._version = itertools.count(1)
        run = {"name": folder.name, "keys": [], "models": [], "notes": [], "version": 0, "state": "Reading."}
        self.parts: dict[str, dict[str, Any]] = {"run": run}

    def refresh(self) -> None:
        """Read what is new. Whatever is wrong with a file is told on the page."""
        try:
            seen = self._read()
        except (UserError, OSError) as error:
            self.parts = {**self.parts, "run": {**self.parts["run"], "state": str(error)}}
            return
        signature = frozenset(self._read_so_far)
        if signature == self._signature:
            return
        self._signature = signature
        frames = {
            "models": schemas.TABLES["models"].frame(seen.models),
            "features": seen.features.to_pandas(),
            "metrics": seen.metrics.to_pandas(),
        }
        shown = outlooks(seen.models, seen.schedules, frames["metrics"], seen.log)
        frames["metrics"] = smoothed(frames["metrics"], seen.log)
        diagrams = seen.diagrams.to_pandas()
        made = explorer.parts(run=self.folder.name, diagrams=diagrams, extras=shown, **frames)
        steps = frames["features"]["step"]
        state = f"The last checkpoint is that of step {steps.max():,}." if len(steps) else "No checkpoint yet."
        made["run"] |= {"version": next(self._version), "state": " ".join([state, *seen.gaps])}
        self.parts = made

    def _read(self) -> Seen:
        names = sorted(path.stem for path in (self.folder / "models").glob("*.json"))
        nothing = UserError("Nothing is there yet: neither a monitor's rows nor checkpoints.")
        if not any(self.folder.iterdir()):
            raise nothing
        seen = self._monitored(names) if names else self._trained()
        if not seen.models:
            raise nothing
        return seen

    def _monitored(self, names: Sequence[str]) -> Seen:
        """The folder of a `TopologyMonitor`."""
        seen = _nothing()
        for name in names:
            folder = Folder(self.folder, name)
            if not folder.holds_rows():
                continue
            facts = dict(self._once(self.folder / "models" / f"{name}.json", folder.facts))
            seen.schedules[name] = facts.pop("schedule")
            seen.models.append({"model": name, "family": FAMILY, "seed": 0, **facts})
            for kind, table in TABLES.items():
                files = folder.files(kind).values()
                _add(seen, table, name, [self._once(path, tables.read, table, path) for path in files])
        return seen

    def _trained(self) -> Seen:
        """A folder of checkpoints, such as the Trainer's output_dir; their features are computed here."""
        seen, name = _nothing(), self.folder.resolve().name
        source = checkpoints.FolderSource(self.folder)
        steps, gaps = source.usable_steps()
        seen.gaps = list(gaps.values())
        state = source.trainer_state()
        whole = source.checkpoint(steps[-1])
        facts: dict[str, Any] = {"final_step": max(steps), "tokens_per_step": None}
        if state is not None:
            curve = self._once(Path(state), loss_curves.read, state)
            stated = checkpoints.trainer_facts(Path(state), whole)
            facts |= {name: value for name, value in stated.items() if value is not None}
            _add(seen, schemas.TABLES["metrics"], name, [curve.metric_rows(name, steps)])
            _add(seen, schemas.TABLES["training"], name, [curve.log()])
        for step in steps:
            try:
                measured = self._once(source.checkpoint(step), _measured, source.checkpoint(step), name, step)
            except (UserError, OSError) as error:  # the Trainer removes old checkpoints
                seen.gaps.append(str(error))
                continue
            for table, rows in zip((schemas.TABLES["features"], schemas.TABLES["diagrams"]), measured, strict=True):
                _add(seen, table, name, [rows])
        size = checkpoints.count_parameters(whole)
        seen.models.append({"model": name, "family": FAMILY, "seed": 0, "n_parameters": size, **facts})
        return seen

    def _once(self, path: Path, read: Callable[..., Any], *arguments: Any) -> Any:
        """What `read` returns for the arguments, kept until the file or folder `path` changes."""
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._read_so_far:
            value = read(*arguments)
            self._read_so_far = {old: kept for old, kept in self._read_so_far.items() if old[0] != path} | {key: value}
        return self._read_so_far[key]


def smoothed(metrics: pd.DataFrame, log: pd.DataFrame) -> pd.DataFrame:
    """The metrics, with the median loss since the checkpoint before as `training_loss`: that of one batch jumps.

    A loss that is no number stays as it is.
    """
    metrics = metrics.copy()
    for model, rows in metrics[metrics["metric"] == TRAINING_LOSS].groupby("model"):
        logged = log[(log["model"] == model) & np.isfinite(log["loss"].astype(float))].sort_values("step")
        rows = rows[np.isfinite(rows["value"].astype(float))].sort_values("step")
        ends = np.searchsorted(logged["step"], rows["step"], side="right")
        for row, first, end in zip(rows.index, [0, *ends[:-1]], ends, strict=True):
            if end > first:
                metrics.loc[row, "value"] = logged["loss"].iloc[first:end].median()
    return metrics


def outlooks(
    models: Sequence[Mapping[str, Any]], schedules: Mapping[str, Any], metrics: pd.DataFrame, log: pd.DataFrame
) -> dict[str, dict[str, Any]]:
    """For each model its `advice`, a text, and its `forecast`, where there is one.

    `schedules`: by model, the plan of the learning rate that a monitor noted.
    """
    shown: dict[str, dict[str, Any]] = {}
    rows, plans = [], []
    for model in models:
        name = model["model"]
        if model["n_parameters"] is None or model["final_step"] is None:
            shown[name] = {"advice": "No forecast: the size of the model or its last step is not known."}
            continue
        logged = log[log["model"] == name].drop_duplicates("step", keep="last").sort_values("step")
        facts = {"schedule": schedules.get(name)}
        try:
            row, knots = planned(model, facts, logged["step"], logged["learning_rate"])
        except UserError as error:
            shown[name] = {"advice": f"No forecast: {error}."}
            continue
        rows.append(row)
        plans += knots
    trainings = trainings_from_tables(
        schemas.TABLES["features"].frame([]),
        metrics,
        log,
        schemas.TABLES["models"].frame(rows),
        schedules=schemas.TABLES["schedules"].frame(plans),
    )
    return shown | {training.model: _outlook(training, trainings) for training in trainings}


def _outlook(training: TrainingRun, trainings: Sequence[TrainingRun]) -> dict[str, Any]:
    if training.is_over:
        return {"advice": f"The last of {training.final_step:,} steps is done."}
    advice = advise_on(training, trainings)
    outlook: dict[str, Any] = {"advice": str(advice)}
    if course := advice["course"]:
        ends = {end: rounded(course[name]) for end, name in _FAN.items()}
        outlook["forecast"] = {"name": "forecast", "steps": course["step"], **ends}
    return outlook


_FAN = {"values": "loss", "low": "low", "high": "high"}


def _measured(checkpoint: Path, model: str, step: int) -> tuple[pa.Table, pa.Table]:
    """The features and diagrams of a checkpoint's weights."""
    matrices = checkpoints.iterate_matrices(checkpoint)
    features, diagrams = weights.compute_features(matrices, weights.WeightSettings(), model=model)
    where: Mapping[str, Any] = {"model": model, "step": step, "source": "weights"}
    return tables.feature_rows(features, **where), tables.diagram_rows(diagrams, **where)


def _nothing() -> Seen:
    features, metrics, diagrams = (
        tables.from_rows(table, [])
        for table in (schemas.TABLES["features"], schemas.TABLES["metrics"], schemas.TABLES["diagrams"])
    )
    columns = ["model", *schemas.TABLES["training"].frame([]).columns]
    return Seen([], {}, features, metrics, diagrams, pd.DataFrame(columns=columns), [])


def _add(seen: Seen, table: schemas.Table, model: str, rows: Sequence[pa.Table]) -> None:
    if not rows:
        return
    if table is schemas.TABLES["training"]:
        logs = [part.to_pandas().assign(model=model) for part in rows]
        seen.log = pd.concat([seen.log, *logs] if len(seen.log) else logs)
    else:
        setattr(seen, table.name, pa.concat_tables([getattr(seen, table.name), *rows]))


def watch(folder: str | Path, *, port: int, every: float) -> None:
    """Serve the page of a folder until Ctrl-C, looking for new checkpoints every so many seconds; port 0 is any free one.

    UserError: no such folder, or a port that is taken.
    """
    follower = Follower(Path(folder))
    try:
        server = ThreadingHTTPServer((ADDRESS, port), _handler(follower))
    except OSError as error:
        raise UserError(f"port {port}: {error.strerror}; choose another one with --port") from error
    with server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise
        print(f"http://{ADDRESS}:{server.server_port}/ follows {folder}. Ctrl-C ends it.", flush=True)
        try:
            while True:
                follower.refresh()
                time.sleep(every)
        except KeyboardInterrupt:
            print()
        finally:
            server.shutdown()


def _handler(follower: Follower) -> type[BaseHTTPRequestHandler]:
    page = explorer.page(follower.parts["run"], live=True).encode()

    class Handler(BaseHTTPRequestHandler):
        """The page under /, its parts under /data/."""

        def do_GET(self) -> None:
            # Another site could have its name lead to this address, and read along.
            if not _HOST.fullmatch(self.headers.get("Host", "")):
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            if self.path == "/":
                self._send(page, "text/html; charset=utf-8")
                return
            part = follower.parts.get(self.path.removeprefix("/data/"))
            if part is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(to_json(part).encode(), "application/json")

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the terminal belongs to the one line that tells the address."""

    return Handler
