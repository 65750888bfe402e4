"""A local page that follows a training: the explorer, refreshed as checkpoints come.

One process on the loopback address. It only reads: what it computes of a checkpoint stays in its memory.
"""

import itertools
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from toposcale import checkpoints
from toposcale.analysis.own_run import rise_sentence, run_answers
from toposcale.analysis.series import NOT_IN_NATS
from toposcale.analysis.user_tables import metric_table, training_table
from toposcale.features import weights
from toposcale.features.weight_changes import relative_changes
from toposcale.forecasting.decision import wording
from toposcale.forecasting.decision.advice import Advice, advise_on
from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.forecasting.runs.facts import FACTS_OF_A_LOG
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS
from toposcale.forecasting.runs.run_input import log_of
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError, message_of, reason_of
from toposcale.monitor.alerts import PROGRESS, Alert, AlertKind, alerts
from toposcale.monitor.folder import Folder, model_names
from toposcale.monitor.outlook import run_of
from toposcale.monitor.records import TABLES
from toposcale.pages import explorer
from toposcale.pages.chart_data import rounded
from toposcale.pages.notify import Notifier
from toposcale.pages.templates import to_json

ADDRESS = "127.0.0.1"

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # All of the page is inside it; its charts compile functions.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

_HOST = re.compile(rf"({re.escape(ADDRESS)}|localhost)(:\d{{1,5}})?")


@dataclass
class Seen:
    """Content of a folder so far."""

    is_monitored: bool
    models: list[dict[str, Any]] = field(default_factory=list)  # facts of each model
    reached: dict[str, int] = field(default_factory=dict)  # by model, the last step done, maybe after the log
    rows: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))  # by table
    missing: list[str] = field(default_factory=list)  # why some of it cannot be read

    def frame(self, name: str) -> pd.DataFrame:
        """Return all rows of a table."""
        rows = self.rows[name] or [_named(schemas.TABLES[name].schema.empty_table(), "")]
        return pa.concat_tables(rows).to_pandas()


