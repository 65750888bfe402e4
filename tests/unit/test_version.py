"""The project has one version: the package, its citation and the head of the changelog agree; what it repeats is cited."""

import re
import tomllib

import pandas as pd
import yaml

import toposcale
from paths import ROOT
from toposcale.datasets import load_published_runs
from toposcale.datasets.published_runs import SOURCES

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAPER = "Topological Persistence of Transformer Weight Spaces Tracks Training Dynamics and Improves Scaling Prediction"


def test_the_package_takes_its_version_from_the_code():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "toposcale.__version__"}


def test_citation_and_changelog_have_the_version_of_the_code():
    release, dev, _ = toposcale.__version__.partition(".dev")
    newest, date = re.search(r"^## (\d.+)\n\n([\d-]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).groups()
    assert CITATION["version"] == toposcale.__version__
    assert newest == (f"{release} (unreleased)" if dev else release)
    # A version that is not released has no date of its release.
    assert str(CITATION.get("date-released", "")) == ("" if dev else date)


def test_the_reproduced_paper_is_cited_where_its_values_are():
    assert PAPER in {reference["title"] for reference in CITATION["references"]}
    assert PAPER in " ".join((ROOT / "docs/reproduction.md").read_text().split())


def test_every_source_of_curves_is_listed_with_its_licence():
    folder = ROOT / "studies/decisions/published_runs"
    runs = load_published_runs().table["source"].value_counts().to_dict()
    replicates = pd.read_csv(folder / "replicates.csv.gz").groupby(["record", "code", "log"]).ngroups
    page = (ROOT / "studies/README.md").read_text().split("## Data that is redistributed")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    listed = {name.partition(",")[0].lower(): (licence, int(n)) for name, _, licence, n in rows[2:]}
    assert {name: n for name, (_, n) in listed.items()} == runs | {"replicates of 124m models": replicates}
    assert all(licence for licence, _ in listed.values())
    assert f"{len(load_published_runs(tags='seen'))} published runs" in (ROOT / "CHANGELOG.md").read_text()
    stated = {name: source.licence or "none stated" for name, source in SOURCES.items()}
    assert {name: licence.replace(", ", " and ") for name, (licence, _) in listed.items() if name in stated} == stated


def test_the_extra_all_installs_every_extra_for_users_and_what_dev_needs_is_locked():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [together] = extras["all"]
    named = set(re.fullmatch(r"toposcale\[(.*)\]", together)[1].split(","))
    assert named | {"hub", "plot", "watch"} == extras.keys() - {"all", "dev"}
    assert "toposcale[hub,watch]" in extras["workflow"]
    assert "toposcale[plot]" in extras["watch"]
    locks = "".join((ROOT / f"requirements{kind}.lock").read_text() for kind in ("", "-test")).lower()
    tools = [re.split(">=", dependency)[0].lower() for dependency in extras["dev"] if "[" not in dependency]
    assert [tool for tool in tools if f"\n{tool}==" not in locks] == []
