"""The curves to try: published ones, cut; the commands of README and docs/forecasting.md run on them as printed."""

import re
import shlex
import sys

import pandas as pd
import pytest

from paths import ROOT
from toposcale.__main__ import main
from toposcale.datasets import load_published_runs

CURVES = {"losses.csv": ("cosine", 3.3044), "losses-wsd.csv": ("wsd", 3.2776)}
"""The shape of the plan of each, and the loss at its end as it was published."""


def printed(page):
    """The commands `toposcale advise examples/...` of a page."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    return re.findall(r"^toposcale (advise examples/.*)$", text, re.MULTILINE)


def test_the_first_curve_is_the_published_one():
    """The other was published with it, and is not among the runs that decisions are made of."""
    published = load_published_runs("multi-power-law")
    [run] = [run for run in published if run.model == "multi-power-law-25m-cosine-24000"]
    whole = pd.Series(run.losses, run.steps)
    curve = pd.read_csv(ROOT / "examples/losses.csv").set_index("step")["loss"]
    both = curve.index.intersection(whole.index)
    assert len(both) > 50
    assert curve[both].to_numpy() == pytest.approx(whole[both].to_numpy(), abs=1e-4)
    assert whole.iloc[-1] == pytest.approx(CURVES["losses.csv"][1], abs=1e-4)


@pytest.mark.parametrize("page", ["README.md", "docs/forecasting.md", "examples/README.md"])
def test_the_printed_command_gives_advice_whose_interval_holds_the_published_end(page, capsys, monkeypatch, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)  # one of them draws
    [command] = printed(page)
    arguments = shlex.split(command)
    shape, end = CURVES[arguments[1].removeprefix("examples/")]
    assert shape in arguments
    monkeypatch.setattr(sys, "argv", ["toposcale", *arguments])
    monkeypatch.setenv("COLUMNS", "10000")  # no line is broken
    assert not main()
    text = capsys.readouterr().out
    assert text.splitlines()[-1].startswith("  => ")
    low, high = map(float, re.search(r"At its end .*\(([\d.]+) to ([\d.]+)\)", text).groups())
    assert low < end < high


def test_the_page_tells_the_published_ends():
    text = (ROOT / "examples/README.md").read_text()
    assert all(f"{end:.3f}" in text for _, end in CURVES.values())
