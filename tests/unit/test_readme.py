"""The README has the numbers of the committed tables, and its first program runs as printed."""

import re

import pandas as pd

from paths import ROOT
from studies.decisions import PUBLISHED_RUNS
from studies.decisions.forecasts import ALONE
from studies.decisions.judge import EXPECTED_REGRET
from studies.decisions.published import judged_points, read

README = (ROOT / "README.md").read_text()
TEXT = " ".join(README.split())
STUDIES = ROOT / "studies"


def counts(judged):
    """Number of decisions, of confident answers, and of those that are right."""
    confident = (judged["confident"] * judged["decisions"]).round()
    right = (judged["confident_right"].fillna(0) * confident).round()
    return [int(values.sum()) for values in (judged["decisions"], confident, right)]


def test_the_first_program_gives_advice(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len(program.split("\n\n")[-1].splitlines()) <= 5
    exec(program, {})
    sentence = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"  => .* nats\. Low confidence: .*\.", sentence)


def test_decisions_between_usual_shapes():
    judged = pd.read_csv(PUBLISHED_RUNS / "groups.csv").query("usual and setting == 'alone'")
    policies = pd.read_csv(PUBLISHED_RUNS / "policies.csv").query("usual and setting == 'alone'")
    decisions, confident, right = counts(judged)
    means = policies.groupby("policy")["regret"].mean()
    usual = [
        (point.base, start.run)
        for point in judged_points(read(PUBLISHED_RUNS))
        for start in point.starts
        if point.base.is_usual and start.run.is_usual
    ]
    assert len(usual) == decisions
    runs = [run for pair in usual for run in pair]
    assert len({run.history.model for run in runs}) == 320
    assert len({run.source for run in runs}) == 6
    assert len(judged) == 10
    assert (
        f"At {decisions} decisions between usual shapes (320 runs, six sources) the advice gives up "
        f"{means[EXPECTED_REGRET]:.3f} nats, the published Chinchilla surface {means['chinchilla']:.3f}, continuing "
        f"{means['always_continue']:.3f}, the next size {means['next_size']:.3f} (means over ten groups); "
        f"{right} of {confident} confident answers were right"
    ) in TEXT


def test_decisions_with_odd_shapes():
    decisions, confident, right = counts(
        pd.read_csv(PUBLISHED_RUNS / "groups.csv").query("not usual and setting == 'alone'")
    )
    assert f"at {decisions} decisions with very deep or flat models {right} of {confident}" in TEXT


def test_forecasts():
    rows = pd.read_csv(PUBLISHED_RUNS / "forecasts.csv")
    rows = rows[(rows["method"] == "joint") & (rows["known"] == ALONE)]
    sources = rows[(rows["n"] >= 20) & ~rows["source"].str.contains(", ") & (rows["source"] != "all")]
    assert len(sources) == 7
    pretraining = rows[~rows["source"].str.contains(", ") & (rows["source"] != "all")]
    assert len(pretraining) == 11
    assert (
        f"a mean error of {sources['mean_error'].mean():.3f} nats in the seven sources with 20 or more forecasts "
        f"({pretraining['mean_error'].mean():.3f} in all eleven)"
    ) in TEXT
    least = pretraining.loc[pretraining["inside"].idxmin()]
    assert f"in another one {least['inside']:.0%} of three" in TEXT
    assert least["n"] == 3
    assert f"({1 - sources['refused'].mean():.0%}; in one source {1 - sources['refused'].max():.0%})" in TEXT
    assert f"cover at least {int(1000 * sources['inside'].min()) / 10:.1f}% of the ends" in TEXT  # rounded down


def test_topology():
    seeds = list((STUDIES / "paper_seeds/tables").glob("seed-*.csv.gz"))
    assert len(seeds) == 8
    assert len((STUDIES / "paper_seeds/tables/findings.csv").read_text().splitlines()) == 1
    fourth = pd.read_csv(STUDIES / "study4/tables/primary.csv").query("statistic == 'mean'")
    of = {question: rows["estimate"].tolist() for question, rows in fourth.groupby("question")}
    assert fourth["n_models"].groupby(fourth["rate"]).first().sum() == 3200
    assert (
        "to that of matrices with the same singular values ({:+.3f}, {:+.3f})".format(*of["h0 beyond surrogates"])
        in TEXT
    )
    given_norms = pd.read_csv(STUDIES / "study4/tables/secondary.csv").query("question == 'h0_mean given the norms'")
    assert (
        "given the norms ({:+.3f} at the learning rate 0.003, {:+.3f} at 0.01)".format(*given_norms["estimate"]) in TEXT
    )
    assert "the nuclear norm adds to H0 ({:+.3f}, {:+.3f})".format(*of["nuclear norm beyond h0"]) in TEXT
