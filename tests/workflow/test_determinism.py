"""Gathered tables have the same bytes, whatever the number of cores and however the work is cut into jobs."""

import pandas as pd
import pytest

import faults
from workspace import with_landscapes

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]

TABLES = [f"results/small/tables/{name}.parquet" for name in ("diagrams", "scaling")]
STARTED = ("Training one", "Topology of the weights", "Embeddings and perplexity", "Loss landscape")


def test_the_same_bytes_whatever_the_cores_and_jobs(tmp_path, monkeypatch):
    made = {}
    for cores, jobs, counts in ((1, "model", [1, 1, 1, 1]), (4, "checkpoint", [3, 3, 2, 2])):
        # Nor do they depend on the order of a set: the forks of one process have that order in common.
        monkeypatch.setenv("PYTHONHASHSEED", "1") if jobs == "model" else monkeypatch.delenv("PYTHONHASHSEED")
        workspace = with_landscapes(faults.smallest(tmp_path / jobs))
        workspace.config["embeddings"] = {"every": 2, "texts": 20, "repeats": 2}
        workspace.config["landscape"]["every"] = 2
        for section in ("training", "weights", "embeddings", "landscape"):
            workspace.config[section]["jobs"] = jobs
        said = workspace.snakemake("measured", "landscape", *TABLES, cores=cores).stderr
        assert [said.count(f": {what}") for what in STARTED] == counts
        found = {path.name: path.read_bytes() for path in workspace.results.glob("checkpoints/one/*")}
        log = pd.read_parquet(workspace.results / "training/one.parquet")
        made[jobs] = workspace.tables() | found | {"log": log.to_csv()}
    names = {"features", "metrics", "models", "surfaces", "diagrams", "scaling"}
    assert {f"{name}.parquet" for name in names} <= set(made["model"])
    assert made["model"] == made["checkpoint"]


def test_a_removed_feature_file_is_made_again_alone(copy):
    path = copy.results / "features" / "weights" / "one" / "step-00000002.parquet"
    content = path.read_bytes()
    path.unlink()
    target = str(path.relative_to(copy.path))
    assert copy.planned(target) == {"weight_features": 1}
    tables = copy.tables()
    copy.snakemake(target)
    assert path.read_bytes() == content
    assert copy.tables() == tables
