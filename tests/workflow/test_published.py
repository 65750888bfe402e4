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


def test_a_bounded_cache_without_duplicates_and_with_gaps(hub, published):
    """Eight checkpoints, of which one repeats another one and one has no weights; two may be on the disk at a time."""
    branches = hub.repositories[REPO].branches
    weights = {name: branches[name]["model.safetensors"] for name in ("step0", "step10", "step100")}
    for step in (20, 30, 40, 50):
        # Another file with the same tensors: a safetensors header may be padded with spaces.
        size = int.from_bytes(weights["step0"][:8], "little")
        padded = (size + step).to_bytes(8, "little") + weights["step0"][8 : 8 + size] + b" " * step
        branches[f"step{step}"] = branches["step0"] | {
            "model.safetensors": padded + weights["step0"][8 + size :]
        }
    branches["step50"] = {"README.md": b"soon"}
    steps = [0, 10, 20, 30, 40, 50, 99, 100]
    published.config["models"]["tiny"]["steps"] = steps
    published.config["hub"]["resident"] = 2
    published.config |= {"embeddings": {"enabled": False}, "landscape": {"enabled": False}}
    resident = []

    def count(path):
        if path.endswith("model.safetensors"):
            cache = published.path / "cache"
            resident.append(sum(file.exists() for file in cache.glob("models--*/snapshots/*/*.safetensors")))

    hub.watch = count
    tables = ["features", "models", "warnings"]
    targets = [f"results/{published.config['run']}/tables/{table}.parquet" for table in tables]
    released = f"results/{published.config['run']}/checkpoints/tiny/step-{100:08d}.released"
    published.snakemake("--", *targets, released, cores=2)
    found, models, warnings = (pd.read_parquet(published.path / target) for target in targets)
    assert sorted(set(found["step"])) == [0, 10, 20, 30, 40, 100]
    # No distance leads to or from a gap.
    assert sorted(set(found.query("feature == 'h0_wasserstein_1'")["step"])) == [10, 20, 30, 40]
    assert models["n_parameters"].item() > 0
    assert 1 <= max(resident) < 2  # with the one that is asked for
    told = dict(zip(warnings["steps"], warnings["warning"], strict=True))
    assert told["99"] == "serves the weights of step100"
    assert told["50"].startswith(f"{REPO}, revision step50: no weights")
    # One of the two equal ones was fetched, and once.
    assert hub.fetched("model.safetensors") == 6
    assert published.planned(*targets, released) == {}


def test_a_repository_that_is_not_there_is_one_line(hub, published):
    published.config["models"]["tiny"]["repo"] = "nobody/nothing"
    done = published.snakemake("tables", check=False)
    assert done.returncode != 0
    lines = {line for line in done.stderr.splitlines() if line.startswith("toposcale: ")}
    assert lines
    # The comparison of the revisions and the first downloads, whichever came to it.
    assert all(re.match("toposcale: (duplicates|fetch): nobody/nothing", line) for line in lines)
    assert "Traceback" not in done.stderr
