"""The registry of questions: docs/statistics.md says what it says, and one more entry is all that a new question takes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from planted_features import four_models
from toposcale.analysis import questions
from toposcale.analysis.controls import CONTROLS, NOTHING, Control
from toposcale.analysis.questions import QUESTIONS, Question
from toposcale.analysis.summary import summary_tables
from toposcale.analysis.verdicts import POOLED, verdict_tables
from toposcale.io.schemas import TABLES


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_page_tells_every_question_as_the_registry_does(question):
    row = f"| `{question.name}` | {question.asks} | `{question.control}` | {question.shows} | {question.asked} |"
    assert row in (ROOT / "docs/statistics.md").read_text()


def test_every_question_takes_its_numbers_from_one_place():
    for question in QUESTIONS.values():
        assert bool(question.estimate) != bool(question.test)
        assert question.test or question.control in (NOTHING, *CONTROLS)
        assert question.test or question.estimate in TABLES["pooled_correlations"].names


def test_a_question_and_a_control_more_are_an_entry_each(monkeypatch):
    """Given the stable rank: what feels the noise of the loss tells more, and nothing else changes."""
    run = four_models()
    before = verdict_tables(*run, seed=1, resamples=20)
    control = Control("stable_rank", ("stable_rank",), missing="no stable rank at these checkpoints")
    monkeypatch.setitem(CONTROLS, "stable_rank", control)
    norm = QUESTIONS["beyond_the_norm"]
    question = replace(
        norm,
        name="beyond_the_rank",
        control="stable_rank",
        simulation=lambda *tables: norm.simulation.func(*tables, control=control),
    )
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


def test_a_question_over_seeds_is_an_entry_too(monkeypatch):
    def coin(features, metrics, models, *, metric, seed):
        keys = features[["source", "layer", "feature"]].drop_duplicates()
        return keys.assign(metric=metric, correlation=0.5, p=np.where(keys["feature"] == "h0_total", 0.001, 0.9))

    question = Question("by_a_coin", "?", "nothing", asked="whole models", shows="a number", estimate="", test=coin)
    monkeypatch.setitem(questions.QUESTIONS, "by_a_coin", question)
    tables = verdict_tables(*four_models(), seed=1, resamples=20)
    found = tables["verdicts"].query("question == 'by_a_coin'").set_index("feature")
    assert found.answer["h0_total"] == "yes"
    assert (found.answer.drop("h0_total") == "no").all()
    assert "by_a_coin" in set(tables["over_seeds"]["question"])


def test_a_positive_control_of_another_kind_is_told(monkeypatch):
    """A question over seeds with a simulation of its own: a row of sensitivity, rows of power, and no answer more."""

    class Simulated:
        names, n_points = ("a", "b"), 7

        def test(self, effects, seed, purpose):
            return effects, np.where(effects > 0.5, 1e-4, 0.5)

    def coin(features, metrics, models, *, metric, seed):
        keys = features[["source", "layer", "feature"]].drop_duplicates()
        return keys.assign(metric=metric, correlation=0.1, p=0.5)

    question = Question("by_a_coin", "?", "nothing", asked="whole models", shows="a number", estimate="", test=coin)
    question = replace(question, simulation=lambda *tables: Simulated())
    monkeypatch.setitem(questions.QUESTIONS, "by_a_coin", question)
    features, metrics, models = four_models()
    tables = verdict_tables(features, metrics, models, seed=1, resamples=20)
    row = tables["sensitivity"].set_index("question").loc["by_a_coin"]
    assert (row.found, row.n_runs, row.n_points, row.n_tested) == ("yes", 2, 7, 8)
    assert 0.5 < row.detectable <= 0.6
    assert "by_a_coin" in set(tables["power"]["question"])
    unknown = ("forecast_evaluation", "decision_evaluation", "advice")
    nothing = [TABLES[name].frame([]) for name in unknown]
    names = ("verdicts", "pooled_correlations", "tested_features", "sensitivity")
    said = summary_tables(metrics, *(tables[name] for name in names), *nothing)["summary"]
    assert len(said) == 8
