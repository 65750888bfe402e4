"""Which files of an earlier job a job that measures a model in several ways leaves alone."""

import os
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Params

import _job
import model_measurements
from toposcale.io import schemas, tables


@pytest.fixture
def part(tmp_path):
    """A part with two files that were made as they are to be."""
    files = [str(tmp_path / name) for name in ("features.parquet", "profiles.parquet")]
    params = Params(fromdict={"digest": "abc", "inputs": {}, "settings": {"every": 2}, "checksum": "of the inputs"})
    made = SimpleNamespace(rule="landscape", output=files, params=params)
    for path, name in zip(files, ("features", "profiles"), strict=True):
        tables.write(tables.from_rows(schemas.TABLES[name], []), path, _job.provenance(made))
    return made


def test_what_was_made_as_it_is_to_be_is_done(part, monkeypatch):
    assert model_measurements.is_done(part)
    monkeypatch.setenv("TOPOSCALE_REVISION", "another")
    part.rule = "model_measurements"
    assert model_measurements.is_done(part)


def test_what_was_made_with_something_else_is_not_done(part, monkeypatch):
    part.params.digest = "abd"
    assert not model_measurements.is_done(part)
    part.params.digest, part.params.checksum = "abc", "of other inputs"
    assert not model_measurements.is_done(part)
    part.params.checksum = "of the inputs"
    assert model_measurements.is_done(part)
    monkeypatch.setattr(_job.metadata, "version", lambda name: "0.0")
    assert not model_measurements.is_done(part)


@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_what_is_gone_or_damaged_is_not_done(part, content):
    os.unlink(part.output[1])
    if content is not None:
        with open(part.output[1], "wb") as file:
            file.write(content)
    assert not model_measurements.is_done(part)
