"""`python -m studies.study2 FOLDER [RUN ...]` gathers the small tables of finished runs into FOLDER, configuration by
configuration, and computes every number from the small tables that are there, once all of them are.

`make study-2` trains what is missing and calls it; docs/study-2.md says what is asked.
"""

from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.norms import MEAN_ROW_NORM, mean_layer_norms, mean_row_norm
from studies.study2.questions import FOLLOWED, check_plan, study_tables
from toposcale import checkpoints
from toposcale.analysis.over_seeds import SHARE
from toposcale.io.schemas import ALL_LAYERS

HEAD = """# Results of the second study

Written by `make study-2 ONLY=analysis`; [the plan](../../../docs/study-2.md) was written before."""


def main(folder: Path, runs: list[Path]) -> None:
    for run in runs:
        features, metrics, models = small_tables.read(run)
        gather(folder, features, metrics, models, row_norms(run, models))
    models, series, early = read(folder)
    found = study_tables(*small_tables.long_tables(series, early), models)
    (folder / "results.md").write_text(f"{HEAD}\n\n{small_tables.told(found, folder, '##')}\n")
    print(folder / "results.md")


def gather(
    folder: Path, features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, rows: pd.DataFrame
) -> None:
    """Write the small tables of every configuration, in files of its own.

    rows: the mean norm of rows, as `row_norms` has it.
    """
    small_tables.check_finished(metrics, models)
    features = pd.concat([features, mean_layer_norms(features), rows])
    for configuration, own in models.groupby("configuration"):
        inside = features[features["model"].isin(own["model"])]
        losses = metrics[metrics["model"].isin(own["model"])]
        for name, table in small_tables.gathered(inside, losses, own, FOLLOWED).items():
            small_tables.write(table, folder / name / f"{configuration}.csv.gz")


def read(folder: Path) -> list[pd.DataFrame]:
    """Models, series and early values of all configurations. UserError: they are not those of the plan."""
    tables = small_tables.read_configurations(folder, ("models", "series", "early"), "`make study-2` trains them")
    check_plan(tables[0])
    return tables


def row_norms(run: Path, models: pd.DataFrame) -> pd.DataFrame:
    """The mean norm over the rows of all matrices at the last checkpoint within `SHARE`, as a feature of the model."""
    rows = []
    for model, end in zip(models["model"], models["final_step"], strict=True):
        paths = {int(path.stem[len("step-") :]): path for path in (run / "checkpoints" / model).glob("step-*")}
        step = max(step for step in paths if step <= SHARE * end + 1e-6)
        value = mean_row_norm(matrix for _, matrix in checkpoints.iterate_matrices(paths[step]))
        rows.append({"model": model, "step": step, "value": value})
    return pd.DataFrame(rows).assign(source="weights", layer=ALL_LAYERS, feature=MEAN_ROW_NORM)


if __name__ == "__main__":
    small_tables.run(main)
