"""The project has one version: the package, its citation and the head of the changelog agree; what it repeats is cited."""

import re
import tomllib

import yaml

import toposcale
from paths import ROOT

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PAPER = "Topological Persistence of Transformer Weight Spaces Tracks Training Dynamics and Improves Scaling Prediction"


def test_the_package_takes_its_version_from_the_code():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "toposcale.__version__"}


def test_citation_and_changelog_have_the_version_of_the_code():
    release, dev, _ = toposcale.__version__.partition(".dev")
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert CITATION["version"] == toposcale.__version__
    assert newest == (f"{release} (unreleased)" if dev else release)
    # A version that is not released has no date of its release.
    assert ("date-released" in CITATION) == (not dev)


def test_the_reproduced_paper_is_cited_where_its_values_are():
    assert PAPER in {reference["title"] for reference in CITATION["references"]}
    assert PAPER in " ".join((ROOT / "docs/reproduction.md").read_text().split())
