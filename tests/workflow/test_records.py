"""What a table is gathered from is what is asked for, whatever the times of files and the records of Snakemake say."""

import os
import shutil
import time

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
    stale = ("results/small/distances/weights", "results/small/features/weights")
    assert f"lost its records of it; delete {' '.join(stale)} (all of the run, if " in line
    assert not (copy.path / TABLE).exists()
    for folder in stale:
        shutil.rmtree(copy.path / folder)
    copy.snakemake(TABLE)
    assert (copy.path / TABLE).read_bytes() == (changed.path / TABLE).read_bytes()
    assert (copy.path / TABLE).read_bytes() != (undisturbed.path / TABLE).read_bytes()


def test_a_table_that_is_dated_ahead_of_its_parts_is_made_again(changed, copy):
    ahead = time.time() + 86_400
    for path in copy.results.rglob("*"):
        os.utime(path, (ahead, ahead))
    copy.config = changed.config
    copy.snakemake(*PARTS)
    copy.snakemake(TABLE)
    assert (copy.path / TABLE).read_bytes() == (changed.path / TABLE).read_bytes()
