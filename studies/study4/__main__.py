"""`python -m studies.study4 FOLDER` computes every number from the tables of all configurations.

`make study-4` trains what is missing (`studies.study4.train`) and calls it; studies/study4/README.md says what is asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies import small_tables
from studies.study4.configurations import TABLE, complete, planned
from studies.study4.questions import answers_of, study_tables, verdict
from toposcale.io.errors import UserError

HEAD = """# Results of the fourth study

Written by `make study-4 ONLY=analysis`; [the plan](../../../studies/study4/README.md) was written before."""


def main(folder: Path, *, root: Path = Path()) -> None:
    """Write the tables of results and results.md into `folder`. UserError: not all configurations are there."""
    plan = planned(root)
    done = [one for one in plan if complete(folder, one)]
    if len(done) < len(plan):
        raise UserError(
            f"{folder}: {len(done)} of {len(plan)} configurations are trained; the study is analysed once, after "
            "all of them: make study-4"
        )
    [models] = small_tables.read_configurations(folder, [TABLE], "`make study-4` trains them")
    results = study_tables(models)
    answer = verdict(answers_of(results["primary"])).value
    (folder / "results.md").write_text(f"{HEAD}\n\n**{answer}**\n\n{small_tables.sections(results, folder, '##')}\n")
    print(answer, folder / "results.md", sep="\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except UserError as error:
        sys.exit(f"toposcale: {error}")
