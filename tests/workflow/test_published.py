"""From the name of a repository to the report, against a small Hub of the project's own on loopback."""

import json
import re
import subprocess

import pandas as pd
import pytest

from paths import ROOT
from small_hub import Repository, SmallHub
from tiny_model import REPO, STEPS, save_checkpoints
from workspace import with_landscapes

pytestmark = pytest.mark.workflow


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with the tiny model at its steps, and at one more step the weights of the last."""
    folders = save_checkpoints(tmp_path / "saved")
    files = {name: {file.name: file.read_bytes() for file in folder.iterdir()} for name, folder in folders.items()}
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
            "configuration": "sisters",
            "seed": 7,
        }
    }
    workspace.config["hub"] = {"cache": str(workspace.path / "cache"), "keep": False}
    workspace.config["embeddings"] = {"texts": 20, "repeats": 0, "max_tokens": 16}
    return with_landscapes(workspace)


def test_from_repositories_to_the_report(hub, published):
    """One of the two has no usable weights, which costs the report nothing but that model."""
    with_gguf(hub, published)
    published.config["embeddings"]["every"] = 10  # the first and the last
    published.snakemake()
    features = pd.read_parquet(published.results / "tables" / "features.parquet")
    assert set(features["step"]) == set(STEPS)
    assert set(features["source"]) == {"weights", "embeddings", "landscape", "gradients"}
    listed = json.loads((published.results / "checkpoints" / "tiny" / "revisions.json").read_text())
    repeats = {step: facts["repeats"] for step, facts in listed["checkpoints"].items() if facts["repeats"]}
    assert repeats == {str(STEPS[-1] - 1): f"step{STEPS[-1]}"}
    metrics = pd.read_parquet(published.results / "tables" / "metrics.parquet")
    assert (metrics[metrics["metric"] == "perplexity"]["value"] > 1).all()
    assert set(metrics["step"]) == {STEPS[0], STEPS[-1]}
    models = pd.read_parquet(published.results / "tables" / "models.parquet").set_index("model")
    assert models.loc["tiny", ["configuration", "seed"]].tolist() == ["sisters", 7]
    # The weights are removed before the report is written, so that nothing can be compared with ripser.
    assert "<p>ripser" not in (published.results / "report.html").read_text()
    # Nothing is left of the weights, since hub.keep is false.
    assert not list(published.path.rglob("model.safetensors"))
    requests = hub.fetched("model.safetensors")
    assert "Nothing to be done" in published.snakemake().stderr
    assert hub.fetched("model.safetensors") == requests
    # Another text: those again of which more than the weights is measured, one at a time.
    with (published.path / "validation.txt").open("a") as text:
        text.write("\n\nOne more paragraph.")
    resident = resident_at_requests(hub, published)
    published.snakemake("measured")
    assert set(resident) == {0}
    assert hub.fetched("model.safetensors") == 2 * requests - 1


def padded(files, spaces):
    """The same tensors in another file: a safetensors header may be padded with spaces."""
    whole = files["model.safetensors"]
    size = int.from_bytes(whole[:8], "little")
    header = (size + spaces).to_bytes(8, "little") + whole[8 : 8 + size] + b" " * spaces
    return files | {"model.safetensors": header + whole[8 + size :]}


def resident_at_requests(hub, published):
    """A list to which every request of weights from now on adds how many checkpoints are on the disk."""
    resident = []

    def count(path):
        if path.endswith("model.safetensors"):
            resident.append(len(list(published.path.glob("results/*/checkpoints/*/*/model.safetensors"))))

    hub.watch = count
    return resident


def weights_alone(published, *steps):
    published.config["models"]["tiny"]["steps"] = list(steps)
    published.config |= {"embeddings": {"enabled": False}, "landscape": {"enabled": False}}
    return [f"results/{published.config['run']}/tables/{table}.parquet" for table in ("features", "models", "warnings")]


def test_a_bounded_disk_without_duplicates_and_with_gaps(hub, published):
    """Of seven checkpoints one repeats another one and one has no weights; the disk holds what two jobs at work need."""
    branches = hub.repositories[REPO].branches
    for step in (20, 30):
        branches[f"step{step}"] = padded(branches["step0"], step)
    branches["step50"] = {"README.md": b"soon"}
    targets = weights_alone(published, 0, 10, 20, 30, 50, 99, 100)
    resident = resident_at_requests(hub, published)
    published.snakemake("--", *targets, cores=2)
    found, models, warnings = (pd.read_parquet(published.path / target) for target in targets)
    assert sorted(set(found["step"])) == [0, 10, 20, 30, 100]
    # No distance leads to or from a gap.
    assert sorted(set(found.query("feature == 'h0_wasserstein_1'")["step"])) == [10, 20, 30]
    assert models["n_parameters"].item() > 0
    assert max(resident) <= 1  # beside the one that is asked for
    told = dict(zip(warnings["steps"], warnings["warning"], strict=True))
    assert told["99"] == "serves the weights of step100"
    assert told["50"].startswith(f"{REPO}, revision step50: no weights")
    # One of the two equal ones was fetched, and once.
    assert hub.fetched("model.safetensors") == 5
    assert published.planned(*targets) == {}


def test_what_is_due_is_fetched_again_and_never_more_than_one_is_on_the_disk(hub, published):
    branches = hub.repositories[REPO].branches
    for step in (20, 30, 40, 50):
        branches[f"step{step}"] = padded(branches["step0"], step)
    [table, *_] = weights_alone(published, 0, 10, 20, 30, 50, 100)
    published.snakemake(table)
    parts = sorted((published.results / "features" / "weights" / "tiny").iterdir())
    before = [part.read_bytes() for part in parts]
    for part in parts[1:]:
        part.unlink()
    resident = resident_at_requests(hub, published)
    published.snakemake(table, *(str(part.relative_to(published.path)) for part in parts))
    assert set(resident) == {0}
    assert [part.read_bytes() for part in parts] == before
    # A checkpoint less: the one before is another one for the distance of the next. Only one more is fetched.
    weights_alone(published, 0, 10, 20, 50, 100)
    assert published.planned(table) == {"diagram_distances": 1, "features_table": 1}
    weights_alone(published, 0, 10, 20, 30, 40, 50, 100)
    assert published.planned(table)["fetch"] == 1
    published.config["models"]["tiny"]["revisions"] = "other{step}"
    assert published.planned(table)["fetch"] == 7


def test_weights_that_the_cache_had_are_used_and_stay(hub, published):
    """From keep: true to false, with another setting."""
    [table, *_] = weights_alone(published, 0, 10)
    published.config["hub"]["keep"] = True
    published.snakemake(table)
    cached = sorted((published.path / "cache").rglob("model.safetensors"))
    assert len(cached) == hub.fetched("model.safetensors") == 2
    published.config["hub"]["keep"] = False
    published.config["weights"]["max_points"] = 5
    published.config["models"]["tiny"]["steps"] = [0, 10, 100]
    published.snakemake(table)
    assert hub.fetched("model.safetensors") == 3
    assert sorted((published.path / "cache").rglob("model.safetensors")) == cached
    assert all(path.exists() for path in cached)
    once = (published.path / table).read_bytes()
    # The bytes are those of a run that keeps them.
    published.config["hub"]["keep"] = True
    published.snakemake(table)
    assert (published.path / table).read_bytes() == once


def test_a_repository_that_is_not_there_is_one_line(hub, published):
    published.config["models"]["tiny"]["repo"] = "nobody/nothing"
    done = published.snakemake("tables", check=False)
    assert done.returncode != 0
    lines = {line for line in done.stderr.splitlines() if line.startswith("toposcale: ")}
    assert lines
    assert all(re.match(r"toposcale: fetch: nobody/nothing", line) for line in lines)
    assert "Traceback" not in done.stderr


def with_gguf(hub, published):
    """A second model, whose repository has nothing but GGUF files."""
    steps = list(STEPS[:1])
    hub.repositories["tests/gguf"] = Repository({f"step{step}": {"model.gguf": b"GGUF"} for step in steps})
    entry = published.config["models"]["tiny"] | {"repo": "tests/gguf", "steps": steps}
    published.config["models"]["gguf"] = entry
    return published


def test_gaps_heal_by_the_words_of_their_remedies(hub, published):
    """Revisions without usable weights, mended by a new commit, next to a model without one usable checkpoint."""
    with_gguf(hub, published)
    repository = hub.repositories[REPO]
    repository.branches["step50"] = padded(repository.branches["step0"], 8)
    whole = dict(repository.branches)
    repository.move("step10", {"model.gguf": b"GGUF"})
    repository.move("step100", whole["step100"] | {"model.safetensors": b""})
    published.config["models"]["tiny"]["steps"] = [0, 10, 50, 100]
    published.config |= {"embeddings": {"enabled": False}, "landscape": {"enabled": False}}
    tables = published.results / "tables"
    targets = [
        str((tables / f"{name}.parquet").relative_to(published.path)) for name in ("features", "models", "warnings")
    ]
    published.snakemake("--", *targets)
    assert set(pd.read_parquet(tables / "features.parquet")["step"]) == {0, 50}
    noted = pd.read_parquet(tables / "warnings.parquet")
    nothing = noted[noted["model"] == "gguf"]
    assert set(nothing["steps"]) == {str(STEPS[0])}
    assert nothing["warning"].str.contains("no weights in safetensors or .bin format there").all()
    models = pd.read_parquet(tables / "models.parquet").set_index("model")
    assert models["n_parameters"].isna().to_dict() == {"tiny": False, "gguf": True}
    noted = noted[noted["model"] == "tiny"].set_index("steps")
    reasons = {"10": "no weights in safetensors", "100": "not a complete safetensors"}
    assert {step: reason in noted["warning"][step] for step, reason in reasons.items()} == dict.fromkeys(reasons, True)

    repository.branches |= whole
    assert published.planned(*targets) == {}
    again = [remedy(noted["remedy"][step]) for step in ("10", "100")]
    published.snakemake("--forcerun", *again, "--", *targets)
    assert set(pd.read_parquet(tables / "features.parquet")["step"]) == {0, 10, 50, 100}
    assert set(pd.read_parquet(tables / "warnings.parquet")["model"]) == {"gguf"}
    assert published.planned(*targets) == {}


def test_what_the_hub_changed_is_said_and_measured_again_on_request(hub, published):
    """A branch that moved after the run had listed it, and one that came to repeat another."""
    repository = hub.repositories[REPO]
    targets = weights_alone(published, 0, 10)
    published.snakemake("--", *targets)
    features, _, warnings = (published.path / target for target in targets)
    assert not len(pd.read_parquet(warnings))
    before = pd.read_parquet(features)
    repository.move("step10", repository.branches["step0"])
    # One more step: the revisions are listed again, and what was measured stays.
    repository.branches["step20"] = padded(repository.branches["step100"], 8)
    weights_alone(published, 0, 10, 20)
    published.snakemake("--", *targets)
    [row] = pd.read_parquet(warnings).to_dict("records")
    [first] = repository.past
    assert row["warning"].startswith(f"{REPO}, revision step10: commit {first[:12]} was fetched; now it is commit ")
    assert row["warning"].endswith(", which has the weights of step0")
    assert before["step"].isin(pd.read_parquet(features)["step"]).all()
    published.snakemake("--forcerun", remedy(row["remedy"]), "--", *targets)
    assert set(pd.read_parquet(features)["step"]) == {0, 20}
    assert published.planned(*targets) == {}


def remedy(text):
    """The file that a remedy says to make again."""
    return re.search(r"run again with AGAIN=(\S+)", text)[1]


def test_make_run_passes_the_files_of_a_remedy_on():
    """What `AGAIN=FILE` of a remedy stands for."""
    command = ["make", "--dry-run", "--always-make", "run", "AGAIN=one.json two.json"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(r"toposcale run .* --forcerun one.json two.json( |$)", told, re.MULTILINE)
