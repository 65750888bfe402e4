"""No headline of the report contradicts the tables that it is made of: few models, few checkpoints, no loss, no power."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted_features import STEPS, four_models
from toposcale.analysis.answers import answer_advice, answer_live_runs
from toposcale.analysis.controls import LEVEL
from toposcale.analysis.summary import summary_tables
from toposcale.analysis.verdicts import pooled_verdicts, verdict_tables
from toposcale.io.schemas import TABLES

TESTS = ("norm of the weights", "spectrum of the weights", "variance of the weights")
QUESTIONS = ("beyond_the_norm", "beyond_the_spectrum", "beyond_the_variance")
EMPTY = ("forecast_evaluation", "decision_evaluation", "advice")


def summary_of(metrics, tables):
    """The table summary of a run, by question."""
    made = ("verdicts", "pooled_correlations", "tested_features", "sensitivity")
    parts = [tables.get(name, TABLES[name].frame([])) for name in made]
    return summary_tables(metrics, *parts, *(TABLES[name].frame([]) for name in EMPTY))["summary"].set_index("question")


@pytest.mark.parametrize(
    ("models", "checkpoints", "loss"),
    [
        (2, 51, "planted"),
        (2, 51, "unrelated"),
        (1, 51, "planted"),
        (1, 22, "planted"),
        (2, 15, "planted"),
        (2, 3, "planted"),
    ],
)
def test_answers_on_features_never_contradict_their_tables(models, checkpoints, loss):
    features, metrics, described = four_models()
    names = list(described["model"][:models])
    few = STEPS[:: max(1, 50 // checkpoints)][:checkpoints]
    features, metrics = (
        rows[rows["model"].isin(names) & rows["step"].isin(few)].reset_index(drop=True) for rows in (features, metrics)
    )
    described = described[described["model"].isin(names)]
    if loss == "unrelated":
        metrics["value"] = 3 - metrics["step"] / 1e4 + np.random.default_rng(0).standard_normal(len(metrics))
    tables = verdict_tables(features, metrics, described, seed=1, resamples=20)
    summary, pooled = summary_of(metrics, tables), pooled_verdicts(tables["verdicts"], "validation_loss")
    first = summary.loc["In one sentence", "answer"]
    assert (summary["answer"].str.split().str.len() <= 40).all()

    follow = pooled[pooled["question"] == "follows_the_loss"].dropna(subset=["estimate"])
    n_following, row = (follow["answer"] == "yes").sum(), summary.loc["Which features follow the validation loss?"]
    assert row["verdict"] == (f"{n_following} of {len(follow)} features" if len(follow) else "Could not be tested")
    assert ("No feature follows it." in row["answer"]) == (n_following == 0 and len(follow) > 0)
    norm = follow.loc[follow["feature"] == "frobenius_norm", "answer"]
    assert ("follows it too" in row["answer"]) == (norm == "yes").any()

    power = tables["sensitivity"].set_index("question")
    for test, question in zip(TESTS, QUESTIONS, strict=True):
        row, answers = summary.loc[f"Which predict the loss beyond the {test}?"], pooled[pooled["question"] == question]
        tested, limit = answers.dropna(subset=["p"]), power.loc[question]
        n_found = (tested["q"] <= LEVEL).sum()
        if tested.empty:
            assert row["verdict"] == "Could not be tested"
            assert "power" not in row["answer"] + row["numbers"]
            continue
        is_sensitive = limit["q"] <= LEVEL
        none = "None found" if is_sensitive else "This run could not have shown it"
        assert row["verdict"] == (f"{n_found} of {len(tested)} tested features" if n_found else none)
        assert ("does not detect the validation loss itself" in row["answer"]) == (not is_sensitive)
        said = row["answer"] + row["numbers"]
        if is_sensitive:
            assert ("almost the loss itself" in said) == np.isnan(limit["detectable"])
            assert np.isnan(limit["detectable"]) or f"correlations of {limit['detectable']:.2f} or more" in said
        assert (f"q = {tested['q'].min():.2g}." in said) == (tested["q"].min() == tested.loc[tested["p"].idxmin(), "q"])
        for counted in re.findall(r"(\d+) of (\d+) testable \((\d+) measured\), (\d+) distinct", said):
            n_tested, testable, measured, distinct = map(int, counted)
            assert distinct <= n_tested <= testable <= measured

    topology = pooled["feature"].str.match("h0|h1|neural")
    found = pooled[topology & (pooled["question"] == QUESTIONS[0]) & (pooled["answer"] == "yes")]
    if pooled[pooled["question"] == QUESTIONS[0]]["p"].isna().all():
        assert first.startswith("This run could not test whether topology predicts the loss beyond the norm")
    elif len(found):
        assert f"found {len(found)} topological feature" in first
    else:
        assert first.startswith("No test found" if power.loc[QUESTIONS[0], "q"] <= LEVEL else "This run could not have")


def test_answers_without_a_loss_are_one_sentence():
    metrics = TABLES["metrics"].frame([])
    summary = summary_of(metrics, {})
    assert summary.index.to_list() == ["In one sentence"]
    assert "No loss is known" in summary["answer"].iloc[0]


@st.composite
def policies(draw):
    """A table decision_evaluation at a share: regrets, and differences that belong to them."""
    regrets = {name: draw(st.floats(0, 0.5)) for name in ("advice", "always_continue", "next_size", "random_stop")}
    rest = draw(st.sets(st.sampled_from(["next_size", "random_stop"])))
    n = draw(st.integers(1, 30))
    base = {"fraction": 0.2, "n_decisions": n, "n_modelled": draw(st.integers(0, n))}
    rows = []
    for name in ("advice", "always_continue", *sorted(rest)):
        saved = regrets["always_continue"] - regrets[name]
        low, high = (draw(st.floats(0, 0.3)) for _ in range(2))
        rows.append(
            base | {"policy": name, "regret": regrets[name], "regret_low": regrets[name] - low, "regret_high": 1.0}
        )
        rows[-1] |= {"regret_saved": saved, "regret_saved_low": saved - low, "regret_saved_high": saved + high}
    return TABLES["decision_evaluation"].frame(rows)


@settings(max_examples=200, deadline=None)
@given(policies())
def test_answer_advice_never_contradicts_its_numbers(table):
    answer, rows = answer_advice(table), table.set_index("policy")
    advice, others = rows.loc["advice"], rows.drop("advice")["regret"]
    assert f"{advice['regret']:.3f} nats" in answer.text
    if advice["n_decisions"] < 10 or advice["n_modelled"] == advice["n_decisions"]:
        assert answer.verdict.startswith("Not tested")
    elif answer.verdict.startswith("Yes"):
        assert advice["regret"] < others["always_continue"]
        assert ("would have helped more" in answer.verdict) == (others.min() < advice["regret"])
    elif answer.verdict.startswith("No,"):
        assert advice["regret"] > others["always_continue"]
    else:
        assert answer.verdict == "Not shown"
        assert advice["regret_saved_low"] <= 0 <= advice["regret_saved_high"]


@given(
    st.lists(st.tuples(st.sampled_from(["", "continue", "extend", "scale up to b"]), st.booleans(), st.floats(0, 1)))
)
def test_answer_live_runs_counts_every_run(rows):
    table = pd.DataFrame(
        [
            {"model": f"m{number}", "fraction": 0.5, "is_live": True, "choice": choice, "confident": confident}
            | {"probability": probability, "sentence": "x.", "on_track": ""}
            for number, (choice, confident, probability) in enumerate(rows)
        ],
        columns=["model", "fraction", "is_live", "choice", "confident", "probability", "sentence", "on_track"],
    )
    answer = answer_live_runs(table)
    assert (answer is None) == (not rows)
    if len(rows) > 1:
        assert sum(map(int, re.findall(r"(\d+)(?:,|$)", answer.verdict))) == len(rows)
        n_unsure = sum(bool(choice) and not confident for choice, confident, _ in rows)
        assert sum(map(int, re.findall(r"\(low confidence\) (\d+)", answer.verdict))) == n_unsure
