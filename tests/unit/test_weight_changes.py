"""How far weights move between two checkpoints, and which two are unrelated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import diagram_distances as script
import toposcale
from toposcale.features.feature import COSINE, RELATIVE_CHANGE, SUBSPACE_OVERLAP
from toposcale.features.weight_changes import relative_changes, weight_changes
from toposcale.io import tables
from toposcale.io.schemas import ALL_LAYERS


def network(seed, **shapes):
    generator = np.random.default_rng(seed)
    shapes = shapes or {"a": (40, 30), "b": (30, 50), "c": (60, 40)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@given(st.integers(0, 2**32), st.floats(-2.0, 2.0), st.floats(0.0, 2.0))
def test_weight_changes_are_numpys(seed, factor, noise):
    before, other = network(seed, a=(7, 3), b=(2, 9)), network(seed + 1, a=(7, 3), b=(2, 9))
    after = {name: factor * values + noise * other[name] for name, values in before.items()}
    changes = weight_changes(before.items(), reversed(after.items()))
    flat = {ALL_LAYERS: [np.concatenate([side[name].ravel() for name in "ab"]) for side in (before, after)]}
    for layer, (x, y) in ({name: [before[name].ravel(), after[name].ravel()] for name in "ab"} | flat).items():
        x, y = x.astype(np.float64), y.astype(np.float64)
        assert changes[layer].relative == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-6)
        if np.any(y):
            cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
            assert changes[layer].cosine == pytest.approx(cosine, abs=1e-6)


def test_weight_changes_of_a_matrix_of_another_shape_or_one_side_has_none():
    before, after = network(0, a=(4, 3), b=(5, 5), c=(2, 2)), network(1, a=(4, 3), b=(5, 6), d=(2, 2))
    assert weight_changes(before.items(), after.items()).keys() == {"a", ALL_LAYERS}
    assert weight_changes(before.items(), {"z": np.eye(2)}.items()) == {}


def test_relative_changes_leave_out_what_was_zero_and_keep_nan():
    before = {"zero": np.zeros((3, 3)), "same": np.eye(3), "broken": np.full((2, 2), np.nan)}
    after = {"zero": np.eye(3), "same": np.eye(3), "broken": np.eye(2)}
    features = relative_changes(before.items(), after.items(), before)
    assert "zero" not in features
    assert features["same"] == {RELATIVE_CHANGE: 0.0}
    assert np.isnan(features["broken"][RELATIVE_CHANGE])
    assert np.isnan(features[ALL_LAYERS][RELATIVE_CHANGE])


def test_moves_of_a_run_are_those_of_measured_layers_between_checkpoints(tmp_path):
    """The job that compares consecutive checkpoints; the third one could not be measured."""
    layers = {"a": np.eye(4, 3), "frozen": np.eye(2)}
    files = [str(tmp_path / f"step-{step}.safetensors") for step in range(4)]
    for step, file in enumerate(files):
        save_file({"a": (1 + step) * layers["a"], "frozen": layers["frozen"]}, file)
    measured = tables.diagram_rows({"a": [np.array([[0.0, 1.0]])]}, model="m", step=0, source="weights")
    changes = list(script.moves([measured, measured, None, measured], files))
    assert changes == [{"a": {RELATIVE_CHANGE: 1.0}, ALL_LAYERS: {RELATIVE_CHANGE: 1.0}}, {}, {}]


def test_subspace_overlap_of_equal_spans_is_1_of_disjoint_ones_0():
    """The ten leading directions of a diagonal matrix are its largest entries."""
    first = np.diag([*[2.0] * 10, *[1.0] * 20])
    changes = toposcale.changes_of({"w": first}, {"w": 3 * first[:, ::-1]}).set_index(["layer", "feature"])["change"]
    assert changes["w", SUBSPACE_OVERLAP] == pytest.approx(1.0)
    changes = toposcale.changes_of({"w": first}, {"w": first[::-1, ::-1]}).set_index(["layer", "feature"])["change"]
    assert changes["w", SUBSPACE_OVERLAP] == pytest.approx(0.0, abs=1e-12)
    assert changes["w", COSINE] == pytest.approx((10 * 1 + 10 * 2 * 2) / np.square(first).sum())


def test_compare_two_seeds_are_unrelated_and_a_step_is_not():
    before = network(0)
    notes = toposcale.compare(before, network(1), features="norms").attrs["notes"]
    assert notes[0].startswith("the two are unrelated, as two seeds are: ")
    assert "the change is 14" in notes[0]  # about the square root of 2
    moved = {name: values + 0.5 * network(2)[name] for name, values in before.items()}
    table = toposcale.compare(before, moved, features="norms")
    assert not any("unrelated" in note for note in table.attrs["notes"])
    assert list(table.columns[:2]) == ["shape", RELATIVE_CHANGE]
    assert table[RELATIVE_CHANGE].to_numpy(float) == pytest.approx(0.5, rel=0.05)
