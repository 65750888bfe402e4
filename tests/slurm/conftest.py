"""A SLURM cluster for the tests of this folder."""

import subprocess

import pytest

from jobs import PATIENCE, Cluster
from one_node import cluster, why_not
from workspace import Workspace, new_workspace


def pytest_collection_modifyitems(items):
    reason = why_not()
    for item in items:
        if reason and "slurm" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def slurm():
    with cluster(cpus=4, memory=16_000) as environment:
        yield Cluster(environment)


def small_workspace(path) -> Workspace:
    """Two models with two checkpoints each, and the features of their weights: ten jobs for the cluster."""
    made = new_workspace(path)
    made.config["training"] |= {"steps": 8, "checkpoint_every": 8, "jobs": "checkpoint"}
    made.config["weights"] = {"jobs": "checkpoint"}
    made.config["embeddings"] = {"enabled": False}
    return made


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return small_workspace(tmp_path / "work")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """A function that waits for a local run, which goes on during the tests, and returns its workspace."""
    made = small_workspace(tmp_path_factory.mktemp("local") / "work")
    log = made.path / "output.txt"
    with log.open("w") as file:
        process = subprocess.Popen(made.command("tables", cores=1), stdout=file, stderr=file)

    def finished() -> Workspace:
        assert process.wait(PATIENCE) == 0, log.read_text()
        return made

    yield finished
    process.kill()
    process.wait()
