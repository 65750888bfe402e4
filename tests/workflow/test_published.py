"""From the name of a repository to the report, against a small Hub of the project's own on loopback."""

import json
import re

import pandas as pd
import pytest

from small_hub import Repository, SmallHub
from tiny_model import REPO, STEPS, save_checkpoints
from workspace import with_landscapes

pytestmark = pytest.mark.workflow


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with the tiny model at its steps, and at one more step the weights of the last."""
    folders = save_checkpoints(tmp_path / "saved")
    files = {
        name: {file.name: file.read_bytes() for file in folder.iterdir()} for name, folder in folders.items()
    }
    branches = {f"step{step}": files[f"step{step}"] for step in STEPS}
    branches |= {"main": files[f"step{STEPS[-1]}"], f"step{STEPS[-1] - 1}": files[f"step{STEPS[-1]}"]}
    with SmallHub() as running:
        running.repositories[REPO] = Repository(branches, {})
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield running


@pytest.fixture
def published(workspace):
    workspace.config["models"] = {
        "tiny": {
            "kind": "hub",
            "repo": REPO,
            "revisions": "step{step}",
            "steps": [*STEPS[:-1], STEPS[-1] - 1, STEPS[-1]],
            "tokens_per_step": 1024,
        }
    }
    workspace.config["hub"] = {"cache": str(workspace.path / "cache"), "keep": False}
    workspace.config["embeddings"] = {"texts": 20, "repeats": 0, "max_tokens": 16}
    return with_landscapes(workspace)


def test_from_a_repository_to_the_report(hub, published):
    published.snakemake()
    features = pd.read_parquet(published.results / "tables" / "features.parquet")
    assert set(features["step"]) == set(STEPS)
    assert set(features["source"]) == {"weights", "embeddings", "landscape", "gradients"}
    facts = json.loads((published.results / "checkpoints" / "tiny" / "duplicates.json").read_text())
    assert facts["duplicates"] == {str(STEPS[-1] - 1): f"step{STEPS[-1]}"}
    metrics = pd.read_parquet(published.results / "tables" / "metrics.parquet")
    assert (metrics[metrics["metric"] == "perplexity"]["value"] > 1).all()
    assert set(metrics["step"]) == set(STEPS)
    assert (published.results / "report.html").is_file()
    # Nothing is left of the weights, since hub.keep is false.
    assert not [path for path in (published.path / "cache").rglob("*.safetensors") if path.exists()]
    requests = hub.fetched("model.safetensors")
    assert "Nothing to be done" in published.snakemake().stderr
    assert hub.fetched("model.safetensors") == requests


def test_a_repository_that_is_not_there_is_one_line(hub, published):
    published.config["models"]["tiny"]["repo"] = "nobody/nothing"
    done = published.snakemake("tables", check=False)
    assert done.returncode != 0
    lines = {line for line in done.stderr.splitlines() if line.startswith("toposcale: ")}
    assert lines
    # The comparison of the revisions and the first downloads, whichever came to it.
    assert all(re.match("toposcale: (duplicates|fetch): nobody/nothing", line) for line in lines)
    assert "Traceback" not in done.stderr
