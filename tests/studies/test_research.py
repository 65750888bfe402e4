"""The page on research: its numbers are those of the committed tables, or of the pages in the commit that it names."""

import io
import re
import subprocess

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.nulls.__main__ import FOLDERS
from studies.nulls.configurations import table_of

PAGE = " ".join((ROOT / "docs/research.md").read_text().split())
STUDY_4, SEEDS = ROOT / "studies/study4/tables", ROOT / "studies/paper_seeds/tables"
RATES = (0.003, 0.01)

CONTROLS = ROOT / "studies/controls/tables"
LINES = [
    line
    for page in ("docs/research.md", "studies/controls/results.md")
    for line in (ROOT / page).read_text().splitlines()
]


def with_interval(row, digits=3):
    """An estimate with its interval, as the page prints it."""
    return f"{row['estimate']:+.{digits}f} ({row['low']:+.{digits}f} to {row['high']:+.{digits}f})"


def finding_lines():
    """The scores of H0 among surrogates, by setting of study 4."""
    for row in pd.read_csv(CONTROLS / "finding.csv").to_dict("records"):
        size, rest = row["configuration"].split("-fourth.lr")
        rate, decay = rest.split(".wd")
        numbers = f"{row['mean_score']:.1f} | {row['sd']:.1f} | {row['highest_score']:.2f}"
        yield f"| {size} | {rate} | {decay} | {row['runs']} | {numbers} |"


def default_run_lines(table, columns):
    """Some columns of a table by size, of the default run at 30% of the training and at its end."""
    table = pd.read_csv(CONTROLS / table)
    parts = [table[table["trained"] == trained].set_index("size") for trained in ("default run", "default run, end")]
    for size in parts[0].index:
        yield f"| {size} | {' | '.join(f'{part.loc[size, column]:.1f}' for part in parts for column in columns)} |"


def size_lines():
    """The scores by size, of the default run."""
    yield from default_run_lines("sizes.csv", ("mean_score", "token_embedding", "rotated_token_embedding"))


def trained_size_lines():
    """The scores by size, of the models that the controls trained."""
    table = pd.read_csv(CONTROLS / "sizes.csv").query("trained == '600 steps, batch 32'")
    for row in table.to_dict("records"):
        scores = [f"{row[name]:.1f}" for name in ("mean_score", "token_embedding", "rotated_token_embedding")]
        yield f"| {row['size']} | {row['n_parameters']:,} | {row['seed']} | {' | '.join(scores)} |"


def occurring_lines():
    """The scores of token embeddings by whether their characters occur, of the default run."""
    yield from default_run_lines("occurring.csv", ("all_rows", "occurring", "never_occurring"))


def slope_lines():
    """The slopes of the scores on the decimal logarithm of the number of parameters."""
    for row in pd.read_csv(CONTROLS / "slopes.csv").to_dict("records"):
        slope = f"{row['slope']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
        yield f"| {row['trained']} | {row['models']} | {row['score'].replace('_', ' ')} | {slope} |"


def power_lines():
    """The smallest planted effect that each test finds in 80% of cases; of the report over all runs together."""
    table = pd.read_csv(CONTROLS / "planted_summary.csv")
    for row in table[(table["part"] != "report") | (table["group"] == "all runs together")].to_dict("records"):
        needed = "not found" if np.isnan(row["found_at_80"]) else f"{row['found_at_80']:.2f}"
        needed = needed if row["level"] <= 0.10 else "level not kept"
        numbers = f"{row['level']:.1%} | {needed} | {row['power_at_most']:.0%}"
        yield f"| {row['part']} | {row['group']} | {row['test']} | {row['statistic']} | {numbers} |"


def replication_lines():
    """The questions of study 4 in fresh runs, compared with what study 4 had."""
    for row in pd.read_csv(CONTROLS / "replicated.csv").to_dict("records"):
        before = with_interval({"estimate": row["study_4"], "low": row["study_4_low"], "high": row["study_4_high"]})
        key = f"{row['entry'].removesuffix('-fifth')} | {row['sample']} | {row['runs']} | {row['question']}"
        p = "" if np.isnan(row["one_sided_p"]) else f"{row['one_sided_p']:.3f}"
        yield f"| {key} | {before} | {with_interval(row)} | {p} |"


