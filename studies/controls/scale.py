"""Scores of H0 among surrogates by size: `PYTHONPATH=workflow python -m studies.controls.scale TABLES RUN`.

Question 5 of the plan. It writes `sizes.csv`: the models that `studies.controls.train` trained, where they are there, and
the models of the default run (`make run`) at 30% of their training and at its end, in the folder RUN.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

from studies import small_tables
from studies.controls.train import scores_of
from toposcale.features import weights
from toposcale.io import tensor_files

SHARES = {"default run": 0.3, "default run, end": 1.0}
TRAINED_HERE = "600 steps, batch 32"
SCORES = ("mean_score", "token_embedding", "rotated_token_embedding")
SETTINGS = weights.WeightSettings(features=("topology",), surrogate_draws=20, max_dimension=0)


def default_run(run: Path) -> pd.DataFrame:
    """Return the scores of the models of a finished run at the shares of their training."""
    models = pd.read_parquet(run / "tables/models.parquet")
    rows = []
    for trained, share in SHARES.items():
        for model in models.sort_values("n_parameters").to_dict("records"):
            step = int(share * model["final_step"])
            arrays, _ = tensor_files.read(run / f"checkpoints/{model['model']}/step-{step:08d}.safetensors")
            matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
            facts = {"size": model["model"], "seed": model["seed"], "n_parameters": model["n_parameters"]}
            rows.append(facts | scores_of(matrices, SETTINGS, (model["model"],)) | {"trained": trained})
    return pd.DataFrame(rows)


def slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the slopes of the scores on the decimal logarithm of the parameters, with 95% t intervals."""
    rows = []
    for name in SCORES:
        fit = linregress(np.log10(table["n_parameters"]), table[name])
        half = t.ppf(0.975, len(table) - 2) * fit.stderr
        row = {"score": name, "models": len(table), "slope": fit.slope, "standard_error": fit.stderr}
        rows.append(row | {"low": fit.slope - half, "high": fit.slope + half})
    return pd.DataFrame(rows)


def main(folder: Path, run: Path) -> None:
    """Write and print the tables."""
    parts = []
    if (folder / "scale.csv").exists():
        trained = pd.read_csv(folder / "scale.csv").drop(columns=["model", "validation_loss"])
        parts.append(trained.sort_values(["n_parameters", "seed"]).assign(trained=TRAINED_HERE))
    path = folder / "sizes.csv"
    if (run / "tables/models.parquet").exists():
        parts.append(default_run(run))
    elif path.exists():
        before = pd.read_csv(path)
        parts.append(before[before["trained"].isin(SHARES)])
    table = pd.concat(parts, ignore_index=True)
    small_tables.write(table, path)
    table = pd.read_csv(path)  # with the digits that are kept, so that the slopes are the same without the run
    by_training = [slopes(part).assign(trained=name) for name, part in table.groupby("trained") if len(part) > 3]
    small_tables.write(pd.concat(by_training, ignore_index=True), folder / "slopes.csv")
    print(small_tables.markdown(table))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
