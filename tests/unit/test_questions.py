"""The registry of questions: docs/statistics.md says what it says, and one more entry is all that a new question takes."""

import re

import pandas as pd
import pytest

from paths import ROOT
from planted_features import four_models
from toposcale.analysis.controls import CONTROLS, Control, questions
from toposcale.analysis.verdicts import POOLED, verdict_tables
from toposcale.io.schemas import TABLES


@pytest.mark.parametrize("control", questions(), ids=lambda control: control.question)
def test_the_page_tells_every_question_and_what_it_holds_fixed(control):
    row = rf"\| `{control.question}` \| .+\? .*\| `{control.name}` \|\n"
    assert re.search(row, (ROOT / "docs/statistics.md").read_text())


def test_questions_read_columns_of_the_correlations():
    for control in questions():
        assert control.estimate in TABLES["pooled_correlations"].names


def test_a_question_more_is_one_entry(monkeypatch):
    """Given the stable rank: what feels the noise of the loss tells more, and nothing else changes."""
    run = four_models()
    before = verdict_tables(*run, seed=1, resamples=20)
    facts = {"missing": "no stable rank at these checkpoints", "question": "beyond_the_rank", "adds_to": "the rank"}
    monkeypatch.setitem(CONTROLS, "stable_rank", Control("stable_rank", ("stable_rank",), **facts))
    tables = verdict_tables(*run, seed=1, resamples=20)
    verdicts = tables["verdicts"].set_index(["model", "question", "feature"])
    assert verdicts.answer[POOLED, "beyond_the_rank", "neural_persistence"] == "yes"
    # Of the rank itself nothing is left once it is held fixed.
    assert verdicts.answer[POOLED, "beyond_the_rank", "stable_rank"] == "not tested"
    for name in ("tested_features", "sensitivity", "power"):
        assert "beyond_the_rank" in set(tables[name]["question"])
    others = tables["verdicts"].query("question != 'beyond_the_rank'").reset_index(drop=True)
    pd.testing.assert_frame_equal(others, before["verdicts"], check_exact=True)
