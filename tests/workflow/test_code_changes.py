"""Which rules run again when a line of the library changes: what depends on it, and nothing else."""

import os
import subprocess

import pytest

from workspace import cone, copy_project, jobs_by_rule, new_workspace

pytestmark = pytest.mark.workflow

LOG_READER, STYLE = "forecasting/logs/text_logs.py", "pages/report.css"
# A changed file, and the rules at which the change enters.
CHANGES = {
    LOG_READER: set(),
    STYLE: {"report"},
    "pages/cards.py": {"report"},
    "forecasting/laws/joint.py": {"forecasts", "decisions"},
    "homology/rips.py": {"weight_features", "embeddings", "diagram_distances", "trajectory"},
    "training/trainer.py": {"train"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run of models that are trained here, with a copy of the project."""
    folder = tmp_path_factory.mktemp("code")
    workspace = new_workspace(folder / "work")
    workspace.home = copy_project(folder / "toposcale")
    workspace.pretend_made()
    return workspace


@pytest.fixture(scope="module")
def followers(made):
    return made.followers()


def planned(workspace):
    """Rules with jobs, in a process of its own: those of `loaded` have read the code before it changed."""
    command = workspace.command("--dry-run", "--quiet", "rules", "--nolock")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(jobs_by_rule(done.stdout)) - {"all"}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_line_reruns_what_depends_on_it(made, followers, name):
    file = made.home / "src" / "toposcale" / name
    before, status = file.read_bytes(), file.stat()
    file.write_bytes(before + (b"\n.changed { color: red; }\n" if file.suffix == ".css" else b"\nCHANGED = 1\n"))
    try:
        rules = planned(made)
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert rules == cone(CHANGES[name], followers) - {"all"}
    if name == "training/trainer.py":
        assert rules == set(followers) - {"all", "corpus", "resolved_configuration"}
