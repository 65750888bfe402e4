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
    logs = {
        name: gathered(tables.TRAINING, run.glob(f"training/{name}/step-*.parquet")) for name in params.models
    }
    begun = {name: log for name, log in logs.items() if len(log)}
    if not begun:
        print(f"\nNothing is trained yet in {run}: start the run, and ask again after some checkpoints.\n")
        return
    histories = histories_from_tables(
        gathered(tables.FEATURES, run.glob("features/*/*/step-*.parquet")),
        gathered(tables.METRICS, run.glob("metrics/*/*/step-*.parquet")),
        pd.concat([log.assign(model=name) for name, log in begun.items()]),
        pd.DataFrame([model_row(name, params.models[name], run) for name in begun]),
        schedules=dict.fromkeys(begun, schedule(params.training)),
    )
    budget = params.budget or None
    for history in histories:
        paragraph = advice(history, histories, method=params.method, budget=budget, seed=params.seed)
        print("\n" + textwrap.fill(paragraph, 110), flush=True)


def gathered(table, paths):
    return tables.gather(table, sorted(paths)).to_pandas()


def model_row(name, model, run):
    newest = max(run.glob(f"checkpoints/{name}/step-*.safetensors"))
    return {"model": name, **model, "n_parameters": checkpoints.count_parameters(newest)}


def schedule(training):
    names = ("steps", "learning_rate", "warmup_steps")
    plan = TrainingPlan(**{name: training[name] for name in names})
    return np.array([learning_rate(step, plan) for step in range(plan.steps + 1)])


if __name__ == "__main__":
    job.run(main, snakemake)
