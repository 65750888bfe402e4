"""The documentation names what a run produces, and its worked example does what it says."""

import re
import subprocess
import sys

import pandas as pd
import pytest

import config_reading
from config_reference import keys_of
from page_data import rows_of
from paths import ROOT
from toposcale.analysis import ANALYSES
from toposcale.features.registry import registry
from toposcale.forecasting.runs.metrics import PERPLEXITY, TRAINING_LOSS, VALIDATION_LOSS
from toposcale.io import schemas
from toposcale.reproduction import ANALYSES as REPRODUCTION

METHOD = (ROOT / "docs" / "method.md").read_text()
GRAPHS = re.compile(r"_(grid4|grid8|delaunay|aknn8|\{graph\})$")
PLANES = re.compile(r"_((random|top|negative|mixed)_[\d.e+-]+|ball|bowl|(subspace|quadratic)_(\d+|\{k\})|\{plane\})$")
SUFFIXES = ("_whole", "_z_permuted", "_z_gaussian", "_spread", "_standard_error", "_scaled")


def documented(feature):
    """Whether docs/method.md has a feature in backticks; homology by h{k}_, suffixes by *_suffix."""
    if f"`{feature}`" in METHOD:
        return True
    for suffix in SUFFIXES:
        if feature.endswith(suffix):
            return f"`*{suffix}`" in METHOD and documented(feature.removesuffix(suffix))
    feature = re.sub(r"^h[0-9]_", "h{k}_", PLANES.sub("", GRAPHS.sub("", feature)))
    return f"`{feature}`" in METHOD


def test_every_feature_and_metric_with_a_name_is_in_the_method():
    known = [feature.name for feature in registry().by_pattern.values()]
    known += [TRAINING_LOSS, VALIDATION_LOSS, PERPLEXITY, "h1_total_z_permuted", "h1_total_scaled"]
    assert [name for name in known if not documented(name)] == []


def test_a_feature_that_is_not_described_would_be_found():
    assert not documented("h0_variance")
    assert not documented("kurtosis_scaled")


@pytest.mark.workflow
@pytest.mark.xdist_group("finished")
def test_every_feature_of_a_run_is_in_the_method(finished):
    both = [pd.read_parquet(finished.results / "tables" / f"{name}.parquet") for name in ("features", "metrics")]
    produced = {*both[0]["feature"], *both[1]["metric"]}
    assert len(produced) > 30
    # The page of the features adds one, and asks whoever keeps it to describe it.
    assert [name for name in produced if not documented(name)] == ["near_zero_share"]


def test_the_keys_and_files_that_the_questions_name_are_there():
    text = (ROOT / "docs" / "faq.md").read_text()
    keys = {path for path, *_ in keys_of(config_reading.schema())}
    sections = {key.split(".")[0] for key in keys}
    named = {match for match in re.findall(r"`([a-z_]+\.[a-z_]+)`", text) if match.split(".")[0] in sections}
    assert named
    assert named <= keys
    for link in re.findall(r"\]\(([^)#:]+)\)", text + METHOD):
        assert (ROOT / "docs" / link).exists(), link
    for table in re.findall(r"`tables/([a-z_]+)`", text + METHOD):
        assert table in schemas.TABLES, table


@pytest.mark.workflow
@pytest.mark.xdist_group("finished")
def test_the_feature_of_the_page_is_in_tables_statistics_and_report(finished):
    made = finished.results / "tables"
    features = pd.read_parquet(made / "features.parquet").query("feature == 'near_zero_share'")
    assert set(features["step"]) == set(range(0, 41, 8))
    assert features["value"].between(0, 1).all()
    one = features.query("model == 'one' and step == 40").set_index("layer")["value"]
    assert one["all"] == pytest.approx(one.drop("all").mean())
    for name in ("correlations", "pooled_correlations", "verdicts", "scaling"):
        assert "near_zero_share" in set(pd.read_parquet(made / f"{name}.parquet")["feature"]), name
    page = (finished.results / "report.html").read_text()
    assert "near_zero_share" in rows_of(page, "verdicts")


@pytest.mark.workflow
def test_the_drawn_rules_are_those_of_the_workflow():
    drawn = set(re.findall(r"\[(\w+)\]", (ROOT / "docs" / "rulegraph.md").read_text()))
    # A name that no run has: of stale results the rule that compares them would be drawn, too.
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "mermaid-js", "--forceall", "--quiet", "all"]
    command += ["--config", "run=reference"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rules = set(re.findall(r"\[(\w+)\]", told))
    assert drawn == rules, "run make reference"
    # Loops name rules after the entries of a registry, in which a search finds each.
    text = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")])
    named = {*ANALYSES, *REPRODUCTION, *(f"{table}_table" for table in schemas.TABLES)}
    code = "\n".join(path.read_text() for path in ROOT.glob("workflow/*.py"))
    named |= set(re.findall(r'"(\w+)": Recipe\(', code))
    assert [name for name in rules if not re.search(rf"\brule {name}\b", text) and name not in named] == []
