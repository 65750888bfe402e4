"""What a table is gathered from is what is asked for, whatever the times of files and the records of Snakemake say."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest

import faults

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]

TABLE = "results/small/tables/features.parquet"
PARTS = [f"results/small/features/weights/one/step-0000000{step}.parquet" for step in (0, 2, 4)]


@pytest.fixture(scope="module")
def changed(undisturbed, tmp_path_factory):
    """The undisturbed run with another setting: the bytes that its table must have."""
    workspace = undisturbed.copied(tmp_path_factory.mktemp("changed") / "work")
    workspace.config["weights"]["max_points"] = 3
    workspace.snakemake(TABLE)
    return workspace


def test_without_the_records_of_snakemake_old_and_new_parts_are_not_mixed(undisturbed, changed, copy):
    """A run with another setting that was killed after one of three parts, and lost its records."""
    copy.config = changed.config
    shutil.copy(changed.path / PARTS[1], copy.path / PARTS[1])
    shutil.rmtree(copy.path / ".snakemake")
    (copy.path / TABLE).unlink()
    status, said = faults.run(copy, TABLE)
    assert status == 1
    [line] = faults.complaints(said)
    assert line.startswith(f"toposcale: features_table: {PARTS[0]} and 2 more: made with other settings, code or ")
    stale = ("results/small/distances", "results/small/features/weights")
    assert line.endswith(f"no record of it; delete {' '.join(stale)}, or all of the run, and run again")
    assert not (copy.path / TABLE).exists()
    for folder in stale:
        shutil.rmtree(copy.path / folder)
    copy.snakemake(TABLE)
    assert (copy.path / TABLE).read_bytes() == (changed.path / TABLE).read_bytes()
    assert (copy.path / TABLE).read_bytes() != (undisturbed.path / TABLE).read_bytes()


@pytest.mark.parametrize("dated", ["table", "part", "text", "everything"])
def test_a_file_that_is_dated_in_the_future_ends_the_run(undisturbed, copy, dated):
    file = {"table": copy.path / TABLE, "part": copy.path / PARTS[1], "text": copy.path / "train.txt"}.get(dated)
    ahead = time.time() + 86_400
    for path in [file] if file else filter(Path.is_file, copy.results.rglob("*")):
        os.utime(path, (ahead, ahead))
    status, said = faults.run(copy, TABLE)
    assert status == 1
    [line] = [line for line in said.splitlines() if line.startswith("toposcale:")]
    assert re.match(rf"toposcale: .*{file.name if file else 'and [0-9]+ more'}: dated in the future, ", line)
    for path in [file] if file else copy.results.rglob("*"):
        os.utime(path)
    copy.snakemake(TABLE)
    assert (copy.path / TABLE).read_bytes() == (undisturbed.path / TABLE).read_bytes()


def test_files_of_another_run_that_are_dated_in_the_past_are_made_again(changed, copy):
    copy.config = changed.config
    shutil.rmtree(copy.path / ".snakemake")
    for path in copy.results.rglob("*"):
        os.utime(path, (1e9, 1e9))
    copy.snakemake(TABLE)
    assert (copy.path / TABLE).read_bytes() == (changed.path / TABLE).read_bytes()


def test_checkpoints_of_another_training_are_not_measured(copy):
    """Without the records, and with the features gone that told: the checkpoints tell themselves."""
    copy.config["training"]["learning_rate"] = 0.5
    shutil.rmtree(copy.path / ".snakemake")
    for folder in ("features", "distances", "diagrams"):
        shutil.rmtree(copy.results / folder)
    status, said = faults.run(copy, PARTS[0])
    assert status == 1
    [line] = faults.complaints(said)
    assert line.startswith(
        "toposcale: weight_features: results/small/checkpoints/one/step-00000000.safetensors: made with"
    )
    assert not (copy.path / PARTS[0]).exists()
    shutil.rmtree(copy.results / "checkpoints")
    copy.snakemake(PARTS[0])


def test_tables_of_other_settings_are_not_analysed(copy):
    copy.config["weights"]["max_points"] = 3
    shutil.rmtree(copy.path / ".snakemake")
    scaling = copy.path / faults.TARGET
    scaling.unlink()
    status, said = faults.run(copy, faults.TARGET)
    assert status == 1
    [line] = faults.complaints(said)
    assert line.startswith(f"toposcale: scaling: {TABLE}: made with other settings, code or inputs")
    assert not scaling.exists()
