"""Two-stage forecasts of the scores of pythia-70m and pythia-160m, from results of lm-evaluation-harness.

    python -m studies.pythia_scores FOLDER

FOLDER holds a folder pythia-70m and one pythia-160m, each with a JSON file a checkpoint. The logarithm of the
perplexity of LAMBADA takes the place of the loss, since the results hold no other one. Writes
studies/tables/pythia_scores.csv.
"""

import json
import sys
from pathlib import Path

from studies import small_tables
from toposcale.analysis import lm_eval
from toposcale.analysis.model_rows import rows_of_model
from toposcale.analysis.scores import score_tables
from toposcale.io import schemas

# Sizes, batches and learning rates: Biderman et al. 2023, arXiv 2304.01373, table 1 and appendix E.
MODELS = {"pythia-70m": (70_426_624, 1e-3), "pythia-160m": (162_322_944, 6e-4)}
SCORES = ["arc_easy.acc", "lambada_openai.acc", "piqa.acc", "sciq.acc"]
FRACTIONS = (0.2, 0.3, 0.5)


def main(folder: Path) -> None:
    known, rows, breakpoints = [], [], []
    for name, (size, peak) in MODELS.items():
        schedule = {"shape": "cosine", "peak": peak, "warmup_steps": 1430, "final": peak / 10, "steps": 143_000}
        facts = {"n_parameters": size, "tokens_per_step": 2_097_152, "family": "pythia", "schedule": schedule}
        described = rows_of_model(name, facts | {"seed": 0})
        known.append(described.model)
        breakpoints += described.schedule
        for file in sorted((folder / name).glob("*.json")):
            step = int(file.stem.rpartition("step")[2])
            scores = lm_eval.scores(json.loads(file.read_text()))
            rows += [{"model": name, "step": step, "metric": key, "value": value} for key, value in scores.items()]
    made = score_tables(
        schemas.TABLES["metrics"].frame(rows),
        schemas.TABLES["models"].frame(known),
        schemas.TABLES["training"].frame([]),
        schemas.TABLES["schedules"].frame(breakpoints),
        fractions=FRACTIONS,
        score_metrics=SCORES,
        loss_metric="lambada_openai.ppl",
    )
    small_tables.write(made["score_evaluation"], small_tables.TABLES / "pythia_scores.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
