"""The documentation builds as a site, and every link in it leads somewhere."""

import shutil

import pytest

from paths import ROOT


def built(source, out):
    """Warnings of a build; none where every page is found and every link leads somewhere."""
    sphinx = pytest.importorskip("sphinx.cmd.build")
    log = out.with_suffix(".log")
    options = ["--quiet", "-w", str(log), "-c", str(source / "docs"), str(source), str(out)]
    assert sphinx.build_main(options) == 0
    return log.read_text()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The pages and what they link to."""
    folder = tmp_path_factory.mktemp("docs") / "toposcale"
    listed = ["docs", "studies", "config", "results/README.md", "examples", "profiles", "CITATION.cff"]
    for name in [*listed, *(path.name for path in ROOT.glob("*.md"))]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    return folder


def test_the_site_builds_without_a_warning_and_a_link_that_leads_nowhere_is_found(copy, tmp_path):
    assert built(copy, tmp_path / "site") == ""
    page = copy / "docs" / "faq.md"
    page.write_text(page.read_text() + "\n[one](nothing.md), [another](method.md#nowhere)\n")
    warned = built(copy, tmp_path / "site")
    assert "nothing.md" in warned
    assert "nowhere" in warned
