"""Decisions that were really taken: `decisions.py FOLDER [RUN]` gathers the small tables of a finished run into FOLDER, and
computes every number of docs/decisions.md from the small tables that are there, in a minute and without training.
"""

import pandas as pd

import _small_tables
from toposcale.analysis.histories import histories_from_tables
from toposcale.analysis.taken_decisions import (
    ALTERNATIVE,
    alternatives_of,
    evaluate_taken,
    taken_table,
    where_starting_was_right,
)
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.training.schedules import planned

FEATURES = [key.feature for key in (NEURAL_PERSISTENCE, WEIGHT_NORM)]
FACTS = ["model", "family", "entry", "cell", "seed", "n_parameters", "tokens_per_step", "final_step"]
PLAN = ["learning_rate", "warmup_steps", "shape"]
DIGITS = 6
SMALL_TABLES = {name: f"{name}.csv" for name in ("models", "metrics", "features")} | {"log": "log.csv.gz"}


def main(folder, runs):
    for run in runs:
        gather(run, folder)
    if not (folder / SMALL_TABLES["models"]).exists():
        raise UserError(f"{folder}: no tables of finished decisions; `make decisions` trains them")
    small = {name: pd.read_csv(folder / file) for name, file in SMALL_TABLES.items()}
    histories = histories_of(**small)
    taken = taken_table(histories, alternatives_of(small["models"], histories))
    found = {"decisions": taken, "policies": evaluate_taken(taken), "right": where_starting_was_right(taken)}
    for name, table in found.items():
        _small_tables.write(table, folder / f"{name}.csv", DIGITS)
    said = [
        "# Results of the decisions\n\nWritten by `make decisions ONLY=analysis`; [what was done](../decisions.md)."
    ]
    said += [f"## Where starting was right\n\n{_small_tables.markdown(found['right'])}"]
    said += [f"## Policies\n\n{_small_tables.markdown(found['policies'])}"]
    (folder / "results.md").write_text("\n\n".join(said) + "\n")
    print(folder / "results.md")


def gather(run, folder):
    features, metrics, models = _small_tables.read(run)
    base = models.loc[~models["entry"].str.fullmatch(ALTERNATIVE), "model"]
    log = pd.concat(
        tables.read(schemas.TABLES["training"], run / f"training/{model}.parquet")
        .to_pandas()
        .assign(model=model)
        for model in base
    )
    losses = metrics[metrics["metric"] == "validation_loss"]
    ended = losses.merge(models[["model", "final_step"]], on="model").query("step == final_step")
    if missing := sorted(set(models["model"]) - set(ended["model"])):
        raise UserError(f"{len(missing)} of {len(models)} runs are not finished, for example {missing[0]}")
    whole = features[(features["layer"] == schemas.ALL_LAYERS) & (features["source"] == "weights")]
    small = {
        "models": models[FACTS + PLAN],
        "log": log[["model", "step", "loss", "gradient_norm"]],
        "metrics": losses,
        "features": whole[whole["feature"].isin(FEATURES) & whole["model"].isin(base)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in small.items():
        _small_tables.write(table, folder / SMALL_TABLES[name], DIGITS)


def histories_of(models, log, metrics, features):
    """The runs with their plans, which follow from the shape, the peak and the length."""
    rows, knots = [], []
    for facts in models.to_dict("records"):
        plan = {name: facts[name] for name in ("shape", "warmup_steps")}
        plan |= {"peak": facts["learning_rate"], "steps": facts["final_step"]}
        row, of_model = planned(facts, {"schedule": plan})
        rows.append(row)
        knots += of_model
    return histories_from_tables(
        features,
        metrics,
        log,
        schemas.TABLES["models"].frame(rows),
        schedules=schemas.TABLES["schedules"].frame(knots),
    )


if __name__ == "__main__":
    _small_tables.run(main)
