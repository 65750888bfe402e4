"""The training trajectory: its principal plane against paths that are known, and its topology."""

import math

import numpy as np
import pytest
import torch

from toposcale.features import trajectory
from toposcale.landscape.surface import path_surface, principal_plane


def embedded(points, size=12, seed=0):
    """Points (n, k) in a random k-dimensional subspace of parameter space, as two tensors each; and the basis."""
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, points.shape[1])))[0]
    flat = points @ basis.T + 1.0
    return [{"a": torch.from_numpy(row[:8].reshape(2, 4)), "b": torch.from_numpy(row[8:])} for row in flat]


def test_principal_plane_path_in_a_plane_keeps_all_its_distances():
    points = np.random.default_rng(1).normal(size=(7, 2)) * [5, 1]
    plane = principal_plane(embedded(points))
    assert plane.distance == pytest.approx(np.zeros(7), abs=1e-12)
    assert plane.coordinates[-1] == pytest.approx([0, 0])
    assert np.linalg.norm(plane.coordinates, axis=1) == pytest.approx(np.linalg.norm(points - points[-1], axis=1))
    first, second = (torch.cat([part.ravel() for part in d.values()]) for d in plane.directions)
    assert float(first @ second) == pytest.approx(0, abs=1e-12)
    assert float(first.norm()) == pytest.approx(1)
    assert first[first.abs().argmax()] > 0


def test_principal_plane_what_the_plane_leaves_out_is_said():
    points = np.array([[3.0, 0, 0], [0, 2.0, 0], [0, 0, 0.5], [0, 0, 0]])
    plane = principal_plane(embedded(points))
    assert plane.distance == pytest.approx([0, 0, 0.5, 0], abs=1e-9)


@pytest.mark.parametrize(
    "points",
    [np.ones((5, 3)), np.outer(np.arange(5.0), [1.0, 2.0]), np.array([[1.0, 2.0], [0.0, 0.0]]), np.ones((1, 2))],
)
def test_principal_plane_a_line_has_no_plane(points):
    with pytest.raises(ValueError, match="line"):
        principal_plane(embedded(points))


def test_principal_plane_points_that_are_not_finite_are_refused():
    points = np.eye(3)
    points[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        principal_plane(embedded(points))


def test_principal_plane_window_holds_path_and_loss_there_right():
    points = np.random.default_rng(2).normal(size=(6, 2)) * [4, 2]
    path = embedded(points)
    end = path[-1]

    def loss(point):
        return sum(((point[name] - end[name]) ** 2).sum() for name in end)

    plane = principal_plane(path)
    surface = path_surface(loss, end, plane, steps=7)
    x, y = surface.coordinates
    assert x[0] < plane.coordinates[:, 0].min() < plane.coordinates[:, 0].max() < x[-1]
    assert y[0] < plane.coordinates[:, 1].min() < plane.coordinates[:, 1].max() < y[-1]
    assert surface.values == pytest.approx(x[:, None] ** 2 + y[None, :] ** 2)


def test_compute_features_of_a_path_use_earlier_sketches():
    steps = np.arange(0, 100, 2)
    sketches = np.random.default_rng(0).normal(size=(50, 4))
    found = trajectory.compute_features(steps, sketches, [0, 38, 40, 60, 100], window=20)
    assert list(found) == [40, 60, 100]  # fewer than twenty sketches lie before the others
    assert found[60]["all"]["h0_count"] == 19
    changed = sketches.copy()
    changed[30:] += 100  # step 60 and later
    changed[:10] -= 100  # before the window of step 60
    again = trajectory.compute_features(steps, changed, [60], window=20)
    assert again[60] == found[60]
    assert found[60] != found[100]


def test_trajectory_dimension_of_a_square_and_of_a_path():
    rng = np.random.default_rng(0)
    line = np.linspace(0, 1, 400)[:, None] * [[3.0, 4.0]]
    dimensions = [
        trajectory.compute_features(np.arange(400), points, [400], window=400)[400]["all"]
        for points in (rng.random((400, 2)), line)
    ]
    square, straight = (one["persistent_homology_dimension"] for one in dimensions)
    assert square == pytest.approx(2, abs=0.35)
    assert straight == pytest.approx(1, abs=0.1)
    assert 0 < dimensions[0]["persistent_homology_dimension_spread"] < 0.5


def test_trajectory_sketches_are_not_finite_give_no_features():
    sketches = np.ones((40, 3)) * np.arange(40)[:, None]
    sketches[35] = math.nan
    with pytest.warns(UserWarning, match="before step 40"):
        found = trajectory.compute_features(np.arange(40), sketches, [32, 40], window=20)
    assert list(found) == [32]
