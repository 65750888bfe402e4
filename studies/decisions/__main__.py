"""`python -m studies.decisions FOLDER [RUN]` gathers the small tables of a finished run into FOLDER, and computes every
number of docs/decisions.md from the small tables that are there, in a few seconds and without training.
"""

from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.decisions.own import (
    ALTERNATIVE,
    alternatives_of,
    decision_table,
    policy_table,
    where_starting_was_right,
)
from toposcale.analysis.histories import histories_from_tables
from toposcale.analysis.regret import MEANS
from toposcale.forecasting.history import History
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.training.schedules import planned

FEATURES = ["neural_persistence", "frobenius_norm"]
FACTS = ["model", "family", "entry", "cell", "seed", "n_parameters", "tokens_per_step", "final_step"]
PLAN = ["learning_rate", "warmup_steps", "shape"]
POLICY_COLUMNS = [
    "decisions",
    "policy",
    "n_decisions",
    "n_undecided",
    "n_models",
    *MEANS[MEANS.index("share_best") :],
]
DIGITS = 6
HEAD = """# Results of the decisions

Written by `make decisions ONLY=analysis`; [what was done](../../../docs/decisions.md)."""
FILES = {name: f"{name}.csv" for name in ("models", "metrics", "features")} | {"log": "log.csv.gz"}


def main(folder: Path, runs: list[Path]) -> None:
    for run in runs:
        for name, table in gathered(run).items():
            small_tables.write(table, folder / FILES[name], DIGITS)
    if not (folder / FILES["models"]).exists():
        raise UserError(f"{folder}: no tables of finished decisions; `make decisions` trains them")
    small = {name: pd.read_csv(folder / file) for name, file in FILES.items()}
    histories = histories_of(**small)
    decisions = decision_table(histories, alternatives_of(small["models"], histories))
    policies, right = policy_table(decisions)[POLICY_COLUMNS], where_starting_was_right(decisions)
    decisions = decisions.drop(columns="truth")  # all of them were observed
    for name, table in {"decisions": decisions, "policies": policies, "right": right}.items():
        small_tables.write(table, folder / f"{name}.csv", DIGITS)
    parts = {"Where starting was right": right, "Policies": policies}
    sections = [f"## {title}\n\n{small_tables.markdown(table)}" for title, table in parts.items()]
    (folder / "results.md").write_text("\n\n".join([HEAD, *sections]) + "\n")
    print(folder / "results.md")


def gathered(run: Path) -> dict[str, pd.DataFrame]:
    """What the results are computed from: the models with their plans and losses, and the log and features of base runs."""
    features, metrics, models = small_tables.read(run)
    small_tables.check_finished(metrics, models)
    base = models.loc[~models["entry"].str.fullmatch(ALTERNATIVE), "model"]
    log = pd.concat(
        tables.read(schemas.TABLES["training"], run / f"training/{model}.parquet")
        .to_pandas()
        .assign(model=model)
        for model in base
    )
    whole = features[(features["layer"] == schemas.ALL_LAYERS) & (features["source"] == "weights")]
    return {
        "models": models[FACTS + PLAN],
        "log": log[["model", "step", "loss", "gradient_norm"]],
        "metrics": metrics[metrics["metric"] == "validation_loss"],
        "features": whole[whole["feature"].isin(FEATURES) & whole["model"].isin(base)],
    }


def histories_of(
    models: pd.DataFrame, log: pd.DataFrame, metrics: pd.DataFrame, features: pd.DataFrame
) -> list[History]:
    """The runs with their plans, which follow from the shape, the peak and the length."""
    rows, knots = [], []
    for facts in models.to_dict("records"):
        plan = {name: facts[name] for name in ("shape", "warmup_steps")}
        plan |= {"peak": facts["learning_rate"], "steps": facts["final_step"]}
        row, of_model = planned(facts, {"schedule": plan})  # type: ignore[arg-type]
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
    small_tables.run(main)
