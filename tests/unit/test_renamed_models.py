"""What is measured depends neither on the name of a model nor on the seed of its training."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import diagram_distances
import toposcale
import trajectory
import weight_features
from toposcale.features.divergences import Cloud, save_clouds
from toposcale.io import tensor_files

NAMES = ("one", "one.seed43", "another")
SETTINGS = {"max_points": 12, "null_draws": 2, "surrogate_draws": 3}


class Params(dict):
    """The params of a job, which are read as attributes too."""

    __getattr__ = dict.__getitem__


@pytest.fixture
def rows_of(tmp_path):
    """A function that runs a script for a model and returns the rows of its features, without the model."""

    def rows(script, model, inputs, **params):
        output = {name: str(tmp_path / f"{name}.parquet") for name in ("features", "diagrams")}
        job = SimpleNamespace(
            rule="measure",
            log=str(tmp_path / "log"),
            wildcards=SimpleNamespace(model=model),
            input=inputs,
            output=output,
            params=Params(digest="", **params),
        )
        script.main(job)
        return pd.read_parquet(output["features"]).drop(columns="model")

    return rows


@pytest.fixture
def checkpoint(tmp_path):
    random = np.random.default_rng(0)
    matrices = {layer: random.standard_normal((40, 5)).astype(np.float32) for layer in ("a.weight", "b.weight")}
    tensor_files.write(tmp_path / "weights.safetensors", matrices, {})
    return str(tmp_path / "weights.safetensors")


def test_the_weights_of_a_renamed_model_have_its_features_which_are_those_of_the_file(rows_of, checkpoint):
    settings = SETTINGS | {"layers": {"include": ["*"], "exclude": []}}
    job = {"steps": [8], "settings": settings, "allow_missing": False, "frozen": []}
    first, *others = (
        rows_of(weight_features, name, SimpleNamespace(checkpoints=[checkpoint]), **job) for name in NAMES
    )
    for other in others:
        pd.testing.assert_frame_equal(other, first, check_exact=True)
    described = toposcale.features_of(checkpoint, **SETTINGS)
    keys = ["layer", "feature"]
    measured = first[[*keys, "value"]].sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(described.sort_values(keys, ignore_index=True), measured, check_exact=True)
    assert {"h0_total", "h1_total_z_permuted", "h0_surrogate_z"} <= set(first["feature"])


def test_the_halves_of_the_texts_are_the_same(rows_of, tmp_path):
    clouds = {step: Cloud(np.random.default_rng(step).standard_normal((20, 4)), np.arange(20)) for step in (1, 2)}
    save_clouds(tmp_path / "clouds.safetensors", clouds, {})
    inputs = SimpleNamespace(clouds=[str(tmp_path / "clouds.safetensors")])
    spreads = {
        rows_of(diagram_distances, name, inputs, steps={}, repeats=3).set_index("feature").loc["rtd_spread", "value"]
        for name in NAMES
    }
    assert len(spreads) == 1
    assert spreads.pop() > 0


def test_the_dimension_of_a_trajectory_is_of_the_same_subsets(rows_of, tmp_path):
    path = np.random.default_rng(2).standard_normal((60, 3)).cumsum(axis=0)
    tensor_files.write(tmp_path / "sketch.safetensors", {"step": np.arange(60), "sketch": path}, {})
    dimensions = {
        rows_of(trajectory, name, [str(tmp_path / "sketch.safetensors")], steps=[60], window=60)
        .set_index("feature")
        .loc["persistent_homology_dimension", "value"]
        for name in NAMES
    }
    assert len(dimensions) == 1
    assert math.isfinite(dimensions.pop())
