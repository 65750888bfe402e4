"""Folders to run the workflow in."""

import pytest

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
