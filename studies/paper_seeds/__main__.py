"""`make paper-seeds`: keep a small table of each seed that is finished, and compute what all of them tell.

    python -m studies.paper_seeds FOLDER [RUN ...]

FOLDER: studies/paper_seeds/tables; RUN: results/paper-seeds, where it is there. docs/reproduction.md has the results.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.paper_seeds.seeds import seed_table, seed_tables


def main(folder: Path, runs: list[Path]) -> None:
    """Write the tables of the seeds and of the results, and print the results."""
    for run in runs:
        features, metrics, models = small_tables.read(run)
        for seed in sorted(set(models["seed"])):
            path = folder / f"seed-{seed}.csv.gz"
            if not path.exists():
                small_tables.write(seed_table(features, metrics, models, seed), path)
    tables = [pd.read_csv(path) for path in sorted(folder.glob("seed-*.csv.gz"))]
    results = seed_tables(tables)
    text = f"# The paper with {len(tables)} seeds\n\n{small_tables.sections(results, folder, '##')}\n"
    (folder / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    small_tables.run(main)
