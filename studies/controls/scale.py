"""Scores of H0 among surrogates by size: `PYTHONPATH=workflow python -m studies.controls.scale TABLES RUN`.

Question 5 of the plan. It writes `sizes.csv`, the models that `studies.controls.train` trained, and the models of the
default run (`make run`) at 30% of their training and at its end, in the folder RUN; `slopes.csv`; and `occurring.csv`, the
rows of token embeddings whose characters occur in the text, and the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

from studies import small_tables
from studies.controls.train import TOKEN_EMBEDDING, scores_of
from toposcale.features import weights
from toposcale.io import tensor_files
from toposcale.training import corpus

SHARES = {"default run": 0.3, "default run, end": 1.0}
TRAINED_HERE = "600 steps, batch 32"
SCORES = ("mean_score", "token_embedding", "rotated_token_embedding")
SETTINGS = weights.WeightSettings(features=("topology",), surrogate_draws=20, max_dimension=0)


def matrices_of_run(run: Path) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Yield the facts and the matrices of the models of a finished run, at the shares of their training."""
    models = pd.read_parquet(run / "tables/models.parquet").sort_values("n_parameters")
    for trained, share in SHARES.items():
        for model in models.to_dict("records"):
            step = int(share * model["final_step"])
            arrays, _ = tensor_files.read(run / f"checkpoints/{model['model']}/step-{step:08d}.safetensors")
            facts = {"size": model["model"], "seed": model["seed"], "n_parameters": model["n_parameters"]}
            yield facts | {"trained": trained}, {name: array for name, array in arrays.items() if array.ndim == 2}


def default_run(run: Path) -> pd.DataFrame:
    """Return the scores of the models of a finished run."""
    return pd.DataFrame(
        facts | scores_of(matrices, SETTINGS, (facts["size"],)) for facts, matrices in matrices_of_run(run)
    )


def occurring_rows(run: Path) -> pd.DataFrame:
    """Return the scores of the token embeddings of a finished run: of all rows, of those whose characters occur in the
    training text, and of the others."""
    text = corpus.load_corpus(run / "corpus/tokens.safetensors")
    occurs = np.bincount(text.train, minlength=text.vocab_size) > 0
    chosen = {"all_rows": occurs | True, "occurring": occurs, "never_occurring": ~occurs}
    rows = []
    for facts, matrices in matrices_of_run(run):
        parts = {name: matrices[TOKEN_EMBEDDING][kept] for name, kept in chosen.items()}
        scores = {name: _score(part) for name, part in parts.items()}
        rows.append({"trained": facts["trained"], "size": facts["size"], "occurring_rows": occurs.sum()} | scores)
    return pd.DataFrame(rows)


def _score(matrix: np.ndarray) -> float:
    features, _ = weights.compute_features([(TOKEN_EMBEDDING, matrix)], SETTINGS)
    return float(features[TOKEN_EMBEDDING]["h0_surrogate_z"])


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
    """Write and print the tables; without the default run, its rows stay as they are."""
    path = folder / "sizes.csv"
    trained = pd.read_csv(folder / "scale.csv").drop(columns=["model", "validation_loss"]).assign(trained=TRAINED_HERE)
    if (run / "tables/models.parquet").exists():
        of_run = default_run(run)
        small_tables.write(occurring_rows(run), folder / "occurring.csv")
    else:
        of_run = pd.read_csv(path).query("trained in @SHARES")
    table = pd.concat([trained.sort_values(["n_parameters", "seed"]), of_run], ignore_index=True)
    small_tables.write(table, path)
    table = pd.read_csv(path)  # with the digits that are kept, so that the slopes are the same without the run
    by_training = [slopes(part).assign(trained=name) for name, part in table.groupby("trained")]
    small_tables.write(pd.concat(by_training, ignore_index=True), folder / "slopes.csv")
    print(small_tables.markdown(table))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
