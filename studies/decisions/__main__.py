"""`python -m studies.decisions published` judges forecasts and decisions of the published training runs, `... ablation`
some decisions with parts of the law left out, `... standing [FOLDER ...]` where published runs, also those of more folders,
stand against the published law, `... young` forecasts of runs before the first age, `... small` ends of small runs by the
power law, and `... own [RUN]` the decisions
that were taken here. `... priors` learns the prior, with each source left out, which takes a quarter of an hour. Nothing is
trained. `make decisions ONLY=all` does all of it.

RUN is a folder of results, whose small tables are gathered first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.decisions import OWN_TABLES, PUBLISHED_RUNS, computed
from studies.decisions.ablation import ablation
from studies.decisions.forecasts import by_source, forecasts_of, record, with_smaller
from studies.decisions.headlines import confident_answers, forecast_means, policy_means, regret_differences, run_counts
from studies.decisions.judge import decisions_of, groups, policy_table
from studies.decisions.own import (
    ALTERNATIVE,
    alternatives_of,
    decision_table,
    policy_table_of_own,
    where_starting_was_right,
)
from studies.decisions.picture import ends, regrets
from studies.decisions.priors import learnt
from studies.decisions.published import read
from studies.decisions.small import small_size_table
from studies.decisions.standing import standing_points, standing_table
from studies.decisions.young import young_forecasts, young_table
from toposcale.analysis.decisions import MEANS
from toposcale.analysis.model_rows import rows_of_model
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.forecasting import pictures
from toposcale.forecasting.decision.decision_points import decision_points, judged_points
from toposcale.forecasting.laws.power_law import SMALL_SIZES
from toposcale.forecasting.laws.prior_table import PRIORS, priors
from toposcale.forecasting.laws.record import RECORD
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

FEATURES = ["neural_persistence", "frobenius_norm"]
FACTS = ["model", "family", "entry", "configuration", "seed", "n_parameters", "tokens_per_step", "final_step"]
PLAN = ["learning_rate", "warmup_steps", "shape"]
POLICY_COLUMNS = ["n_decisions", "n_confident", "n_models", *MEANS[MEANS.index("share_best") :]]
DIGITS = 6
TABLES = (
    *(
        "run_counts",
        "priors",
        "forecasts",
        "forecast_means",
        "smaller",
        "groups",
        "confident_answers",
        "policies",
        "policy_means",
        "regret_differences",
    ),
    *("standing", "ablation", "young", "small_sizes", "pairs", "replicate_pairs", "decay_starts"),
)
"""Tables of the published runs, in the order of their page."""
RESAMPLES, SEED = 10_000, 42
HEAD = "Written by `make decisions`; [what was done](../../../docs/decisions.md)."
FILES = {name: f"{name}.csv" for name in ("models", "metrics", "features")} | {"log": "log.csv.gz"}


def published(folder: Path = PUBLISHED_RUNS, images: Path | None = None) -> None:
    """Every number of the page on the published runs, from their tables in `folder`; `images`: folder of its drawings."""
    runs = read(folder)
    forecasts = forecasts_of(runs, priors())
    decisions = decisions_of(judged_points(runs), priors())
    judged = pd.json_normalize(groups(decisions)).drop(columns="regret.oracle")
    judged = judged[[name for name in judged if not str(name).startswith("regret.")]]
    policies = policy_table(decisions, RESAMPLES, SEED)
    sources = {run.family: run.source for run in runs}
    made = {
        "forecasts": by_source(forecasts),
        "smaller": with_smaller(forecasts),
        "groups": judged,
        "policies": policies,
        "policy_means": policy_means(policies, sources),
        "regret_differences": regret_differences(decisions, RESAMPLES, SEED),
        "confident_answers": confident_answers(judged, sources),
        "forecast_means": forecast_means(forecasts),
        "run_counts": run_counts(runs),
    }
    for name, rows in made.items():
        computed.write(rows, folder, name, runs)
    if folder == PUBLISHED_RUNS:
        computed.write(record(forecasts, runs), folder, "record", runs, RECORD)
    write_results(folder)
    if images:
        pictures.write(regrets(policies), images / "decisions.svg")
        pictures.write(ends(forecasts), images / "forecasts.svg")


def write_results(folder: Path = PUBLISHED_RUNS) -> None:
    """The page with every table of the published runs that the folder holds."""
    packaged = {"priors": PRIORS, "small_sizes": SMALL_SIZES}
    files = {name: packaged.get(name, folder / f"{name}.csv") for name in TABLES}
    parts = {name: pd.read_csv(file) for name, file in files.items() if file.exists()}
    _write_results("Results on published runs", folder, parts)


def learn_priors(folder: Path = PUBLISHED_RUNS) -> None:
    """The prior with all sources, and with each one left out."""
    runs = read(folder)
    computed.write(learnt(runs).reset_index(), folder, "priors", runs, PRIORS)


def parts_of_the_law(folder: Path = PUBLISHED_RUNS) -> None:
    """What each part of the law is worth, beside the other numbers of the published runs."""
    runs = read(folder)
    computed.write(ablation(list(decision_points(runs)), priors()), folder, "ablation", runs)
    write_results(folder)


def standing(folders: list[Path], folder: Path = PUBLISHED_RUNS) -> None:
    """Where published runs stand, by source; folders: more runs of the form of those in `folder`."""
    runs = [run for each in (folder, *folders) for run in read(each)]
    computed.write(standing_table(standing_points(runs)), folder, "standing", runs)


def young(folder: Path = PUBLISHED_RUNS) -> None:
    """How often the intervals of runs that are refused as too young contain the end."""
    runs = read(folder)
    computed.write(young_table(young_forecasts(runs, priors())), folder, "young", runs)


def small(folder: Path = PUBLISHED_RUNS) -> None:
    """Errors and coverage of the power law below the sizes of the joint law."""
    runs = read(folder)
    computed.write(small_size_table(runs), folder, "small_sizes", runs, SMALL_SIZES)
    write_results(folder)


def own(runs: list[Path], folder: Path = OWN_TABLES) -> None:
    """Every number of the page on the project's own decisions, from the small tables of `folder`."""
    for run in runs:
        for name, table in gathered(run).items():
            small_tables.write(table, folder / FILES[name], DIGITS)
    if not (folder / FILES["models"]).exists():
        raise UserError(f"{folder}: no tables of finished decisions; `make decisions` trains them")
    small = {name: pd.read_csv(folder / file) for name, file in FILES.items()}
    histories = histories_of(**small)
    decisions = decision_table(histories, alternatives_of(small["models"], histories))
    policies = policy_table_of_own(decisions)[["decisions", "policy", *POLICY_COLUMNS]]
    right = where_starting_was_right(decisions)
    decisions = decisions.drop(columns="truth")  # all of them were observed
    for name, table in {"decisions": decisions, "policies": policies, "right": right}.items():
        small_tables.write(table, folder / f"{name}.csv", DIGITS)
    _write_results("Results of our own decisions", folder, {"where starting was right": right, "policies": policies})


