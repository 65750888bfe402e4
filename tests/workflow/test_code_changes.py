"""Which rules run again when a line of the library changes: what depends on it, and nothing else."""

import os
import subprocess

import pytest

from workspace import cone, copy_project, jobs_by_rule, new_workspace

pytestmark = pytest.mark.workflow

LINE, COLOR = b"\nCHANGED = 1\n", b"\n.changed { color: red; }\n"
# A file that gets one more line, and the rules at which the change enters.
CHANGES = {
    "forecasting/logs/text_logs.py": set(),
    "forecasting/logs/table_files.py": set(),  # nothing in this run is a CSV file of the user's
    "pages/report.css": {"report"},
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


def planned_with(workspace, name, changed):
    """Rules with jobs while a file of the library has another content."""
    file = workspace.home / "src" / "toposcale" / name
    before, status = file.read_bytes(), file.stat()
    assert changed(before) != before
    file.write_bytes(changed(before))
    try:
        return planned(workspace)
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("name", "text", "reworded"),
    [
        ("forecasting/runs/schedules.py", b'"""Most steps of a training', b'"""Largest number of steps'),
        ("io/schemas.csv", b"learning rate of the update", b"in other words, the rate of the update"),
    ],
)
def test_code_that_is_documented_in_other_words_plans_no_job(made, name, text, reworded):
    assert planned_with(made, name, lambda before: before.replace(text, reworded)) == set()


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_line_reruns_what_depends_on_it(made, followers, name):
    rules = planned_with(made, name, lambda before: before + (COLOR if name.endswith(".css") else LINE))
    assert rules == cone(CHANGES[name], followers) - {"all"}
    if name == "training/trainer.py":
        assert rules == set(followers) - {"all", "corpus", "resolved_configuration"}
