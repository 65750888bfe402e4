"""A checkpoint's landscape as features: against quadratics whose every number is known, and what is not finite."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from toposcale.features.landscape import (
    LandscapeFeatureSettings,
    compute_features,
    features_of_gradients,
    mean_and_spread,
)
from toposcale.features.registry import lookup
from toposcale.landscape.measure import VECTORS

SETTINGS = LandscapeFeatureSettings(
    planes={"random": (1.0,), "negative": (1.0,)},
    resolution=5,
    graphs=("grid8", "grid4"),
    trace_probes=4,
    density_steps=4,
    gradients=True,
)
STEEP = {"first.weight": 3.0, "second.weight": 1.0, "bias": 0.5}


def parameters():
    generator = torch.Generator().manual_seed(0)
    shapes = {"first.weight": (4, 6), "second.weight": (3, 4), "bias": (4,)}
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def bowl(factor=1.0):
    """factor * sum over tensors of c |p|^2 / 2: its Hessian is diagonal, with entries factor * c."""
    return lambda point: (
        factor * torch.stack([STEEP[name] * (tensor**2).sum() / 2 for name, tensor in point.items()]).sum()
    )


def test_compute_features_quadratic_has_curvature_it_was_made_of():
    found = compute_features([bowl()], parameters(), SETTINGS)
    whole = found.features["all"]
    assert whole["hessian_top_1"] == pytest.approx(3.0)
    assert whole["hessian_top_2"] == pytest.approx(3.0)  # 24 times over
    assert whole["hessian_trace"] == pytest.approx(3 * 24 + 12 + 0.5 * 4)
    assert found.features["first.weight"]["hessian_trace"] == pytest.approx(72)
    assert found.features[VECTORS]["hessian_trace"] == pytest.approx(2)
    assert whole["hessian_trace_standard_error"] == pytest.approx(0, abs=1e-9)
    assert whole["hessian_max"] == pytest.approx(3.0)
    assert whole["hessian_min"] == pytest.approx(0.5)
    assert not any(name.endswith("_spread") for name in whole)


def test_lookup_gives_plane_graph_and_statistic_of_each_name():
    settings = replace(SETTINGS, ball_points=30, subspaces=(2,), subspace_starts=1)
    names = compute_features([bowl(), bowl(2.0)], parameters(), settings)
    features = [lookup(name, "landscape") for name in names.features["all"]]
    assert {one.plane for one in features} == {
        "",
        "random_1",
        "negative_1",
        "ball",
        "bowl",
        "subspace_2",
        "quadratic_2",
    }
    for one in features:
        graphs = ("", "_grid8", "_grid4", "_aknn8")
        assert one.name in ["_".join(filter(None, [one.statistic, one.plane])) + graph + one.suffix for graph in graphs]
        assert one.plane.startswith(one.plane_kind)


def test_compute_features_gradients_of_a_quadratic():
    point = parameters()
    found = compute_features([bowl()], point, SETTINGS)
    expected = {name: STEEP[name] * float(tensor.norm()) for name, tensor in point.items()}
    assert found.gradient_features["first.weight"]["gradient_norm"] == pytest.approx(expected["first.weight"])
    assert found.gradient_features["all"]["gradient_norm"] == pytest.approx(math.hypot(*expected.values()))
    # H0 of the rows of the gradient: the spanning tree of the rows of the weight, three times as long.
    own = features_of_gradients({"w": point["first.weight"].numpy()})[0]["w"]
    assert found.gradient_features["first.weight"]["h0_total"] == pytest.approx(3 * own["h0_total"])
    assert set(found.gradient_diagrams) == {"first.weight", "second.weight"}


def test_compute_features_of_a_bowl_have_one_minimum():
    bottom = {"first.weight": torch.full((4, 6), 1e-9, dtype=torch.float64)}
    found = compute_features([bowl()], bottom, SETTINGS)
    assert found.features["all"]["n_minima_random_1_grid4"] == 1
    assert found.features["all"]["n_saddles_random_1_grid4"] == 0
    h0, h1 = found.diagrams["random_1"]
    assert h0.shape == (1, 2)
    assert h0[0, 1] == math.inf
    assert len(h1) == 0
    assert found.surfaces["random_1"].values.shape == (5, 5)


def test_mean_and_spread_are_those_over_the_draws():
    losses = [bowl(1.0), bowl(2.0), bowl(6.0)]
    whole = compute_features(losses, parameters(), SETTINGS).features["all"]
    assert whole["hessian_top_1"] == pytest.approx(np.mean([3, 6, 18]))
    assert whole["hessian_top_1_spread"] == pytest.approx(np.std([3, 6, 18], ddof=1))
    assert "hessian_trace_standard_error_spread" not in whole
    two = mean_and_spread(
        [{"all": {"a": 1.0, "b_standard_error": 3.0}}, {"all": {"a": math.nan, "b_standard_error": 4.0}}]
    )
    assert math.isnan(two["all"]["a"])
    assert math.isnan(two["all"]["a_spread"])
    assert two["all"]["b_standard_error"] == 2.5  # of the mean of two: sqrt(9 + 16) / 2


def surface(**changes):
    settings = replace(SETTINGS, **changes)
    found = compute_features([bowl()], parameters(), settings)
    return found.surfaces["random_1"].values


def test_compute_features_directions_are_those_of_the_seed():
    assert np.array_equal(surface(), surface())
    assert not np.array_equal(surface(), surface(seed=43))


def test_compute_features_has_profile_and_diagram_of_each_plane():
    for dimensions in (2, 3):
        settings = replace(SETTINGS, dimensions=dimensions)
        found = compute_features([bowl()], parameters(), settings)
        assert set(found.surfaces) == set(found.profiles) == set(found.diagrams) == {"random_1", "negative_1"}
        for plane, one in found.surfaces.items():
            assert one.values.shape == (5,) * dimensions
            # At the highest level everything is in one component.
            assert found.profiles[plane].mass[-1].tolist() == [1.0]


def test_compute_features_the_ball_has_profiles_beside_its_bowl():
    settings = replace(SETTINGS, ball_points=60)
    found = compute_features([bowl()], parameters(), settings)
    assert {"ball", "bowl"} < set(found.profiles)
    assert {"n_saddles_ball_aknn8", "n_saddles_bowl_aknn8"} < set(found.features["all"])


def test_compute_features_density_of_two_eigenvalues_two_peaks():
    # The bulk at 3 has 24 of 40 eigenvalues, 1 has 12, 1/2 has 4.
    grid, density = compute_features([bowl()], parameters(), replace(SETTINGS, density_runs=40)).density
    mass = [
        np.trapezoid(density[chosen], grid[chosen]) for chosen in (grid > 2, (grid > 0.75) & (grid < 2), grid < 0.75)
    ]
    assert mass == pytest.approx([0.6, 0.3, 0.1], abs=0.06)


def test_compute_features_of_non_finite_weights_are_nan():
    broken = parameters()
    broken["second.weight"][1, 1] = math.nan
    healthy = compute_features([bowl()] * 2, parameters(), SETTINGS)
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        found = compute_features([bowl()] * 2, broken, SETTINGS)
    for ours, theirs in ((found.features, healthy.features), (found.gradient_features, healthy.gradient_features)):
        assert {layer: set(named) for layer, named in ours.items()} == {
            layer: set(named) for layer, named in theirs.items()
        }
    assert all(math.isnan(value) for value in found.features["all"].values())
    assert found.surfaces == {}
    assert np.isnan(found.diagrams["all"][0]).all()


def test_compute_features_counts_points_of_non_finite_loss():
    def walled(point):
        return torch.where(point["first.weight"][0, 0] > 0.3, torch.nan, bowl()(point))

    point = parameters()
    point["first.weight"][0, 0] = 0.0
    found = compute_features([walled], point, SETTINGS)
    for plane, one in found.surfaces.items():
        assert found.features["all"][f"nonfinite_count_{plane}"] == np.isnan(one.values).sum()
    nowhere = lambda point: bowl()(point) * math.nan  # noqa: E731
    with pytest.warns((RuntimeWarning, UserWarning)):
        found = compute_features([nowhere], parameters(), SETTINGS)
    whole = found.features["all"]
    assert whole["nonfinite_count_random_1"] == 25
    for missing in ("hessian_trace", "hessian_max", "hessian_min", "n_saddles_negative_1_grid8"):
        assert math.isnan(whole[missing]), missing
    assert set(found.surfaces) == {"random_1"}
    assert found.density is None


def test_features_of_gradients_not_finite_are_nan():
    good = np.random.default_rng(0).normal(size=(4, 3))
    bad = good.copy()
    bad[0, 0] = np.inf
    healthy, _ = features_of_gradients({"a": good, "b": good})
    with pytest.warns(RuntimeWarning, match="gradient of b"):
        found, diagrams = features_of_gradients({"a": good, "b": bad})
    assert found["a"] == healthy["a"]
    assert set(found["b"]) == set(healthy["b"])
    assert all(math.isnan(value) for value in found["b"].values())
    assert not math.isfinite(found["all"]["gradient_norm"])
    assert math.isnan(found["all"]["h0_total"])
    assert np.isnan(diagrams["b"][0]).all()
