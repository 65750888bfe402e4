"""The smallest run, undisturbed, and copies of it to disturb; a copy of the project in a path with a space."""

from pathlib import Path

import pytest

import faults
from workspace import Workspace, copy_project


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Workspace:
    """The smallest run, as far as `faults.TARGET`, to which nothing happened."""
    made = faults.smallest(tmp_path_factory.mktemp("undisturbed") / "work")
    made.snakemake(faults.TARGET)
    return made


@pytest.fixture
def copy(undisturbed, tmp_path) -> Workspace:
    """That run in a folder of its own."""
    return undisturbed.copied(tmp_path / "copy")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project in a folder whose path has a space."""
    return copy_project(tmp_path_factory.mktemp("with") / "a space" / "toposcale")
