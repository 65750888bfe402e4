"""The smallest run, undisturbed, and copies of it to disturb; a copy of the project in a path with a space."""

import copy as copying
import shutil
from pathlib import Path

import pytest

import faults
from paths import ROOT
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
    return Workspace(tmp_path / "copy", copying.deepcopy(undisturbed.config))


PROJECT = ("Snakefile", "Makefile", "workflow", "scripts", "src", "profiles", "config", "envs", "examples")
LOCKS = (*(f"requirements{part}.lock" for part in ("", "-test", "-peers", "-slurm")), "pyproject.toml")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project in a folder whose path has a space."""
    copy = tmp_path_factory.mktemp("with") / "a space" / "toposcale"
    copy.mkdir(parents=True)
    for name in (*PROJECT, *LOCKS):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy
