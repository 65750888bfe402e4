"""The page on research: its numbers are those of the committed tables, or of the pages in the commit that it names."""

import re
import subprocess

import pandas as pd
import pytest

from paths import ROOT
from studies.nulls.__main__ import FOLDERS
from studies.nulls.configurations import table_of

PAGE = " ".join((ROOT / "docs/research.md").read_text().split())
STUDY_4, SEEDS = ROOT / "studies/study4/tables", ROOT / "studies/paper_seeds/tables"
RATES = (0.003, 0.01)


def intervals(table, question):
    """Return the estimates of a question of study 4 at both rates, as the page prints them."""
    rows = table.query("question == @question").set_index("rate").loc[list(RATES)]
    return " | ".join(f"{row['estimate']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})" for _, row in rows.iterrows())


def test_the_numbers_of_study_4():
    primary, secondary = (pd.read_csv(STUDY_4 / f"{name}.csv") for name in ("primary", "secondary"))
    means = primary[primary["statistic"] == "mean"]
    assert f"| `h0_mean` | its surrogates | {intervals(means, 'h0 beyond surrogates')} |" in PAGE
    assert f"| `h0_total`, `h0_mean` | {intervals(means, 'nuclear norm beyond h0')} |" in PAGE
    estimates = secondary.set_index(["question", "rate"])["estimate"]
    low, high = (estimates["h0_mean given the norms", rate] for rate in RATES)
    assert f"| `h0_mean` | nothing more | {low:+.3f} | {high:+.3f} |" in PAGE
    low, high = (estimates["h0_mean of surrogates given the norms", rate] for rate in RATES)
    assert f"| its surrogates | nothing more | {low:+.3f} | {high:+.3f} |" in PAGE


def test_nothing_was_found_with_eight_seeds():
    assert len(list(SEEDS.glob("seed-*.csv.gz"))) == 8
    assert pd.read_csv(SEEDS / "findings.csv").empty
    assert "In none of eight runs" in PAGE


def test_the_runs_that_are_kept():
    counts = [len(table_of(folder, "models")) for folder in FOLDERS]
    for number, count in enumerate(counts, 1):
        assert f"| study {number} | {count} |" in PAGE
    assert f"the {sum(counts):,} runs stay" in PAGE


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_numbers_of_a_retired_study_are_on_its_page_in_the_commit_that_is_named(number):
    [section] = re.findall(rf"### Study {number} (.*?) ##", PAGE)
    [page] = re.findall(r"`git show ([0-9a-f]{8}:docs/study\S*\.md)`", section)
    shown = subprocess.run(["git", "show", page], cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip("the clone is shallow, or no clone")
    for estimate in re.findall(r"[+-]?\d+\.\d+%?", section):
        assert estimate in shown.stdout, estimate
