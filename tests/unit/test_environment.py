"""What jobs inherit, and what a run is given to be fast: the revision that tables name is the same wherever a job runs."""

from types import SimpleNamespace

import pytest

import environment
import forkserver
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


def local_run(**changes):
    """As much of Snakemake's workflow as `prepare_run` looks at: a run on this machine of rules with scripts."""
    given = {
        "local_exec": True,
        "scheduler": SimpleNamespace(job_rate_limiter="a limit"),
        "deployment_settings": SimpleNamespace(deployment_method=set()),
        "rules": [SimpleNamespace(shellcmd=None)],
    }
    return SimpleNamespace(**given | changes)


class Shell:
    """Snakemake's shell, of which it is only asked what stands before its commands."""

    before = None

    def prefix(self, before):
        self.before = before


@pytest.fixture
def started(monkeypatch):
    """The fork servers that were asked for."""
    asked = []
    monkeypatch.setattr(forkserver, "start", lambda: (asked.append(1), "client {address}"))
    monkeypatch.setattr(environment.atexit, "register", lambda *_: None)
    monkeypatch.setattr(environment.sys, "platform", "linux")
    return asked


def test_a_run_here_has_no_limit_on_jobs_a_second_and_a_fork_server(started):
    workflow, shell = local_run(), Shell()
    environment.prepare_run(workflow, shell)
    assert workflow.scheduler.job_rate_limiter is None
    assert len(started) == 1
    # What Snakemake does with it: braces stand for variables.
    assert shell.before.format() == "set -euo pipefail; client {address}"


@pytest.mark.parametrize(
    ("changes", "limited"),
    [
        ({"local_exec": False}, True),
        ({"deployment_settings": SimpleNamespace(deployment_method={"conda"})}, False),
        ({"rules": [SimpleNamespace(shellcmd=None), SimpleNamespace(shellcmd="cd there && ls")]}, False),
    ],
)
def test_jobs_on_a_cluster_in_conda_and_commands_of_others_are_left_alone(started, changes, limited):
    workflow, shell = local_run(**changes), Shell()
    environment.prepare_run(workflow, shell)
    assert started == []
    assert shell.before is None
    assert bool(workflow.scheduler.job_rate_limiter) == limited


def test_without_a_place_for_its_socket_jobs_start_as_always(started, monkeypatch):
    def start():
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "start", start)
    shell = Shell()
    environment.prepare_run(local_run(), shell)
    assert shell.before is None


def test_a_script_is_read_once_unless_its_path_depends_on_the_job():
    read = []

    def get_source(path, *rest):
        read.append(path)
        return (path, *rest)

    remembering = environment.remembering(get_source)
    assert remembering("a.py", "cache", "here", "w1", "p1") == ("a.py", "cache", "here", "w1", "p1")
    assert remembering("a.py", "cache", "here", "w2", "p2") == ("a.py", "cache", "here", "w1", "p1")
    assert remembering("a.py", "cache", "there", "w2", "p2") == ("a.py", "cache", "there", "w2", "p2")
    for wildcards in ("w1", "w2"):
        assert remembering("{w}.py", "cache", "here", wildcards, "p")[3] == wildcards
    assert read == ["a.py", "a.py", "{w}.py", "{w}.py"]
