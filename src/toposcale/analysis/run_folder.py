"""`toposcale.advise_run`: the advice on every training of a run of the workflow, as far as it has come."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toposcale.analysis.model_rows import ModelRows, fetched_sizes, rows_of_model
from toposcale.analysis.series import NOT_IN_NATS
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.analysis.user_tables import log_columns, metric_table, read_user_table, training_table
from toposcale.forecasting.decision import wording
from toposcale.forecasting.decision.advice import VERSION, Advice, advise_on
from toposcale.forecasting.decision.advise import RUN_FILE
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.logs import loss_curves
from toposcale.forecasting.logs.table_files import read_schedule
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError


@dataclass(frozen=True)
class RunAdvice:
    """Advice on the trainings of a run.

    Attributes
    ----------
    advices : list of Advice
        Of each training that is not finished.
    notes : list of str
        A line for each training that is finished, and for each model without a loss.
    """

    advices: list[Advice]
    notes: list[str]

    def text(self, width: int | None = None) -> str:
        """Return the advices and the notes as text, in lines of a width."""
        return "\n\n".join([*(advice.text(width) for advice in self.advices), "\n".join(self.notes)]).rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return the advices as plain JSON, with the version of its keys."""
        return {"version": VERSION, "models": [dict(advice) for advice in self.advices]}


def advise_run(folder: str | Path) -> RunAdvice:
    """Advise on every training of a run of the workflow, from the files that are there; the run may be under way.

    Parameters
    ----------
    folder : path
        The folder of the run, such as results/default.

    Returns
    -------
    RunAdvice
        The advice on each training, which is that of `toposcale.advise` for its losses and facts.

    Raises
    ------
    UserError
        One line on what is missing or wrong.

    Examples
    --------
    >>> import toposcale
    >>> toposcale.advise_run("results/no-such-run")
    Traceback (most recent call last):
    toposcale.io.errors.UserError: results/no-such-run: not the folder of a run: ...
    """
    folder = Path(folder)
    try:
        stored = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: not the folder of a run: it has no readable {RUN_FILE}; make advice CONFIG=... writes it"
        ) from error
    home = Path(os.path.relpath(folder.resolve().parents[1]))
    user_tables = [read_user_table(schemas.TABLES["metrics"], home / path) for path in stored["tables"]]
    models = {name: Progress(name, facts, user_tables, home) for name, facts in stored["models"].items()}
    return _advise(str(folder), stored, models)


def _advise(run: str, stored: Mapping[str, Any], progress: Mapping[str, "Progress"]) -> RunAdvice:
    with_losses = {name for name, model in progress.items() if len(model.log) or len(model.metrics)}
    if not with_losses:
        return RunAdvice(
            [], [f"Nothing is known of any model in {run}: start the run, and ask again after some checkpoints."]
        )
    listed = [name for name in progress if name in with_losses or stored["models"][name]["is_planned"]]
    rows = [progress[name].rows() for name in listed]
    trainings = trainings_from_tables(
        schemas.TABLES["features"].frame([]),
        pd.concat([progress[name].metrics for name in with_losses]),
        pd.concat([progress[name].log.assign(model=name) for name in with_losses]),
        schemas.TABLES["models"].frame([of_model.model for of_model in rows]),
        schedules=schemas.TABLES["schedules"].frame([row for of_model in rows for row in of_model.schedule]),
    )
    request = Request(**stored["decision"])
    with_loss = [training for training in trainings if training.model in with_losses]
    advices = [advise_on(training, trainings, request) for training in with_loss if training.has_steps_left]
    notes = [wording.finished_sentence(training) for training in with_loss if not training.has_steps_left]
    in_other_units = [of_model.model["model"] for of_model in rows if of_model.model.get("in_nats") is False]
    notes += [f"{name}: no forecast: it is {NOT_IN_NATS}" for name in in_other_units]
    notes += [
        f"{name}: no loss of it is known yet, so there is nothing to forecast"
        for name in sorted(progress.keys() - set(listed))
    ]
    if not advices and progress.keys() == with_losses:
        notes.append(f"Every training of {run} is finished; nothing is left to decide.")
    return RunAdvice(advices, notes)


class Progress:
    """Training log and metrics of one model, as far as they are there, and its rows in the tables of models.

    home: the folder in which the run was made, to which its paths are relative.
    """

    def __init__(self, name: str, stored: Mapping[str, Any], user_tables: list[pa.Table], home: Path) -> None:
        self.name, self.facts = name, stored["facts"]
        self.curve = None if stored["curve"] is None else home / stored["curve"]
        if isinstance(schedule := self.facts.get("schedule"), str):
            self.facts = {**self.facts, "schedule": vars(read_schedule(home / schedule))}
        existing = {
            kind: [
                home / path
                for file in files
                for path in ([file] if (home / file).exists() else sorted(glob(file, root_dir=home)))
            ]
            for kind, files in stored["files"].items()
        }
        self.weights, self.sizes = existing.get("weights", []), existing.get("sizes", [])
        metrics = [tables.gather(schemas.TABLES["metrics"], existing.get("metrics", []))]
        metrics += [table.filter(pc.equal(table["model"], name)) for table in user_tables]
        if self.curve is None:
            log, self.columns = tables.gather(schemas.TABLES["training"], existing.get("training", [])), {}
        else:
            losses = loss_curves.read(self.curve, pattern=stored.get("pattern"))
            log, self.columns = training_table(losses), log_columns(losses)
            metrics.append(metric_table(losses, name))
        self.log, self.metrics = log.to_pandas(), pa.concat_tables(metrics).to_pandas()

    def rows(self) -> ModelRows:
        """Return the rows of the model in the tables models and schedules."""
        return rows_of_model(
            self.name,
            self.facts,
            weights=(self.weights or [None])[-1],
            n_parameters=fetched_sizes(self.sizes).get(self.name),
            curve=self.curve,
            steps=self.log["step"].to_numpy(),
            rates=self.log["learning_rate"].to_numpy(),
            columns_of_log=self.columns,
        )
