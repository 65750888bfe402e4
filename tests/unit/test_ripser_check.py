"""A few diagrams of a run against ripser: agreement up to its float32, and a difference that is told."""

from dataclasses import replace

import numpy as np
import pytest

import report
from toposcale import homology
from toposcale.features import ripser_check, weights
from toposcale.features.ripser_check import ROUNDING
from toposcale.io import schemas, tables, tensor_files
from toposcale.pages import provenance

SETTINGS = weights.WeightSettings(max_points=20, max_dimension=1)
LAYERS = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def matrices():
    generator = np.random.default_rng(0)
    return {layer: generator.standard_normal((30, 6)).astype(np.float32) for layer in LAYERS}


@pytest.fixture(scope="module")
def diagrams(matrices):
    _, by_layer = weights.compute_features(matrices.items(), SETTINGS)
    return {(layer, k): diagram for layer, both in by_layer.items() for k, diagram in enumerate(both)}


@pytest.mark.parametrize("maxdim", [0, 1, 2])
def test_largest_difference_of_a_circle_is_that_of_float32(maxdim):
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    points = np.column_stack([np.cos(angles), np.sin(angles)])  # its distances tie
    diagrams = homology.rips_diagrams(points, maxdim=maxdim)
    assert 0 <= ripser_check.largest_difference(points, diagrams) < 1e-7


def test_largest_difference_duplicated_and_few_points_agree(recwarn):
    for points in ([[0.0, 0, 0], [1, 0, 0], [1, 0, 0]], [[0.0, 0, 0], [3, 4, 0]]):
        diagrams = homology.rips_diagrams(points)
        assert ripser_check.largest_difference(np.array(points), diagrams) < 1e-7
    assert list(recwarn) == []  # that there are more dimensions than points is as it should be


def test_largest_difference_finds_a_planted_one():
    points = np.array([[0.0, 0], [3, 0], [0, 4]])
    right, loops = homology.rips_diagrams(points)
    wrong = right + np.array([[0, 0], [0, 0.5]])  # the mean distance is 4
    assert ripser_check.largest_difference(points, [wrong, loops]) == pytest.approx(0.125)
    assert ripser_check.largest_difference(points, [right, np.array([[3.0, 4.0]])]) == pytest.approx(0.125)


def test_check_three_layers_are_checked_with_rows_of_features(matrices, diagrams):
    read = []
    clouds = ripser_check.check(
        ((layer, read.append(layer) or matrix) for layer, matrix in matrices.items()), diagrams, SETTINGS
    )
    assert [(cloud["layer"], cloud["points"]) for cloud in clouds] == [("a", 20), ("c", 20), ("e", 20)]
    assert all(cloud["difference"] < 1e-6 for cloud in clouds)
    # The rows depend on the seed: with others, the diagrams are others.
    others = ripser_check.check(matrices.items(), diagrams, replace(SETTINGS, seed=43))
    assert min(cloud["difference"] for cloud in others) > ROUNDING


def test_chosen_layers_what_cannot_be_compared_is_not_chosen(matrices, diagrams):
    some = {key: diagram for key, diagram in diagrams.items() if key[0] in "ab"}
    some["b", 0] = np.full((1, 2), np.nan)  # weights that were not finite
    assert ripser_check.chosen_layers(some) == ["a"]
    assert len(ripser_check.check(matrices.items(), some, SETTINGS)) == 1
    assert ripser_check.check(matrices.items(), {}, SETTINGS) == []


def test_report_compares_the_last_checkpoint_with_ripser(tmp_path, matrices, diagrams):
    tensor_files.write(tmp_path / "weights.safetensors", matrices, {})
    by_layer = {layer: [diagrams[layer, 0], diagrams[layer, 1]] for layer in LAYERS}
    halved = {layer: [diagram / 2 for diagram in both] for layer, both in by_layer.items()}
    settings = {"max_points": 20, "max_dimension": 1, "seed": 42, "threads": 1}

    def sentence(**steps):
        rows = [
            tables.diagram_rows(of_step, model="m", step=int(name.removeprefix("at_")), source="weights")
            for name, of_step in steps.items()
        ]
        tables.write(tables.concatenate(schemas.TABLES["diagrams"], rows), tmp_path / "all.parquet", {})
        return report.agreement(str(tmp_path / "weights.safetensors"), str(tmp_path / "all.parquet"), settings)

    right = sentence(at_4=halved, at_8=by_layer)
    assert "diagrams of 3 weight matrices of m at step 8 again" in right
    assert "which is its rounding" in right
    assert "which rounding does not explain" in sentence(at_8=halved)
    assert sentence() == ""  # a checkpoint that could not be measured


def test_agreement_states_the_largest_difference():
    clouds = [{"layer": layer, "points": 20, "difference": d} for layer, d in (("a", 1e-9), ("b", 2.31e-8))]
    of = ("m", 5000, "ripser 0.6")
    assert provenance.agreement(clouds, *of) == (
        "ripser 0.6 computed the persistence diagrams of 2 weight matrices of m at step 5,000 again: the largest "
        "difference between the diagrams (bottleneck distance) is 2.3e-08 of the mean distance between rows, which is its "
        "rounding to float32."
    )
    clouds[0]["difference"] = 0.02
    wrong = provenance.agreement(clouds, *of)
    assert "is 2.0e-02 of the mean distance between rows, in a, which rounding does not explain" in wrong
    assert "1 weight matrix of m" in provenance.agreement(clouds[:1], *of)
    assert provenance.agreement([], *of) == ""
