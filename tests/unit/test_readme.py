"""The README has the numbers of the committed tables, and its first program runs as printed."""

import re

import pandas as pd

from paths import ROOT
from studies.decisions import PUBLISHED_RUNS
from studies.decisions.forecasts import ALONE
from studies.decisions.judge import EXPECTED_REGRET

README = (ROOT / "README.md").read_text()
TEXT = " ".join(README.split())
STUDIES = ROOT / "studies"


def test_the_first_program_gives_advice(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in program.splitlines() if line]) <= 5
    exec(program, {})
    sentence = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"  => .* nats\. Low confidence: .*\.", sentence)


def test_it_is_read_in_two_minutes():
    words = re.sub(r"```.*?```|!\[.*?\]\(.*?\)|(?<=\])\([^)]*\)", "", README, flags=re.DOTALL).split()
    assert len(words) <= 700
    found = README.partition("## What we found")[2].partition("\n## ")[0]
    for bullet in re.split(r"\n- ", found)[1:]:
        text = re.sub(r"(?<=\])\([^)]*\)", "", bullet)
        assert len(text.split()) <= 45
        assert len(re.findall(r"(?<![A-Z])\d[\d.,]*", text)) <= 4


def test_decisions_between_usual_shapes():
    policies = pd.read_csv(PUBLISHED_RUNS / "policies.csv").query("usual")
    means = policies.groupby("policy")["regret"].mean()
    groups = int((policies["policy"] == EXPECTED_REGRET).sum())
    assert (
        f"Over {groups} groups of published decisions between usual shapes the advice "
        f"has a mean regret of {means[EXPECTED_REGRET]:.4f} nats, and always continuing {means['always_continue']:.4f}."
    ) in TEXT


def test_forecasts():
    rows = pd.read_csv(PUBLISHED_RUNS / "forecasts.csv")
    rows = rows[(rows["method"] == "joint") & (rows["known"] == ALONE)]
    sources = rows[(rows["n"] >= 20) & ~rows["source"].str.contains(", ") & (rows["source"] != "all")]
    assert len(sources) == 9
    assert 0.02 < sources["mean_error"].mean() < 0.03
    assert (
        "a mean error below 0.03 nats, in the nine sources with 20 or more" in TEXT
    )  # docs/decisions.md has the digits


def test_topology():
    assert len(list((STUDIES / "paper_seeds/tables").glob("seed-*.csv.gz"))) == 8
    assert len((STUDIES / "paper_seeds/tables/findings.csv").read_text().splitlines()) == 1
    fourth = pd.read_csv(STUDIES / "study4/tables/primary.csv").query("statistic == 'mean'")
    assert fourth["n_models"].groupby(fourth["rate"]).first().sum() == 3200
    beyond = fourth[fourth["question"] == "h0 beyond surrogates"]
    assert (beyond["q"] > 0.05).all()
    assert "In 3,200 runs, H0 of the weights was not found to add information" in TEXT
