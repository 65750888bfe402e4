"""Paths with a space: the environment may have none. That all else may, test_commands.py shows."""

import subprocess
import sys

import pytest

import environment
from paths import ROOT
from toposcale.io.errors import UserError

pytestmark = pytest.mark.workflow


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
