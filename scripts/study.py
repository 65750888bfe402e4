"""The study of many runs: `study.py FOLDER [RUN ...]` gathers the small tables of finished runs into FOLDER, and computes
every number from the small tables that are there: results.md and its tables, in a minute and without training.

`make study` trains what is missing and calls it; docs/study.md says what is asked.
"""

import pandas as pd

import _small_tables
from toposcale.analysis import forecasts_over_runs, study
from toposcale.io.errors import UserError

SMALL_TABLES = {"models": "models.csv", "series": "series.csv.gz", "early": "early.csv.gz"}

CONFIRMATORY = "study"
"""The run that answers the primary questions; every other one is exploratory."""


def main(folder, runs):
    for run in runs:
        gather(run, folder)
    names = sorted(path.name for path in folder.glob("*") if (path / SMALL_TABLES["models"]).exists())
    if not names:
        raise UserError(f"{folder}: no tables of a finished study; `make study` trains it")
    parts = [
        "# Results of the study\n\nWritten by `make study ONLY=analysis`; [the plan](../study.md) was written before."
    ]
    parts += [analysed(folder / name) for name in names]
    (folder / "results.md").write_text("\n\n".join(parts) + "\n")
    print(folder / "results.md")


def gather(run, folder):
    target = folder / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name, table in study.small_tables(*_small_tables.read(run)).items():
        _small_tables.write(table, target / SMALL_TABLES[name], study.DIGITS)


def analysed(folder):
    models, series, early = (pd.read_csv(folder / file) for file in SMALL_TABLES.values())
    confirmatory = folder.name == CONFIRMATORY
    found = study.study_tables(*study.long_tables(series, early), models, confirmatory=confirmatory)
    found["forecasts"] = forecasts_over_runs.forecast_table(series, early, models)
    said = [f"## {folder.name}: {len(models)} runs in {models['cell'].nunique()} cells"]
    for name, table in found.items():
        _small_tables.write(table, folder / f"{name}.csv", study.DIGITS)
        said.append(f"### {name.capitalize()}\n\n{_small_tables.markdown(table)}")
    return "\n\n".join(said)


if __name__ == "__main__":
    _small_tables.run(main)
