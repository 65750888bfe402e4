"""The page on `toposcale test-metric` runs as printed, and the table of its rates is that of the study."""

import re
import shlex

import pandas as pd
import pytest

from paths import ROOT
from studies import small_tables
from studies.nulls import metrics
from toposcale.__main__ import main

PAGE = (ROOT / "docs/test-metric.md").read_text()
BLOCKS = re.findall(r"```console\n\$ toposcale (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), BLOCKS, ids=["perfect", "tells"])
def test_the_page_prints_what_its_commands_print(command, printed, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == printed


def test_the_program_of_the_page_has_the_answers_of_its_command(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
    assert capsys.readouterr().out == BLOCKS[0][1]


def test_statistics_has_the_rates_of_the_study():
    rows = pd.read_csv(ROOT / metrics.TABLE)
    statistics = (ROOT / "docs/statistics.md").read_text()
    assert small_tables.markdown(metrics.rate_table(rows)) in statistics
    unrelated = rows[rows["data"] == "simulated"]
    assert unrelated["found"].mean() == pytest.approx(0.05, abs=0.01)
    assert (unrelated["found"] - 2 * unrelated["error"]).max() < 0.07
    assert (unrelated["found"] + 2 * unrelated["error"]).min() > 0.03
    planted = rows[rows["data"] == "planted"].dropna(subset=["found"])
    assert planted.groupby(["lead", "runs"])["found"].mean().sub(0.8).abs().max() < 0.1
