"""The README is short, and its first program runs as printed; test_numbers compares its numbers with tables."""

import re
import shlex
import sys

import pandas as pd

from paths import ROOT
from toposcale.__main__ import main

README = (ROOT / "README.md").read_text()
TEXT = " ".join(README.split())
STUDIES = ROOT / "studies"


def test_readme_program_gives_a_confident_answer(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in program.splitlines() if line]) <= 5
    exec(program, {})
    [answer] = re.findall(r"^  => (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert answer == re.search(r"read up to two thirds: (.*? confident\.)", README)[1]


def test_readme_is_read_in_two_minutes():
    assert len(README.split()) <= 900
    found = README.partition("## What we found")[2].partition("\n## ")[0]
    for bullet in re.split(r"\n- ", found)[1:]:
        text = re.sub(r"(?<=\])\([^)]*\)", "", bullet)
        assert len(text.split()) <= 45
        assert len(re.findall(r"(?<![A-Z])\d[\d.,]*", text)) <= 4


def test_readme_begins_with_what_the_reader_has():
    """Each row of its first table names a command, and only files that are there."""
    table = README.partition("| You have |")[2].partition("\n\n")[0].splitlines()[2:]
    commands = [command for row in table for command in re.findall(r"`toposcale (.*?)`", row)]
    assert {command.split()[0] for command in commands} == {
        *("check", "advise", "curves", "init", "run", "watch", "test-metric", "benchmark")
    }
    assert len(table) == 6
    for name in re.findall(r"examples/[\w./-]+", README):
        assert (ROOT / name).exists(), name


def test_readme_commands_on_checkpoints_run(monkeypatch, capsys, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    block = README.partition("## Checkpoints")[2].partition("```\n")[2].partition("```")[0]
    compare, init, _ = (line.partition("#")[0] for line in block.splitlines())
    for command in (compare, init):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        assert not main()
    assert "9 checkpoints, steps 80 to 400" in capsys.readouterr().out
    assert (tmp_path / "mine.yaml").is_file()


def test_topology():
    assert len(list((STUDIES / "paper_seeds/tables").glob("seed-*.csv.gz"))) == 8
    assert len((STUDIES / "paper_seeds/tables/findings.csv").read_text().splitlines()) == 1
    fourth = pd.read_csv(STUDIES / "study4/tables/primary.csv").query("statistic == 'mean'")
    assert fourth["n_models"].groupby(fourth["rate"]).first().sum() == 3200
    beyond = fourth[fourth["question"] == "h0 beyond surrogates"]
    assert (beyond["q"] > 0.05).all()
    assert "Beyond their sum it predicted the final loss, also in fresh runs; beyond all it did not" in TEXT
    fresh = pd.read_csv(STUDIES / "controls/tables/replicated.csv")
    fresh = fresh[fresh["sample"] == "second plan"].set_index("question")
    assert (fresh.loc["h0 beyond the nuclear norm", "corrected_p"] < 0.05).tolist() == [True, True]
    given_surrogates = fresh.loc["h0 beyond surrogates"]
    assert ((given_surrogates["low"] < 0) & (given_surrogates["high"] > 0)).all()
