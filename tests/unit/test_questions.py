"""The registry of questions: docs/statistics.md says what it says, and one more entry is all that a new question takes."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from paths import ROOT
from planted_features import four_models
from toposcale.analysis import questions
from toposcale.analysis.controls import CONTROLS, NOTHING, Control
from toposcale.analysis.questions import QUESTIONS
from toposcale.analysis.verdicts import POOLED, verdict_tables
from toposcale.io.schemas import TABLES


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_page_tells_every_question_and_what_it_holds_fixed(question):
    row = rf"\| `{question.name}` \| .+\? .*\| `{question.control}` \| .+ \| .+ \|\n"
    assert re.search(row, (ROOT / "docs/statistics.md").read_text())


def test_every_question_takes_its_numbers_from_a_column_of_the_correlations():
    for question in QUESTIONS.values():
        assert question.control in (NOTHING, *CONTROLS)
        assert question.estimate in TABLES["pooled_correlations"].names


def test_a_question_and_a_control_more_are_an_entry_each(monkeypatch):
    """Given the stable rank: what feels the noise of the loss tells more, and nothing else changes."""
    run = four_models()
    before = verdict_tables(*run, seed=1, resamples=20)
    control = Control("stable_rank", ("stable_rank",), missing="no stable rank at these checkpoints")
    monkeypatch.setitem(CONTROLS, "stable_rank", control)
    question = replace(QUESTIONS["beyond_the_norm"], name="beyond_the_rank", control="stable_rank")
    monkeypatch.setitem(questions.QUESTIONS, "beyond_the_rank", question)
    tables = verdict_tables(*run, seed=1, resamples=20)
    verdicts = tables["verdicts"].set_index(["model", "question", "feature"])
    assert verdicts.answer[POOLED, "beyond_the_rank", "neural_persistence"] == "yes"
    # Of the rank itself nothing is left once it is held fixed.
    assert verdicts.answer[POOLED, "beyond_the_rank", "stable_rank"] == "not tested"
    for name in ("tested_features", "sensitivity", "power"):
        assert "beyond_the_rank" in set(tables[name]["question"])
    others = tables["verdicts"].query("question != 'beyond_the_rank'").reset_index(drop=True)
    pd.testing.assert_frame_equal(others, before["verdicts"], check_exact=True)