def _write_results(title: str, folder: Path, parts: dict[str, pd.DataFrame]) -> None:
    sections = [f"## {small_tables.title(name)}\n\n{small_tables.markdown(table)}" for name, table in parts.items()]
    (folder / "results.md").write_text("\n\n".join([f"# {title}\n\n{HEAD}", *sections]) + "\n")
    print(folder / "results.md")


def gathered(run: Path) -> dict[str, pd.DataFrame]:
    """What the results are computed from: the models with their plans and losses, and the log and features of base runs."""
    features, metrics, models = small_tables.read(run)
    small_tables.check_finished(metrics, models)
    base = models.loc[~models["entry"].str.fullmatch(ALTERNATIVE), "model"]
    log: pd.DataFrame = pd.concat(
        tables.read(schemas.TABLES["training"], run / f"training/{model}.parquet").to_pandas().assign(model=model)
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
) -> list[TrainingRun]:
    """Return the runs with their schedules, which follow from the shape, the peak and the length."""
    rows, breakpoints = [], []
    for facts in models.to_dict("records"):
        schedule = {name: facts[name] for name in ("shape", "warmup_steps")}
        schedule |= {"peak": facts["learning_rate"], "steps": facts["final_step"]}
        known = {str(name): value for name, value in facts.items()} | {"schedule": schedule}
        described = rows_of_model(facts["model"], known)
        rows.append(described.model)
        breakpoints += described.schedule
    return trainings_from_tables(
        features,
        metrics,
        log,
        schemas.TABLES["models"].frame(rows),
        schedules=schemas.TABLES["schedules"].frame(breakpoints),
    )


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["published"]:
                published(images=Path("docs/images"))
            case ["priors"]:
                learn_priors()
            case ["ablation"]:
                parts_of_the_law()
            case ["small"]:
                small()
            case ["young"]:
                young()
            case ["standing", *folders]:
                standing([Path(folder) for folder in folders])
            case ["own", *runs]:
                own([Path(run) for run in runs if Path(run, "tables/features.parquet").exists()])
            case _:
                sys.exit(
                    "usage: python -m studies.decisions published|priors|ablation|young|standing [FOLDER ...]|own [RUN ...]"
                )
    except UserError as error:
        sys.exit(f"toposcale: {error}")
