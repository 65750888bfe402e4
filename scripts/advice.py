"""One paragraph on each model as far as it has come, from whatever files of the run are there: train on, or scale up."""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

import job
from toposcale import checkpoints, tables
from toposcale.forecasting.advice import advice
from toposcale.forecasting.evaluation import histories_from_tables
from toposcale.training import TrainingPlan, learning_rate


def main(snakemake):
    run, params = Path(snakemake.params.run), snakemake.params
    # A monitored model is where its monitor writes; its training is not ours, and neither is its schedule.
    folders = {name: Path(model["folder"]) for name, model in params.models.items()}
    logs = {name: gathered(tables.TRAINING, {name: folders[name]}, "training/{}") for name in folders}
    begun = {name: folders[name] for name, log in logs.items() if len(log)}
    if not begun:
        print(f"\nNothing is trained yet in {run}: start the run, and ask again after some checkpoints.\n")
        return
    histories = histories_from_tables(
        gathered(tables.FEATURES, begun, "features/*/{}"),
        gathered(tables.METRICS, begun, "metrics/*/{}"),
        pd.concat([logs[name].assign(model=name) for name in begun]),
        pd.DataFrame([model_row(name, params.models[name]) for name in begun]),
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


def model_row(name, model):
    newest = sorted(Path(model["folder"]).glob(f"checkpoints/{name}/step-*.safetensors"))[-1:]
    sizes = [checkpoints.count_parameters(path) for path in newest] or [model["n_parameters"]]
    return {"model": name, **model, "n_parameters": sizes[0]}


def schedule(training):
    names = ("steps", "learning_rate", "warmup_steps")
    plan = TrainingPlan(**{name: training[name] for name in names})
    return np.array([learning_rate(step, plan) for step in range(plan.steps + 1)])


if __name__ == "__main__":
    job.run(main, snakemake)
