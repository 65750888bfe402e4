"""The hooks have the versions of the lock, and the checks of a change call what a person calls."""

import re
import tomllib

import pytest
import yaml

import oldest
from paths import ROOT

HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
STEPS = [step for job in CI["jobs"].values() for step in job["steps"]]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_hooks_have_the_versions_of_the_lock():
    locked = re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements-test.lock").read_text(), re.MULTILINE)
    hooks = {hook["id"]: hook for repository in HOOKS for hook in repository["hooks"]}
    pins = {pin for hook in hooks.values() for pin in hook.get("additional_dependencies", [])}
    assert pins <= set(locked)
    assert {pin.partition("==")[0] for pin in pins} == {"ruff", "snakefmt", "black"}
    # It checks against the packages that are installed, so it is the one next to them.
    assert hooks["mypy"]["entry"] == ".venv/bin/mypy"


def test_the_checks_of_a_change_are_targets_of_the_makefile():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = [step["run"].split() for step in STEPS if "run" in step]
    assert {command[0] for command in called} == {"make"}
    assert [command[1] for command in called] == ["lint", "test", "test-install", "test-oldest", "nightly", "docs"]
    assert {command[1] for command in called} <= set(targets)


def test_the_checks_have_no_rights_and_pinned_actions():
    assert CI["permissions"] == {"contents": "read"}
    assert "secrets" not in (ROOT / ".github/workflows/ci.yml").read_text()
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in STEPS if "uses" in step)


def test_the_oldest_python_that_is_supported_is_tested():
    pythons = CI["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert pythons == sorted(pythons, key=lambda version: int(version.partition(".")[2]))


def test_every_dependency_has_a_lower_bound_that_can_be_installed():
    pins = oldest.lower_bounds(PROJECT["dependencies"])
    assert "numpy==1.26" in pins
    assert "gudhi==3.13" in pins
    with pytest.raises(ValueError, match="rich: it has no lower bound"):
        oldest.lower_bounds(["rich"])
