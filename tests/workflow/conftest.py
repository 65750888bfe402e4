"""The smallest run, undisturbed, and copies of it to disturb."""

import shutil

import pytest

import faults
from workspace import Workspace


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