class Follower:
    """Reader of a folder; holds the parts of the page as of the last refresh."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: a file; name the folder of a training")
        self.folder = folder
        self._read_so_far: dict[tuple[Any, ...], Any] = {}
        self._used: set[tuple[Any, ...]] = set()  # keys of what the look under way has read or found there
        self._forecasts: dict[str, dict[str, dict[str, Any]]] = {}
        self._signature: Any = None
        self._version = itertools.count(1)
        run = {"name": folder.name, "keys": [], "models": [], "notes": [], "version": 0, "state": "Reading."}
        self.parts: dict[str, dict[str, Any]] = {"run": run}
        self.alerts: dict[str, list[Alert]] = {}

    def refresh(self) -> None:
        """Read what is new. The page shows any error of a file, and stays."""
        try:
            self._refresh()
        except Exception as error:
            self.parts = {**self.parts, "run": {**self.parts["run"], "state": reason_of(error)}}
            self._signature = None  # the same files without the error are news

    def _refresh(self) -> None:
        self._used = set()
        seen = self._read()
        self._read_so_far = {key: self._read_so_far[key] for key in self._used}
        signature = frozenset([*self._used, *seen.missing])
        if signature == self._signature:
            return
        features, metrics, log = (seen.frame(name) for name in ("features", "metrics", "training"))
        extras = outlooks(seen, features, metrics, log, self._forecasts)
        self.alerts = {name: outlook.pop("alerts") for name, outlook in extras.items()}
        made = explorer.parts(
            run=self.folder.name,
            models=pd.DataFrame(seen.models, columns=["model", "n_parameters"], dtype=object),
            features=features,
            metrics=smoothed(metrics, log),
            diagrams=seen.frame("diagrams"),
            extras=extras,
        )
        last = features["step"].max()
        state = f"The last checkpoint is that of step {last:,}." if len(features) else "No checkpoint yet."
        version = next(self._version)
        made = {name: {**part, "version": version} for name, part in made.items()}
        made["run"]["state"] = " ".join([state, *seen.missing])
        self.parts, self._signature = made, signature

    def _read(self) -> Seen:
        if not self.folder.is_dir():
            raise UserError(f"{self.folder} is not there yet: waiting for it.")
        names = model_names(self.folder)
        if names or any(self.folder.iterdir()):
            seen = self._monitored(names) if names else self._trained()
            if seen.models:
                return seen
        raise UserError("Nothing is there yet: neither a monitor's rows nor checkpoints.")

    def _monitored(self, names: Sequence[str]) -> Seen:
        """Read the folder of a `TopologyMonitor`."""
        seen = Seen(is_monitored=True)
        for name in names:
            folder = Folder(self.folder, name)
            if not folder.holds_rows():
                continue
            seen.reached[name] = max(folder.files("features/weights"), default=0)
            seen.models.append({"model": name} | self._once(folder.facts_file, folder.facts))
            for kind, table in TABLES.items():
                for path in folder.files(kind).values():
                    seen.rows[table.name].append(self._once(path, _rows_of, table, path, name))
        return seen

    def _trained(self) -> Seen:
        """Read a folder of checkpoints, such as the Trainer's output_dir, and compute their features."""
        name = self.folder.resolve().name
        source = checkpoints.FolderSource(self.folder)
        steps, missing = source.usable_steps()
        count = checkpoints.Checkpoint(source.checkpoint(steps[-1])).count
        state, reached, unread = _last_state(source)
        seen = Seen(is_monitored=False, reached={name: reached}, missing=[*missing.values(), *unread])
        facts: dict[str, Any] = {"n_parameters": count.total}
        facts |= {"final_step": None, "tokens_per_step": None}
        curve = None
        if state is None and (log := log_of(self.folder)).is_file():
            curve = self._once(log, loss_curves.read, log)
            facts |= {fact: int(getattr(curve.facts, fact)) for fact in FACTS_OF_A_LOG if curve.facts.is_known(fact)}
        elif state is not None:
            curve = self._once(Path(state), loss_curves.read, state)
            facts |= trainer_states.facts(trainer_states.read_state(state), count.without_embeddings)
        if curve is not None:
            seen.rows["metrics"].append(_named(metric_table(curve, name, steps), name))
            seen.rows["training"].append(_named(training_table(curve), name))
        paths = [source.checkpoint(step) for step in steps]
        for step, path, earlier in zip(steps, paths, [None, *paths], strict=False):
            try:
                features, diagrams = self._once(path, _measured, path, name, step, earlier)
            except (UserError, OSError) as error:  # the Trainer removes old checkpoints
                seen.missing.append(message_of(error))
                continue
            seen.rows["features"].append(features)
            seen.rows["diagrams"].append(diagrams)
        seen.models.append({"model": name} | facts)
        return seen

    def _once(self, path: Path, read: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `read`, cached until the file or folder `path` changes."""
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._read_so_far:
            self._read_so_far[key] = read(*arguments)
        self._used.add(key)
        return self._read_so_far[key]


def _rows_of(table: schemas.Table, path: Path, model: str) -> pa.Table:
    """Return the rows of a file of a monitor."""
    return _named(tables.read(table, path), model)


def _named(rows: pa.Table, model: str) -> pa.Table:
    """Return rows with the name of their model, which those of a training log lack."""
    if "model" in rows.schema.names:
        return rows
    return rows.append_column("model", pa.array([model] * len(rows), pa.string()))


def _last_state(source: checkpoints.FolderSource) -> tuple[str | None, int, list[str]]:
    """Return the path of the last readable state of a Trainer, the last step done, and why later states are not read."""
    last, reached = source.last_trainer_state(), max(source.steps())
    unread = list(last.unread.values())
    at_the_end = source.path / trainer_states.FILE_NAME
    if at_the_end.exists():
        try:
            step = trainer_states.read_state(at_the_end)["global_step"]
        except UserError as error:
            unread.append(str(error))
        else:  # written by Trainer.save_state, or left by an earlier training
            if step >= reached:
                return str(at_the_end), step, []
    return last.path, reached, unread


def smoothed(metrics: pd.DataFrame, log: pd.DataFrame) -> pd.DataFrame:
    """Replace `training_loss` by its median since the previous checkpoint: the loss of one batch is noisy."""
    metrics = metrics.copy()
    for model, rows in metrics[metrics["metric"] == TRAINING_LOSS].groupby("model"):
        logged = log[(log["model"] == model) & np.isfinite(log["loss"].astype(float))].sort_values("step")
        rows = rows[np.isfinite(rows["value"].astype(float))].sort_values("step")
        ends = np.searchsorted(logged["step"], rows["step"], side="right")
        losses, values = logged["loss"].to_numpy(float), rows["value"].to_numpy(float, copy=True)
        for index, (first, end) in enumerate(itertools.pairwise([0, *ends])):
            if end > first:
                values[index] = np.median(losses[first:end])
        metrics.loc[rows.index, "value"] = values
    return metrics


def outlooks(
    seen: Seen,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    log: pd.DataFrame,
    earlier: dict[str, dict[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Return for each model its `advice`, a text, its `alerts`, and its `forecast`, if there is one.

    The text has the alerts, the first answers of the report, and the advice. earlier: the outlooks of the last look by its
    stage, which are given again until a log has 5% more steps; it is updated.
    """
    shown: dict[str, dict[str, Any]] = {}
    runs = []
    for facts in seen.models:
        name = facts["model"]
        if facts["n_parameters"] is None or facts["final_step"] is None:
            shown[name] = {"advice": "No forecast: the size of the model or its last step is not known."}
            continue
        try:
            runs.append(run_of(name, facts, log[log["model"] == name], metrics[metrics["model"] == name]))
        except UserError as error:
            shown[name] = {"advice": f"No forecast: {error}."}
    stages = [(run.progress.step, run.final_step <= seen.reached[run.model]) for run in runs]
    stage = repr([seen.models, [(int(np.log(max(1, step)) / np.log(PROGRESS)), is_done) for step, is_done in stages]])
    if stage not in earlier:
        earlier.clear()
        earlier[stage] = {run.model: _outlook(run, runs, seen.reached[run.model]) for run in runs}
    shown |= {model: dict(outlook) for model, outlook in earlier[stage].items()}
    for name, outlook in shown.items():
        described, measured, logged = (table[table["model"] == name] for table in (features, metrics, log))
        begun = [*_alerts_of_log(measured, logged, is_monitored=seen.is_monitored), *outlook.get("alerts", ())]
        lines = [f"Alert: since step {step:,} {text}." for _, step, text in begun]
        answers = map(str, run_answers(measured, described, logged))
        outlook |= {"advice": "\n".join([*lines, *answers, outlook["advice"]]), "alerts": begun}
    return shown


def _alerts_of_log(metrics: pd.DataFrame, log: pd.DataFrame, *, is_monitored: bool) -> Iterator[Alert]:
    """Yield the alerts of the losses of a model."""
    rows = log.drop_duplicates("step", keep="last").sort_values("step")
    # A monitor's row always has a loss; in a log of other origin NaN is a row without one.
    rows = rows if is_monitored else rows.dropna(subset="loss")
    yield from alerts(rows["step"], rows["loss"])
    if sentence := rise_sentence(metrics, log):
        steps = metrics.loc[metrics["metric"] == VALIDATION_LOSS, "step"]
        yield Alert(AlertKind.RISING, int(steps.max()), f"the validation loss is rising: {sentence.removesuffix('.')}")


def _outlook(training: TrainingRun, trainings: Sequence[TrainingRun], reached: int) -> dict[str, Any]:
    if not training.has_steps_left or reached >= training.final_step:
        return {"advice": f"The last of {training.final_step:,} steps is done."}
    advice = advise_on(training, trainings)
    outlook: dict[str, Any] = {"advice": str(advice), "alerts": list(_alerts_of_advice(advice))}
    if not advice.choice and np.isnan(training.tokens_per_step):
        outlook["advice"] += f" It is {NOT_IN_NATS}."
    if curve := advice["forecast_curve"]:
        # It starts at the present loss, near which the law passes.
        now = training.loss_curve.level
        ends = {end: rounded([now, *curve[of]]) for end, of in {"values": "loss", "low": "low", "high": "high"}.items()}
        outlook["forecast"] = {"name": "forecast", "steps": [int(training.measured.steps[-1]), *curve["step"]], **ends}
    return outlook


def _alerts_of_advice(advice: Advice) -> Iterator[Alert]:
    """Yield that a run is off track, and that its forecast is no better than its present loss."""
    run = advice.run
    for track in advice.tracks:
        if track.since is not None:
            yield Alert(AlertKind.OFF_TRACK, track.since, f"the loss is off track: {wording.track(track, run)}")
            break
    now = run.loss_curve.level
    if advice.end is not None and now - advice.end.value < wording.NEGLIGIBLE_REGRET:
        message = f"continuing gains nothing: the forecast of the end is {advice.end.value:.4g}, the loss now {now:.4g}"
        yield Alert(AlertKind.NO_GAIN, run.progress.step, message)


def _measured(checkpoint: Path, model: str, step: int, earlier: Path | None) -> tuple[pa.Table, pa.Table]:
    """Return the features and diagrams of a checkpoint's weights, with their change since an earlier one."""
    opened = checkpoints.Checkpoint(checkpoint)
    features, diagrams = weights.compute_features(opened.matrices(), weights.WeightSettings())
    with suppress(UserError, OSError):  # the Trainer removes old checkpoints
        if earlier is not None:
            before = checkpoints.Checkpoint(earlier).matrices()
            for layer, change in relative_changes(before, opened.matrices()).items():
                features[layer] |= change
    where: Mapping[str, Any] = {"model": model, "step": step, "source": "weights"}
    return tables.feature_rows(features, **where), tables.diagram_rows(diagrams, **where)


def watch(folder: str | Path, *, port: int, every: float, notify: str | None = None) -> None:
    """Serve the page of a folder until Ctrl-C; port 0 is any free one. UserError: no such folder, or a taken port.

    notify: command that is run for each alert, see `Notifier`.
    """
    follower, notifier = Follower(Path(folder)), None if notify is None else Notifier(notify, str(folder))
    try:
        server = _Server((ADDRESS, port), _handler(follower))
    except OSError as error:
        raise UserError(f"port {port}: {error.strerror}; choose another one with --port") from error
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise
        waits = "" if follower.folder.is_dir() else ", which is not there yet"
        print(f"http://{ADDRESS}:{server.server_port}/ follows {folder}{waits}. Ctrl-C ends it.", flush=True)
        try:
            while True:
                follower.refresh()
                if notifier is not None:
                    notifier.look(follower.alerts)
                time.sleep(every)
        except KeyboardInterrupt:
            print()
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    """Server of the page."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(follower: Follower) -> type[BaseHTTPRequestHandler]:
    page = explorer.page(follower.parts["run"], live=True).encode()

    class Handler(BaseHTTPRequestHandler):
        """Serve the page under / and its parts under /data/."""

        timeout = 60  # seconds that an idle connection stays open

        def do_GET(self) -> None:
            # Another site could have its name lead to this address, and read along.
            if not _HOST.fullmatch(self.headers.get("Host", "")):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send(page, "text/html; charset=utf-8")
            elif part := follower.parts.get(self.path.removeprefix("/data/")):
                self._send(to_json(part).encode(), "application/json")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            with suppress(ConnectionError):  # the visitor has left
                self.end_headers()
                self.wfile.write(content)

        def end_headers(self) -> None:
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the terminal shows only the address."""

    return Handler
