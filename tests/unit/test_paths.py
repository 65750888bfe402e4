"""Paths of a run: every pattern is the run's own, and its wildcards are those that rules know."""

import dataclasses
import re

import pytest

import paths
from toposcale.io import schemas

PATHS = paths.Paths.of("mine")


def test_every_pattern_lies_in_the_folder_of_its_run_and_no_two_are_the_same():
    patterns = dataclasses.asdict(PATHS)
    assert patterns.pop("run") == "results/mine"
    assert all(pattern.startswith("results/mine/") for pattern in patterns.values())
    assert len(set(patterns.values())) == len(patterns)
    assert {name for pattern in patterns.values() for name in re.findall(r"\{(.*?)\}", pattern)} == {
        "model",
        "checkpoints",
        "source",
    }


def test_patterns_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PATHS.features = "elsewhere"


def test_files_of_different_jobs_differ():
    """With every wildcard written out, no pattern makes the file of another one."""
    jobs = [{"model": model, "checkpoints": "all", "source": source} for model in ("a", "b") for source in ("x", "y")]
    files = {pattern: {pattern.format(**job) for job in jobs} for pattern in dataclasses.asdict(PATHS).values()}
    assert sum(map(len, files.values())) == len(set().union(*files.values()))


def test_a_table_is_a_parquet_file():
    assert [PATHS.table(name) for name in schemas.TABLES] == [
        f"results/mine/tables/{name}.parquet" for name in schemas.TABLES
    ]


def test_the_file_of_each_model():
    assert paths.files_of_models("weights/{model}", ["a", "b"]) == ["weights/a", "weights/b"]
    assert paths.files_of_models(PATHS.model_log, {}) == []


def test_the_project_and_what_pages_are_made_of():
    assert (paths.ROOT / "Snakefile").is_file()
    for page in ("report", "explorer"):
        names = [file.rpartition("/")[2] for file in paths.page_files(page)]
        assert f"{page}.html" in names
        assert {name.split(".")[0] for name in names} == {"base", page}
