"""One paragraph on each model as far as it has come, from whatever files of the run are there: train on, or scale up."""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

import _job
from toposcale import checkpoints
from toposcale.analysis.advice import advice
from toposcale.analysis.forecasts import histories_from_tables
from toposcale.io import loss_curves, schemas, tables
from toposcale.training.trainer import TrainingPlan, learning_rate


def main(snakemake):
    run, params = Path(snakemake.params.run), snakemake.params
    # A monitored model is where its monitor writes; its training is not ours, and neither is its schedule.
    folders = {name: Path(path) for name, path in params.folders.items()}
    curves = {name: loss_curves.read(path, name) for name, path in params.curves.items()}
    logs = {name: gathered(schemas.TRAINING, {name: path}, "training/{}") for name, path in folders.items()}
    begun = {name: path for name, path in folders.items() if len(logs[name])}
    logs = {name: logs[name] for name in begun} | {name: log.to_pandas() for name, (log, _) in curves.items()}
    if not logs:
        print(f"\nNothing is trained yet in {run}: start the run, and ask again after some checkpoints.\n")
        return
    measured = gathered(schemas.METRICS, begun, "metrics/*/{}")
    histories = histories_from_tables(
        gathered(schemas.FEATURES, begun, "features/*/{}"),
        pd.concat([measured, *(metrics.to_pandas() for _, metrics in curves.values())]),
        pd.concat([log.assign(model=name) for name, log in logs.items()]),
        pd.DataFrame([model_row(name, params.models[name], log, run) for name, log in logs.items()]),
        schedules={name: schedule(params.training) for name in begun if folders[name] == run},
    )
    budget = params.budget or None
    for history in histories:
        paragraph = advice(history, histories, method=params.method, budget=budget, seed=params.seed)
        print("\n" + textwrap.fill(paragraph, 110), flush=True)


def gathered(table, folders, pattern):
    files = [
        path
        for name, folder in folders.items()
        for path in sorted(folder.glob(pattern.format(name) + "/step-*.parquet"))
    ]
    return tables.gather(table, files).to_pandas()


def model_row(name, model, log, run):
    row = {"model": name, **model, "final_step": model["final_step"] or log["step"].iloc[-1]}
    if not row["n_parameters"]:
        newest = max(run.glob(f"checkpoints/{name}/step-*.safetensors"))
        row["n_parameters"] = checkpoints.count_parameters(newest)
    return row


def schedule(training):
    names = ("steps", "learning_rate", "warmup_steps")
    plan = TrainingPlan(**{name: training[name] for name in names})
    return np.array([learning_rate(step, plan) for step in range(plan.steps + 1)])


if __name__ == "__main__":
    _job.run(main, snakemake)
