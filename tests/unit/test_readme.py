"""The README is short, and its first program runs as printed; test_numbers compares its numbers with tables."""

import re

import pandas as pd

from paths import ROOT

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


def test_topology():
    assert len(list((STUDIES / "paper_seeds/tables").glob("seed-*.csv.gz"))) == 8
    assert len((STUDIES / "paper_seeds/tables/findings.csv").read_text().splitlines()) == 1
    fourth = pd.read_csv(STUDIES / "study4/tables/primary.csv").query("statistic == 'mean'")
    assert fourth["n_models"].groupby(fourth["rate"]).first().sum() == 3200
    beyond = fourth[fourth["question"] == "h0 beyond surrogates"]
    assert (beyond["q"] > 0.05).all()
    assert "In 3,200 runs of 3K and 7K parameters, H0 of the weights did not predict the final loss beyond" in TEXT
