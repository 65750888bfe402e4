"""What jobs inherit: the revision that tables name is the same wherever a job runs."""

import environment
from paths import ROOT


def test_a_node_without_git_names_the_revision_of_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPOSCALE_REVISION", "stale")
    here = environment.revision(ROOT)
    assert here != "stale"
    monkeypatch.setenv("TOPOSCALE_REVISION", here)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.revision(ROOT) == here
    monkeypatch.delenv("TOPOSCALE_REVISION")
    assert environment.revision(ROOT) == "unknown"
