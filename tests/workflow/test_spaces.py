"""Paths with a space: the project, its configuration and its results may have one, its environment may not."""

import subprocess
import sys

import pandas as pd
import pytest

import environment
import faults
from paths import ROOT
from toposcale.io.errors import UserError

pytestmark = pytest.mark.workflow


@pytest.mark.xdist_group("faults")  # they share the undisturbed run
def test_a_run_in_a_path_with_a_space_is_that_of_any_other(project, undisturbed, tmp_path):
    workspace = faults.smallest(tmp_path / "my work")
    workspace.home = project
    status, said = faults.run(workspace, faults.TARGET)
    assert status == 0, said
    pd.testing.assert_frame_equal(
        *(pd.read_parquet(run.path / faults.TARGET) for run in (workspace, undisturbed))
    )


def test_make_refuses_an_environment_there_before_it_installs_anything(project):
    done = subprocess.run(["make", "run"], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert f"{project}/.venv" in last
    assert "make run VENV=" in last
    assert not (project / ".venv").exists()


def test_snakemake_refuses_an_environment_there_in_its_last_line(tmp_path):
    elsewhere = tmp_path / "an environment"
    elsewhere.symlink_to(sys.prefix)
    command = [str(elsewhere / "bin" / "python"), "-m", "snakemake", "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make run VENV=" in (done.stdout + done.stderr).rstrip().splitlines()[-1]


def test_only_a_space_is_refused():
    environment.refuse_space("/home/me/.venv/bin/python")
    with pytest.raises(UserError, match="a b/bin/python"):
        environment.refuse_space("/home/a b/bin/python")
