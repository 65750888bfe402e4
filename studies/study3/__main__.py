"""`python -m studies.study3 FOLDER` computes every number from the small tables of the configurations, once all of them
are there.

`make study-3` trains what is missing (`studies.study3.train`) and calls it; docs/study-3.md says what is asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies import small_tables
from studies.study3 import configurations
from studies.study3.questions import gap_noise, study_tables, tables_of
from toposcale.io.errors import UserError

HEAD = """# Results of the third study

Written by `make study-3 ONLY=analysis`; [the plan](../../../docs/study-3.md) was written before."""


def main(folder: Path, *, root: Path = Path()) -> None:
    """Write the tables of results and results.md into `folder`. UserError: not all configurations are there."""
    models, series, early, gaps = configurations.read_all(folder, configurations.planned(root))
    results = study_tables(tables_of(models, series, early, gaps))
    results["gap_noise"] = gap_noise(gaps, models)
    (folder / "results.md").write_text(f"{HEAD}\n\n{small_tables.told(results, folder, '##')}\n")
    print(folder / "results.md")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except UserError as error:
        sys.exit(f"toposcale: {error}")