def hypothesis_lines():
    """The hypotheses of the second plan, in the unseen runs."""
    table = pd.read_csv(CONTROLS / "replicated.csv").dropna(subset=["power"])
    for row in table[table["sample"] == "second plan"].to_dict("records"):
        size, *text = row["entry"].removesuffix("-fifth").split("-", 2)[1:]
        numbers = f"{row['study_4']:+.3f} | {with_interval(row)} | {row['one_sided_p']:.3f} | {row['power']:.0%}"
        yield f"| {size.upper()} | {'WikiText-2' if text else 'Python'} | {row['runs']} | {numbers} |"


def gain_lines():
    """The gain of predictions of unseen settings."""
    for row in pd.read_csv(CONTROLS / "gains.csv").to_dict("records"):
        gain = with_interval(row | {"estimate": row["gain"]}, 4)
        numbers = f"{row['error_without']:.4f} | {row['error_with']:.4f} | {gain} | {row['detectable']:.4f}"
        yield f"| {row['settings']}, {row['n']} | {row['method']} | {row['added']} | {numbers} |"


def stopping_lines():
    """The regret of stopping half of the runs at 30%."""
    for row in pd.read_csv(CONTROLS / "stopping.csv").to_dict("records"):
        yield f"| {row['settings']} | {row['policy']} | {row['regret']:.4f} ({row['low']:.4f} to {row['high']:.4f}) |"


def pooled_lines():
    """Study 4 over modes and settings."""
    for row in pd.read_csv(CONTROLS / "modes.csv").to_dict("records"):
        random = with_interval({name: row[f"random_{name}"] for name in ("estimate", "low", "high")})
        yield f"| {row['over']} | {row['question']} | {with_interval(row)} | {row['i_squared']:.0%} | {random} |"


def seeds_lines():
    """The eight seeds of the paper, tested together."""
    for row in pd.read_csv(CONTROLS / "seeds_summary.csv").to_dict("records"):
        given = row["control"].removeprefix("weight_").replace("_", " ")
        numbers = f"{row['largest']:.3f} | {row['detectable']:.3f} | {row['false_positive_rate']:.1%}"
        yield f"| {given} | {row['runs']} | {row['features']} | {row['found']} | {numbers} |"


@pytest.mark.parametrize(
    "lines",
    [
        finding_lines,
        size_lines,
        trained_size_lines,
        slope_lines,
        occurring_lines,
        hypothesis_lines,
        pooled_lines,
        replication_lines,
        seeds_lines,
        gain_lines,
        stopping_lines,
        power_lines,
    ],
)
def test_research_has_the_rows_of_the_controls(lines):
    expected = list(lines())
    assert expected
    assert [line for line in expected if line not in LINES] == []


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
    page = " ".join((ROOT / "studies/earlier.md").read_text().split())
    [section] = re.findall(rf"## Study {number} (.*?) ##", page)
    [page] = re.findall(r"`git show ([0-9a-f]{8}:docs/study\S*\.md)`", section)
    shown = subprocess.run(["git", "show", page], cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip("the clone is shallow, or no clone")
    for estimate in re.findall(r"[+-]?\d+\.\d+%?", section):
        assert estimate in shown.stdout, estimate


def test_second_plan_is_older_than_its_runs():
    plan = re.search(r"the second plan .*? is commit ([0-9a-f]{8})", PAGE)[1]
    git = ["git", "-C", str(ROOT)]
    table = "studies/controls/tables/replication.csv.gz"
    shown = subprocess.run([*git, "show", f"{plan}:{table}"], capture_output=True, check=False)
    if shown.returncode:
        pytest.skip("the clone is shallow, or no clone")
    before, after = pd.read_csv(io.BytesIO(shown.stdout), compression="gzip"), pd.read_csv(ROOT / table)
    assert len(before) == 36
    assert set(before["model"]) < set(after["model"])
    files = subprocess.run([*git, "ls-tree", "--name-only", plan, "studies/controls/tables/"], capture_output=True)
    assert b"scale.csv" not in files.stdout
    assert subprocess.run([*git, "merge-base", "--is-ancestor", plan, "HEAD"], check=False).returncode == 0


def test_plan_of_the_controls_is_older_than_its_tables():
    plan = re.search(r"The plan of the controls is commit ([0-9a-f]{8})", PAGE)[1]
    git = ["git", "-C", str(ROOT)]
    log = subprocess.run(
        [*git, "log", "--reverse", "--format=%H", "--", "studies/controls/tables"],
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode or not log.stdout or subprocess.run([*git, "cat-file", "-e", plan], check=False).returncode:
        pytest.skip("the clone is shallow, or no clone")
    first = log.stdout.split()[0]
    subprocess.run([*git, "merge-base", "--is-ancestor", plan, f"{first}^"], check=True)
