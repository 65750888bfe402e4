"""`python -m studies.study FOLDER [RUN ...]` gathers the small tables of finished runs into FOLDER, and computes every
number from the small tables that are there: results.md and its tables, in half a minute and without training.

`make study` trains what is missing and calls it; docs/study.md says what is asked.
"""

from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.study.corrections import corrections
from studies.study.forecasts import forecast_table
from studies.study.questions import FOLLOWED, study_tables
from toposcale.io.errors import UserError

FILES = {"models": "models.csv", "series": "series.csv.gz", "early": "early.csv.gz"}

HEAD = """# Results of the study

Written by `make study ONLY=analysis`; [the plan](../../../docs/study.md) was written before."""

CONFIRMATORY = "study"
"""The run that answers the primary questions; every other one is exploratory."""


def main(folder: Path, runs: list[Path]) -> None:
    for run in runs:
        features, metrics, models = small_tables.read(run)
        for name, table in small_tables.gathered(features, metrics, models, FOLLOWED).items():
            small_tables.write(table, folder / run.name / FILES[name])
    names = sorted(path.name for path in folder.glob("*") if (path / FILES["models"]).exists())
    if not names:
        raise UserError(f"{folder}: no tables of a finished study; `make study` trains it")
    sections = [analysed(folder / name) for name in names]
    (folder / "results.md").write_text("\n\n".join([HEAD, *sections]) + "\n")
    print(folder / "results.md")


def analysed(folder: Path) -> str:
    """Write the tables of results of one run, and tell them as the section of a page."""
    models, series, early = (pd.read_csv(folder / file) for file in FILES.values())
    confirmatory = folder.name == CONFIRMATORY
    tables = (*small_tables.long_tables(series, early), models)
    found = study_tables(*tables, confirmatory=confirmatory)
    found["forecasts"] = forecast_table(series, early, models)
    found["corrections"] = corrections(*tables, (series, early), found["exploratory"], confirmatory=confirmatory)
    head = f"## {folder.name}: {len(models)} runs in {models['configuration'].nunique()} configurations"
    return f"{head}\n\n{small_tables.told(found, folder, '###')}"


if __name__ == "__main__":
    small_tables.run(main)
