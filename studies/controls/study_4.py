"""Tables and runs of study 4 that the controls read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.study4.configurations import SCORE, TABLE
from studies.study4.questions import SECONDARY

STUDY_4 = Path("studies/study4/tables")
POWER = 0.8
"""Share of cases in which an effect has to be found, by which the studies compare tests."""

SCORE_BEYOND = next(question for question in SECONDARY if question.feature == SCORE)


def runs_of_study_4() -> pd.DataFrame:
    """Return a row for each run of study 4. UserError: they are not there."""
    [runs] = small_tables.read_configurations(STUDY_4, [TABLE], "`make study-4` trains them")
    return runs
