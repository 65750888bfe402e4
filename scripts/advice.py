"""What to do with every model as far as it has come, from whatever files of the run are there."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa

import _job
import _models
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.forecasting import words
from toposcale.forecasting.advice import advise_on
from toposcale.forecasting.decision import Request
from toposcale.io import loss_curves, schemas, tables
from toposcale.io.files import atomic_write


def main(snakemake):
    run, params = Path(snakemake.params.run), snakemake.params
    curves = {name: loss_curves.read(path) for name, path in params.curves.items()}
    joined = [tables.read_user_table(schemas.TABLES["metrics"], path) for path in params.tables]
    files = {name: Files(name, params.files.get(name, {}), curves.get(name), joined) for name in params.models}
    begun = {name for name, there in files.items() if len(there.log) or len(there.metrics)}
    if not begun:
        print(f"\nNothing is known of any model in {run}: start the run, and ask again after some checkpoints.\n")
        return
    named = [name for name in files if name in begun or name in params.planned]
    plans = [plan_of(name, files[name], params.models[name], params.curves.get(name)) for name in named]
    trainings = trainings_from_tables(
        schemas.TABLES["features"].frame([]),
        pd.concat([files[name].metrics for name in begun]),
        pd.concat([files[name].log.assign(model=name) for name in begun]),
        schemas.TABLES["models"].frame([row for row, _ in plans]),
        schedules=schemas.TABLES["schedules"].frame([knot for _, knots in plans for knot in knots]),
    )
    request = Request(**params.decision)
    under_way = [training for training in trainings if training.model in begun and not training.is_over]
    advices = [advise_on(training, trainings, request) for training in under_way]
    for advice in advices:
        print(f"\n{advice}", flush=True)
    print()
    for training in trainings:
        if training.model in begun and training.is_over:
            print(words.finished(training))
    for name in sorted(files.keys() - set(named)):
        print(f"{name}: no loss of it is known yet, so there is nothing to forecast")
    if not advices and files.keys() == begun:
        print(f"\nEvery training of {run} is finished; nothing is left to decide.")
    content = {"models": [dict(advice) for advice in advices]}
    with atomic_write(Path(params.output)) as file:
        file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"\nThe same for a script: {params.output}\n", flush=True)


class Files:
    """What is there of one model: training log and metrics as frames, and the files of its weights and sizes."""

    def __init__(self, name, paths, curve, joined):
        there = {kind: [path for path in files if Path(path).exists()] for kind, files in paths.items()}
        self.weights, self.sizes = there.get("weights", []), there.get("sizes", [])
        metrics = [tables.gather(schemas.TABLES["metrics"], there.get("metrics", []))]
        metrics += [table.filter(pa.compute.equal(table["model"], name)) for table in joined]
        if curve is not None:
            metrics.append(curve.metric_rows(name))
        self.repeated = None if curve is None else curve.repeated
        log = curve.log() if curve is not None else tables.gather(schemas.TABLES["training"], there.get("training", []))
        self.log, self.metrics = log.to_pandas(), pa.concat_tables(metrics).to_pandas()


def plan_of(name, files, facts, curve):
    """A row of the models table, and the rows of the schedules table."""
    return _models.row_and_plan(
        name,
        facts,
        weights=files.weights[-1] if files.weights else None,
        n_parameters=_models.fetched_sizes(files.sizes).get(name),
        curve=curve,
        steps=files.log["step"].to_numpy(),
        rates=files.log["learning_rate"].to_numpy(),
        repeated=files.repeated,
    )


if __name__ == "__main__":
    _job.run(main, snakemake)
