"""What a file was made with: its digest follows the settings and inputs of the rule that makes it, down to the text."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from workspace import new_workspace

pytestmark = pytest.mark.workflow

TABLES = [f"results/small/tables/{name}.parquet" for name in ("features", "metrics", "verdicts", "summary")]
CHECKPOINT = "results/small/checkpoints/one/step-00000004.safetensors"


def digests(workspace, **sections):
    """The digests of some files of the workspace's run with other keys, from the rules of Snakemake."""
    config = workspace.config
    sections = {key: {**config.get(key, {}), **keys} for key, keys in sections.items()}
    files = [*TABLES, CHECKPOINT]
    (workspace.path / "Snakefile").write_text(
        f"include: {str(workspace.home / 'Snakefile')!r}\nimport json\nprint(json.dumps(DIGESTS.expected({files!r})))\n"
    )
    shutil.copytree(workspace.home / "profiles", workspace.path / "profiles", dirs_exist_ok=True)
    done = replace(workspace, home=workspace.path, config={**config, **sections}).snakemake("--list-rules")
    return json.loads(re.search(r"^\{.*\}$", done.stdout, re.MULTILINE)[0])


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
