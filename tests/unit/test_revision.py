"""The revision in the metadata of every table names what ran, and says when it does not."""

import subprocess

import environment
from report import uncommitted


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_revision_whose_files_were_changed_says_so(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    git(tmp_path, "tag", "v1")
    revision = git(tmp_path, "rev-parse", "HEAD")
    assert environment.revision(tmp_path) == revision
    (tmp_path / "file").write_text("two")
    assert environment.revision(tmp_path) == revision + "-dirty"


def test_revision_in_the_clone_of_another_project_is_unknown(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOSCALE_REVISION", raising=False)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    (tmp_path / "file").write_text("two")
    (tmp_path / "site-packages").mkdir()
    assert environment.revision(tmp_path / "site-packages") == "unknown"
    assert uncommitted(tmp_path / "site-packages") == b""


def test_outside_a_checkout_the_revision_is_unknown(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOSCALE_REVISION", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.revision(tmp_path) == "unknown"


def test_what_is_not_committed_is_a_patch_that_makes_the_files_again(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one\n")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    assert uncommitted(tmp_path) == b""
    (tmp_path / "file").write_text("two\n")
    patch = uncommitted(tmp_path)
    git(tmp_path, "checkout", "--quiet", "file")
    (tmp_path / "changes.patch").write_bytes(patch)
    git(tmp_path, "apply", "changes.patch")
    assert (tmp_path / "file").read_text() == "two\n"


def test_outside_a_clone_there_is_no_patch(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert uncommitted(tmp_path) == b""
