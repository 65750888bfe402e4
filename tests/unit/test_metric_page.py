"""The page on `toposcale test-metric` runs as printed, and the table of its rates is that of the study."""

import re
import shlex

import pytest

from paths import ROOT
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
