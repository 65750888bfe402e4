"""Folders to run the workflow in."""

import shutil

import pytest

import faults
from workspace import Workspace, new_workspace


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return new_workspace(tmp_path / "work")


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Workspace:
    """One finished run, for tests that only read it or plan on it."""
    made = new_workspace(tmp_path_factory.mktemp("finished") / "work")
    made.snakemake()
    return made


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Workspace:
    """The smallest run, as far as `faults.TARGET`, to which nothing happened."""
    made = faults.smallest(tmp_path_factory.mktemp("undisturbed") / "work")
    made.snakemake(faults.TARGET)
    return made


@pytest.fixture
def copy(undisturbed, tmp_path) -> Workspace:
    """That run in a folder of its own, with all that Snakemake knows of it."""
    shutil.copytree(undisturbed.path, tmp_path / "copy")
    return Workspace(tmp_path / "copy", undisturbed.config)
