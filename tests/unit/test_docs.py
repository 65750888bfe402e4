"""The documentation builds as a site, with the API reference, without a warning."""

import importlib
import os
import re
import shutil
import subprocess
import sys

import pytest

from paths import ROOT

pytest.importorskip("sphinx")
pytestmark = pytest.mark.xdist_group("docs")  # the site is built once
LIBRARY = ("forecasting", "datasets", "homology", "landscape", "statistics")
PACKAGES = ["toposcale", *(f"toposcale.{name}" for name in LIBRARY)]


def built(source, out):
    """Warnings of a build, in a process of its own since it mocks transformers."""
    log = out.with_suffix(".log")
    options = ["--quiet", "-w", str(log), "-c", str(source / "docs"), str(source), str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-m", "sphinx", *options], check=True, env=environment)
    return log.read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The pages and what they link to."""
    folder = tmp_path_factory.mktemp("docs") / "toposcale"
    listed = [
        "docs",
        "studies",
        "config",
        "results/README.md",
        "examples",
        "profiles",
        "benchmarks/peers.csv",
        "CITATION.cff",
    ]
    for name in [*listed, *(path.name for path in ROOT.glob("*.md"))]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    return folder


@pytest.fixture(scope="module")
def site(copy):
    """The site of the pages, into one of which two links that lead nowhere are planted; and the warnings of its build."""
    page = copy / "docs" / "faq.md"
    page.write_text(page.read_text() + "\n[one](nothing.md), [another](method.md#nowhere)\n")
    (copy / "results/default").mkdir()
    (copy / "results/default/report.html").write_text("a report")
    out = copy.parent / "site"
    return out, built(copy, out).splitlines()


def test_every_link_but_the_two_planted_ones_leads_somewhere(site):
    _, warnings = site
    assert len(warnings) == 2, warnings
    assert "nothing.md" in warnings[0]
    assert "nowhere" in warnings[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_has_every_public_function_and_class(site, package):
    page = (site[0] / f"docs/api/{package}.html").read_text()
    module = importlib.import_module(package)
    names = [name for name in module.__all__ if callable(getattr(module, name)) and name != "NoForecast"]
    assert [name for name in names if f'id="{package}.{name}"' not in page] == []


def test_the_report_of_the_default_run_is_a_page_of_the_site(site):
    assert (site[0] / "report.html").read_text() == "a report"
    gallery = (site[0] / "docs/gallery.html").read_text()
    assert 'href="../report.html"' in gallery
    assert "explorer.html" not in gallery, "there is none"


def test_a_long_name_in_a_table_breaks_between_its_words_and_an_option_does_not(site):
    page = (site[0] / "docs/advice.html").read_text()
    assert '<span class="pre">expected_</span><wbr><span class="pre">regret</span>' in page
    page = (site[0] / "docs/forecasting.html").read_text()
    assert '<code class="nowrap docutils literal notranslate"><span class="pre">--tokens-per-step</span></code>' in page


def test_the_rules_are_a_table(site):
    page = (site[0] / "docs/rulegraph.html").read_text()
    rules = set(re.findall(r"\[(\w+)\]", (ROOT / "docs/rulegraph.md").read_text()))
    assert page.count("<tr") == 1 + len(rules)
    assert "flowchart" not in page
