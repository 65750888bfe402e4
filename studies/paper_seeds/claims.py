"""The claims of the paper and of the plan, in the runs of each seed: `python -m studies.paper_seeds.claims` writes them.

The committed tables hold the validation loss and the features of whole models. What needs more (the training loss, layers,
embeddings, landscapes) is not tested, with that reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from studies import small_tables
from toposcale import reproduction
from toposcale.analysis import ANALYSES
from toposcale.analysis.model_rows import rows_of_model
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io import schemas
from toposcale.reproduction.claims import PAPER, PLAN, ClaimAnswer, claims_tables

TABLES = Path("studies/paper_seeds/tables")
PUBLISHED = Path(reproduction.__file__).with_name("published_values.csv")
SOURCES = (PLAN, PAPER)
FACTS = ("model", "configuration", "seed", "n_parameters", "warmup_steps", "final_step")
SETTINGS = {"seed": 42, "resamples": 200, "tasks": ["*"], "fractions": [0.2, 0.3, 0.5]}


def run_tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of a run from the small table of its seed: a row for each model and checkpoint."""
    long = rows.drop(columns=list(FACTS[1:])).melt(["model", "step"], var_name="feature")
    features = long[long["feature"] != VALIDATION_LOSS].assign(source="weights", layer=schemas.ALL_LAYERS)
    metrics = long[long["feature"] == VALIDATION_LOSS].rename(columns={"feature": "metric"})
    models, breakpoints = [], []
    for facts in rows[list(FACTS)].drop_duplicates().to_dict("records"):
        schedule = {"shape": "cosine", "warmup_steps": 200, "peak": 0.003, "steps": 5000}
        known = {str(name): value for name, value in facts.items()}
        known |= {"family": "paper", "tokens_per_step": 64 * 128, "schedule": schedule}
        described = rows_of_model(facts["model"], known)
        models.append(described.model)
        breakpoints += described.schedule
    rows_of: dict[str, Any] = {"features": features, "metrics": metrics, "models": models, "schedules": breakpoints}
    return {
        name: schemas.TABLES[name].frame(part) for name, part in (rows_of | {"training": [], "vectors": []}).items()
    }


def claims_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of claims of the runs of one seed."""
    tables = run_tables(rows)
    for name in ("correlations", "scaling", "transitions", "early_stopping", "forecasts"):
        analysis = ANALYSES[name]
        read = {table: tables[table] for table in analysis.reads}
        made = analysis.load()(**read, **{key: SETTINGS[key] for key in analysis.settings})
        tables |= {table: made.get(table, schemas.TABLES[table].frame([])) for table in analysis.makes}
    published = pd.read_csv(PUBLISHED, dtype={"value": str})
    return claims_tables(**tables, published=published, reproduces=SOURCES)["claims"]


def by_claim(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return a row for each claim: in how many seeds it has each answer, and the reasons why it was not tested."""
    rows = pd.concat([claims_of(table).assign(seed=table["seed"].iloc[0]) for table in tables])
    counts = rows.pivot_table(index=["source", "claim"], columns="answer", aggfunc="size", fill_value=0, sort=False)
    counts = counts.reindex(columns=list(ClaimAnswer), fill_value=0)
    untested = rows[rows["answer"] == ClaimAnswer.NOT_TESTED].groupby(["source", "claim"])
    reasons = {
        key: part["reason"].iloc[0]
        if part["reason"].nunique() == 1
        else f"seed {part['seed'].iloc[0]}: {part['reason'].iloc[0]}"
        for key, part in untested
    }
    return counts.assign(reason=pd.Series(reasons)).reset_index()


if __name__ == "__main__":
    seeds = [pd.read_csv(path) for path in sorted(TABLES.glob("seed-*.csv.gz"))]
    small_tables.write(by_claim(seeds), TABLES / "claims.csv")
