"""One job measures a model in several ways, and leaves alone what is there as it is to be."""

import re

import pandas as pd
import pytest

from toposcale.io import tensor_files

# They run Snakemake in copies of the finished run.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("finished")]

PARTS = {
    "embeddings": ("features/embeddings/one/all.parquet", "metrics/embeddings/one/all.parquet"),
    "landscape": ("features/landscape/one/all.parquet", "landscape/profiles/one/all.parquet"),
    "path": ("landscape/path_surfaces/one.parquet", "landscape/path_profiles/one.parquet"),
    "trajectory": ("features/trajectory/one.parquet",),
}
TARGETS = [f"results/small/{file}" for files in PARTS.values() for file in files]


@pytest.fixture
def run(finished, tmp_path):
    return finished.copied(tmp_path / "copy")


def content(run):
    """The rows of each part."""
    return {part: [pd.read_parquet(run.results / file).to_csv() for file in files] for part, files in PARTS.items()}


def up_to_date(run):
    log = (run.results / "logs/model_measurements/one.log").read_text()
    return set(re.findall(r"(\w+): up to date", log))


def made_again(run):
    """The parts that a job makes again, and those of them that come out as other ones."""
    before = content(run)
    assert run.planned(*TARGETS)["model_measurements"] == 1
    run.snakemake(*TARGETS)
    assert "model_measurements" not in run.planned(*TARGETS)
    after = content(run)
    return set(PARTS) - up_to_date(run), {part for part in PARTS if before[part] != after[part]}


@pytest.mark.parametrize(
    ("section", "key", "value", "parts"),
    [
        ("landscape", "path_resolution", 4, {"path"}),
        ("landscape", "trace_probes", 3, {"landscape"}),
        ("landscape", "batch_size", 3, {"landscape", "path"}),
        ("embeddings", "components", 3, {"embeddings"}),
        ("trajectory", "window", 21, {"trajectory"}),
    ],
)
def test_a_changed_key_makes_its_own_part_again(run, section, key, value, parts):
    run.config[section][key] = value
    assert made_again(run) == (parts, parts)


def test_a_part_that_is_gone_is_made_again_alone_to_the_same_bytes(run):
    kept = (run.path / TARGETS[0]).rename(run.path / "kept").read_bytes()
    run.snakemake(*TARGETS)
    assert (run.path / TARGETS[0]).read_bytes() == kept
    assert up_to_date(run) == {"landscape", "path", "trajectory"}


def double_weights(run):
    """Other weights under the same digest."""
    path = run.results / "checkpoints/one/step-00000040.safetensors"
    arrays, metadata = tensor_files.read(path)
    tensor_files.write(path, {name: 2 * array for name, array in arrays.items()}, metadata)


def test_weights_that_are_other_ones_under_the_same_digest_are_measured_again(run):
    double_weights(run)
    assert made_again(run) == (set(PARTS), {"embeddings", "landscape", "path"})


def test_a_part_that_fails_leaves_the_parts_of_before(run):
    before = content(run)
    run.config["landscape"]["batch_size"] = 10_000
    done = run.snakemake(*TARGETS, check=False)
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("toposcale: model_measurements: corpus.validation: ")
    assert content(run) == before
    # What was restored looks newer than what it was to be made of.
    double_weights(run)
    run.snakemake(*TARGETS, check=False)
    assert content(run) == before
    run.config["landscape"]["batch_size"] = 2
    run.snakemake(*TARGETS)
    assert {part for part, files in content(run).items() if files != before[part]} == {
        "embeddings",
        "landscape",
        "path",
    }
