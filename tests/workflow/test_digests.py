"""What a file was made with: its digest follows the settings and inputs of the rule that makes it, down to the text."""

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from toposcale.io import tensor_files
from workspace import new_workspace

pytestmark = pytest.mark.workflow

TABLES = [f"results/small/tables/{name}.parquet" for name in ("features", "metrics", "verdicts", "summary")]
CHECKPOINT = "results/small/checkpoints/one/step-00000004.safetensors"


def evaluated(workspace, expression, **sections):
    """The value of an expression in the Snakefile of the workspace's run with other keys, as a JSON object."""
    config = workspace.config
    sections = {key: {**config.get(key, {}), **keys} for key, keys in sections.items()}
    (workspace.path / "Snakefile").write_text(
        f"include: {str(workspace.home / 'Snakefile')!r}\nimport json\nprint(json.dumps({expression}))\n"
    )
    shutil.copytree(workspace.home / "profiles", workspace.path / "profiles", dirs_exist_ok=True)
    done = replace(workspace, home=workspace.path, config={**config, **sections}).snakemake("--list-rules")
    return json.loads(re.search(r"^\{.*\}$", done.stdout, re.MULTILINE)[0])


def digests(workspace, **sections):
    """The digests of some files of the workspace's run with other keys, from the rules of Snakemake."""
    return evaluated(workspace, f"DIGESTS.expected({[*TABLES, CHECKPOINT]!r})", **sections)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = new_workspace(tmp_path_factory.mktemp("digests") / "work")
    workspace.config["training"] |= {"steps": 4, "checkpoint_every": 2, "warmup_steps": 1}
    return workspace


@pytest.fixture(scope="module")
def before(workspace):
    return digests(workspace)


def test_digests_do_not_depend_on_how_the_work_is_cut_into_jobs(workspace, before):
    assert len(set(before.values())) == len(before) == 5
    other = digests(workspace, weights={"jobs": "model"}, training={"jobs": "model"}, hub={"cache": "elsewhere"})
    assert other == before


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"corpus": {"tokenizer": "bpe"}}, set()),
        ({"training": {"warmup_steps": 2}}, set()),
        ({"weights": {"max_points": 9}}, {"metrics", "step-00000004"}),
        ({"statistics": {"resamples": 90}}, {"features", "metrics", "step-00000004"}),
    ],
)
def test_digests_follow_what_a_file_is_made_of(workspace, before, change, same):
    after = digests(workspace, **change)
    unchanged = {re.sub(r".*/|\.\w+$", "", file) for file in before if after[file] == before[file]}
    assert unchanged == same


def test_digests_follow_the_content_of_a_text(workspace, before):
    text = workspace.path / "train.txt"
    content = text.read_bytes()
    text.write_bytes(content[::-1])
    after = digests(workspace)
    text.write_bytes(content)
    assert not set(after.values()) & set(before.values())
    assert digests(workspace) == before


@pytest.mark.parametrize("jobs", ["model", "checkpoint"])
def test_digests_know_the_job_of_every_part(workspace, jobs):
    keys = {name: {"jobs": jobs} for name in ("training", "weights", "embeddings", "landscape")}
    keys["landscape"]["enabled"] = True
    found = evaluated(
        workspace,
        "{'parts': [part for table in ('metrics', *TABLES.gathered) for part in getattr(rules, table + '_table').input], "
        "'made': DIGESTS.makers, 'kept': DIGESTS.kept}",
        **keys,
    )
    made = found["made"]
    assert set(found["parts"]) < set(found["kept"]) < made.keys()
    rule, *_ = made[CHECKPOINT]
    assert rule == "train"
    assert not [file for file in found["kept"] if "/optimisers/" in file]
    assert any("/optimisers/" in file for file in made) is (jobs == "checkpoint")


# A file of the user's that only some tables depend on, its first content, another one, and the files with another digest.
REPLACED = {
    "scores/results.json": ("{}", "[]", {"metrics", "verdicts", "summary"}),
    "tokenizer/tokenizer.json": ("{}", "[]", {"features", "metrics", "verdicts", "summary"}),
    "live/features/weights/live/step-00000002.parquet": ("a", "b", {"features", "verdicts", "summary"}),
    "live/metrics/monitor/live/step-00000002.parquet": ("a", "b", {"metrics", "verdicts", "summary"}),
}


@pytest.fixture
def with_inputs(workspace):
    """The workspace with results of a harness, a model with a tokenizer, and one under a monitor."""
    for name, (content, _, _) in REPLACED.items():
        path = workspace.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    checkpoint = workspace.path / "found/checkpoint-2"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "config.json").write_text("{}")
    tensor_files.write(checkpoint / "model.safetensors", {"w": np.eye(3, 4, dtype=np.float32)}, {})
    (workspace.path / "live/models").mkdir(exist_ok=True)
    (workspace.path / "live/models/live.json").write_text("{}")
    models = workspace.config["models"] | {
        "found": {"kind": "folder", "path": "found", "tokenizer": "tokenizer"},
        "live": {"kind": "monitor", "path": "live"},
    }
    return replace(workspace, config=workspace.config | {"models": models, "metrics": {"harness": "scores"}})


def test_digests_follow_replaced_results_tokenizers_and_monitor_files(with_inputs):
    before = digests(with_inputs)
    for name, (content, other, changed) in REPLACED.items():
        path = with_inputs.path / name
        status = path.stat()
        path.write_text(other)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        after = digests(with_inputs)
        assert {re.sub(r".*/|\.\w+$", "", file) for file in before if after[file] != before[file]} == changed, name
        path.write_text(content)
    assert digests(with_inputs) == before
