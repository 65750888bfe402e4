"""The study of many runs: `study.py FOLDER [RUN ...]` gathers the small tables of finished runs into FOLDER, and computes
every number from the small tables that are there: results.md and its tables, in a minute and without training.

`make study` trains what is missing and calls it; docs/study.md says what is asked.
"""

import sys
from pathlib import Path

import pandas as pd

from _markdown import markdown
from toposcale.analysis import forecasts_over_runs, study
from toposcale.io import tables
from toposcale.io.errors import UserError

NAMES = ("models", "series", "early")


def main(folder, *runs):
    folder = Path(folder)
    for run in map(Path, runs):
        if (run / "tables/features.parquet").exists():
            gather(run, folder)
    names = sorted(path.name for path in folder.glob("*") if (path / "models.csv").exists())
    if not names:
        raise UserError(f"{folder}: no tables of a finished study; `make study` trains it")
    parts = [
        "# Results of the study\n\nWritten by `make study ONLY=analysis`; [the plan](../study.md) was written before."
    ]
    parts += [analysed(folder / name) for name in names]
    (folder / "results.md").write_text("\n\n".join(parts) + "\n")
    print(folder / "results.md")


def gather(run, folder):
    whole = [
        tables.read_checked(run / f"tables/{name}.parquet").to_pandas()
        for name in ("features", "metrics", "models")
    ]
    target = folder / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name, table in study.small_tables(*whole).items():
        table.to_csv(target / f"{name}.csv", index=False, float_format=f"%.{study.DIGITS}g")


def analysed(folder):
    models, series, early = (pd.read_csv(folder / f"{name}.csv") for name in NAMES)
    found = study.study_tables(*study.long_tables(series, early), models)
    found["forecasts"] = forecasts_over_runs.forecast_table(series, early, models)
    said = [f"## {folder.name}: {len(models)} runs in {models['cell'].nunique()} cells"]
    for name, table in found.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format=f"%.{study.DIGITS}g")
        said.append(f"### {name.capitalize()}\n\n{markdown(table)}")
    return "\n\n".join(said)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        sys.exit(f"toposcale: {error}")
