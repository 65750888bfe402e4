"""Nothing that a user names is ever run: no pickle, no code next to a checkpoint, no text of a configuration in a shell."""

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import faults

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]

# Shell, Snakemake and Python would each make something of this; as the name of a file it is only a name.
NASTY = "a b;touch owned;$(touch owned)`touch owned`|touch owned&%s'\"\n*[x]"


class Payload:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_malicious_checkpoint_is_refused_and_never_run(tmp_path):
    workspace = faults.smallest(tmp_path / "work")
    owned = tmp_path / "owned"
    folder = workspace.path / "evil" / "step0"
    folder.mkdir(parents=True)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Payload(owned)}))
    workspace.config["models"] = {"evil": {"kind": "folder", "path": "evil"}}
    status, said = faults.run(workspace)
    assert status == 1
    assert not owned.exists()
    [line] = faults.complaints(said)
    assert "evil/step0/pytorch_model.bin: contains Python objects other than tensors, which are not loaded" in line
    # The payload is a real one: unpickling it would have been seen.
    pickle.loads((folder / "pytorch_model.bin").read_bytes())  # noqa: S301
    assert owned.exists()


def test_malicious_checkpoints_beside_a_good_one_are_gaps(tmp_path):
    """The good one has an empty matrix, which is left out with a warning."""
    torch = pytest.importorskip("torch")
    workspace = faults.smallest(tmp_path / "work")
    owned = tmp_path / "owned"
    folders = [workspace.path / "mixed" / f"step{step}" for step in range(5)]
    for folder in folders:
        folder.mkdir(parents=True)
    weight = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    tensors = {"weight": weight, "empty": np.ones((0, 96), np.float32)}
    save_file(tensors, folders[0] / "model.safetensors")
    (folders[1] / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Payload(owned)}))
    million = 1 << 20
    odd = {
        "has 1048576 x 1048576 entries": {"weight": torch.ones(1).expand(million, million)},
        "is named 5": {5: torch.eye(4)},
        "is sparse or nested": {"weight": torch.eye(4).to_sparse()},
    }
    for folder, content in zip(folders[2:], odd.values(), strict=True):
        torch.save(content, folder / "pytorch_model.bin")
    workspace.config["models"] = {"mixed": {"kind": "folder", "path": "mixed"}}
    status, said = faults.run(workspace, "results/small/tables/warnings.parquet")
    assert status == 0, said
    assert not owned.exists()
    warnings = pd.read_parquet(workspace.results / "tables" / "warnings.parquet")["warning"]
    for reason in (*odd, "contains Python objects other than tensors, which are not loaded"):
        assert warnings.str.contains(reason).sum() == 1
    assert warnings.str.startswith("not measured: 1 tensor, 0%, empty: ").sum() == 1
    assert len(warnings) == 6  # the last one says that the model cannot read a text


def test_code_beside_a_checkpoint_is_never_run(tmp_path):
    """Its weights are good ones; the configuration asks for a model that only its own code knows."""
    workspace = faults.smallest(tmp_path / "work")
    owned = tmp_path / "owned"
    folder = workspace.path / "coded" / "step0"
    folder.mkdir(parents=True)
    save_file({"weight": np.eye(4, dtype=np.float32)}, folder / "model.safetensors")
    (folder / "modeling.py").write_text(f"import os\nos.mkdir({str(owned)!r})\nModel = Configuration = object\n")
    code = {"AutoConfig": "modeling.Configuration", "AutoModelForCausalLM": "modeling.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": code}))
    (folder / "tokenizer.json").write_text("{}")
    workspace.config["models"] = {"coded": {"kind": "folder", "path": "coded"}}
    workspace.config["embeddings"] = {"texts": 5, "repeats": 0}
    parts = [f"features/{source}/coded/step-00000000.parquet" for source in ("weights", "embeddings")]
    status, said = faults.run(workspace, *(f"results/small/{part}" for part in parts))
    assert status == 0, said
    weights, embeddings = (len(pd.read_parquet(workspace.results / part)) for part in parts)
    assert weights
    assert not embeddings  # a gap
    assert not owned.exists()


def test_shell_metacharacters_in_every_text_of_the_configuration_are_only_text(tmp_path):
    """In the keys that name files a run with them works; a name of the user's own with them is refused."""
    workspace = faults.smallest(tmp_path / "work")
    for name in ("train", "validation"):
        (workspace.path / f"{name}.txt").rename(workspace.path / f"{name}{NASTY}.txt")
    (workspace.path / f"{NASTY}.csv").write_text("model,step,metric,value\none,0,outside,1.0\n")
    (workspace.path / NASTY).mkdir()
    workspace.config["corpus"] |= {"train": [f"train{NASTY}.txt"], "validation": [f"validation{NASTY}.txt"]}
    workspace.config["training"]["jobs"] = "model"
    workspace.config["metrics"] = {"tables": [f"{NASTY}.csv"]}
    workspace.config["weights"] = {"layers": {"include": ["*", NASTY], "exclude": [NASTY]}}
    workspace.config["hub"] = {"cache": NASTY}
    workspace.config["models"]["one"]["family"] = NASTY
    targets = ["tables/metrics.parquet", "tables/models.parquet", "features/weights/one/step-00000002.parquet"]
    status, said = faults.run(workspace, *(f"results/small/{target}" for target in targets))
    assert status == 0, said
    workspace.config["metrics"]["harness"] = NASTY
    status, said = faults.run(workspace, "results/small/tables/metrics.parquet")
    [line] = faults.complaints(said)
    assert line.startswith("toposcale: config key metrics.harness: a b;touch owned;")
    # A brace is Snakemake's own, and refused.
    (workspace.path / "{owned}.txt").touch()
    workspace.config["corpus"]["train"] = ["*owned*.txt"]
    status, said = faults.run(workspace, "--dry-run")
    assert status == 1
    assert "'{owned}.txt' has a brace in its name, which Snakemake takes for a wildcard" in said
    (workspace.path / "{owned}.txt").unlink()
    assert not list(tmp_path.rglob("owned*"))


@pytest.mark.parametrize("key", ["run", "models"])
def test_a_name_with_shell_metacharacters_is_refused(tmp_path, key):
    workspace = faults.smallest(tmp_path / "work")
    name = "../$(touch owned)"
    workspace.config[key] = name if key == "run" else {name: workspace.config["models"]["one"]}
    status, said = faults.run(workspace, "--dry-run")
    assert status == 1
    assert "must be a text that is safe in a path" in said
    assert len(faults.complaints(said)) == 1
    assert not list(tmp_path.rglob("owned*"))
