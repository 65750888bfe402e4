"""One thread, as in the workflow's jobs: set before numpy is loaded. And folders to run the workflow in."""

import os
import signal

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import pytest
from hypothesis import HealthCheck, settings

from toposcale.io.files import locked
from workspace import Workspace, code_block, copy_project, new_workspace, small_configuration, with_landscapes

# A slow machine fails no property test. .ci/run chooses another profile, with the same examples in every run.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Whoever starts the tests in the background has them, and what they start, ignore an interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return new_workspace(tmp_path / "work")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, worker_id) -> Workspace:
    """One finished run with all that a run can have, the feature of docs/features.md too, for tests that only read it.

    The first worker that needs it makes it for all. Tests that run Snakemake in it are in the group "finished".
    """
    alone = worker_id == "master"
    folder = tmp_path_factory.mktemp("finished") if alone else tmp_path_factory.getbasetemp().parent / "finished"
    made = with_landscapes(Workspace(folder / "work", small_configuration(), folder / "toposcale"))
    with locked(folder / "lock"):
        if not (folder / "done").exists():
            new_workspace(made.path)
            copy_project(made.home)
            with (made.home / "src" / "toposcale" / "features" / "registry.py").open("a") as module:
                module.write("\n\n" + code_block("docs/features.md", "Add a feature", "python"))
            made.snakemake()
            (folder / "done").touch()
    return made
