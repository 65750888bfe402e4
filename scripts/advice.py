"""Give advice on every model so far, from the existing files of the run."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

import _job
import models_table
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.analysis.user_tables import read_user_table
from toposcale.forecasting.decision import wording
from toposcale.forecasting.decision.advice import VERSION, advise_on
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.logs import loss_curves
from toposcale.io import schemas, tables


class Files:
    """Existing data of one model: training log and metrics as frames, its checkpoints, and what was noted of them.

    paths: files that are there, or will be, by kind. curve: the user's file with its losses. user_tables: of metrics.
    """

    def __init__(self, name, paths, curve, user_tables):
        self.name, self.curve = name, curve
        existing = {kind: [path for path in files if Path(path).exists()] for kind, files in paths.items()}
        self.weights, self.sizes = existing.get("weights", []), existing.get("sizes", [])
        metrics = [tables.gather(schemas.TABLES["metrics"], existing.get("metrics", []))]
        metrics += [table.filter(pa.compute.equal(table["model"], name)) for table in user_tables]
        if curve is None:
            log, self.notes = tables.gather(schemas.TABLES["training"], existing.get("training", [])), {}
        else:
            losses = loss_curves.read(curve)
            log, self.notes = losses.log(), losses.note_columns()
            metrics.append(losses.metric_rows(name))
        self.log, self.metrics = log.to_pandas(), pa.concat_tables(metrics).to_pandas()

    def rows(self, facts):
        """Return the rows of the model in the tables models and schedules."""
        steps, rates = (self.log[column].to_numpy() for column in ("step", "learning_rate"))
        weights, size = (self.weights or [None])[-1], models_table.fetched_sizes(self.sizes).get(self.name)
        sources = {"weights": weights, "n_parameters": size, "curve": self.curve, "notes": self.notes}
        return models_table.rows_of_model(self.name, facts, steps=steps, rates=rates, **sources)


@_job.script
def main(snakemake):
    run, params = Path(snakemake.params.run), snakemake.params
    user_tables = [read_user_table(schemas.TABLES["metrics"], path) for path in params.tables]
    files = {
        name: Files(name, params.files.get(name, {}), params.curves.get(name), user_tables) for name in params.models
    }
    with_losses = {name for name, file in files.items() if len(file.log) or len(file.metrics)}
    if not with_losses:
        print(f"\nNothing is known of any model in {run}: start the run, and ask again after some checkpoints.\n")
        return
    reported = [name for name in files if name in with_losses or name in params.planned]
    rows_of_models = [files[name].rows(params.models[name]) for name in reported]
    trainings = trainings_from_tables(
        schemas.TABLES["features"].frame([]),
        pd.concat([files[name].metrics for name in with_losses]),
        pd.concat([files[name].log.assign(model=name) for name in with_losses]),
        schemas.TABLES["models"].frame([rows.model for rows in rows_of_models]),
        schedules=schemas.TABLES["schedules"].frame([row for rows in rows_of_models for row in rows.schedule]),
    )
    request = Request(**params.decision)
    under_way = [training for training in trainings if training.model in with_losses and not training.progress.is_over]
    advices = [advise_on(training, trainings, request) for training in under_way]
    for advice in advices:
        print(f"\n{advice}", flush=True)
    print()
    for training in trainings:
        if training.model in with_losses and training.progress.is_over:
            print(wording.finished(training))
    for name in sorted(files.keys() - set(reported)):
        print(f"{name}: no loss of it is known yet, so there is nothing to forecast")
    if not advices and files.keys() == with_losses:
        print(f"\nEvery training of {run} is finished; nothing is left to decide.")
    content = {"version": VERSION, "models": [dict(advice) for advice in advices]}
    _job.write_json(params.output, content, indent=1, allow_nan=False)
    print(f"\nThe same for a script: {params.output}\n", flush=True)
