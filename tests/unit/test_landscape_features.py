"""A checkpoint's landscape as features: against quadratics whose every number is known, and what is not finite."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from toposcale.analysis.graph_dependence import graph_dependence_tables
from toposcale.features import gradients
from toposcale.features.landscape import VECTORS, Settings, compute_features, with_spread

SETTINGS = Settings(
    resolution=5,
    graphs=("grid8", "grid4"),
    trace_probes=4,
    density_steps=4,
    gradients=gradients.Settings(max_points=10),
)
STEEP = {"first.weight": 3.0, "second.weight": 1.0, "bias": 0.5}


def parameters():
    generator = torch.Generator().manual_seed(0)
    shapes = {"first.weight": (4, 6), "second.weight": (3, 4), "bias": (4,)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()
    }


def bowl(factor=1.0):
    """factor * sum over tensors of c |p|^2 / 2: its Hessian is diagonal, with entries factor * c."""
    return lambda point: (
        factor * torch.stack([STEEP[name] * (tensor**2).sum() / 2 for name, tensor in point.items()]).sum()
    )


def dependence(features, graphs):
    return graph_dependence_tables(features, graphs=graphs)["graph_dependence"]


def test_a_quadratic_has_the_curvature_it_was_made_of():
    found = compute_features([bowl()], parameters(), SETTINGS, model="m", step=3)
    whole = found.features["all"]
    assert whole["hessian_top_1"] == pytest.approx(3.0)
    assert whole["hessian_top_2"] == pytest.approx(3.0)  # 24 times over
    assert whole["hessian_trace"] == pytest.approx(3 * 24 + 12 + 0.5 * 4)
    assert found.features["first.weight"]["hessian_trace"] == pytest.approx(72)
    assert found.features[VECTORS]["hessian_trace"] == pytest.approx(2)
    assert whole["hessian_trace_standard_error"] == pytest.approx(0, abs=1e-9)
    assert not any(name.endswith("_spread") for name in whole)


def test_gradients_of_a_quadratic_are_its_weights_times_its_slope():
    point = parameters()
    found = compute_features([bowl()], point, SETTINGS, model="m", step=3)
    expected = {name: STEEP[name] * float(tensor.norm()) for name, tensor in point.items()}
    assert found.gradient_features["first.weight"]["gradient_norm"] == pytest.approx(expected["first.weight"])
    assert found.gradient_features["all"]["gradient_norm"] == pytest.approx(math.hypot(*expected.values()))
    # H0 of the rows of the gradient: the spanning tree of the rows of the weight, three times as long.
    own = gradients.compute_features({"w": point["first.weight"].numpy()}, gradients.Settings(), model="m")[
        0
    ]["w"]
    assert found.gradient_features["first.weight"]["h0_total"] == pytest.approx(3 * own["h0_total"])
    assert set(found.gradient_diagrams) == {"first.weight", "second.weight"}


def test_a_bowl_has_one_minimum_and_its_diagram_one_class_that_never_dies():
    bottom = {"first.weight": torch.full((4, 6), 1e-9, dtype=torch.float64)}
    found = compute_features([bowl()], bottom, SETTINGS, model="m", step=0)
    assert found.features["all"]["n_minima_grid4"] == 1
    assert found.features["all"]["n_saddles_grid4"] == 0
    h0, h1 = found.diagrams["all"]
    assert h0.shape == (1, 2)
    assert h0[0, 1] == math.inf
    assert len(h1) == 0
    assert found.surface.values.shape == (5, 5)


def test_the_spread_is_that_over_the_probe_batches():
    losses = [bowl(1.0), bowl(2.0), bowl(6.0)]
    whole = compute_features(losses, parameters(), SETTINGS, model="m", step=0).features["all"]
    assert whole["hessian_top_1"] == pytest.approx(3.0)
    assert whole["hessian_top_1_spread"] == pytest.approx(np.std([3, 6, 18], ddof=1))
    assert "hessian_trace_standard_error_spread" not in whole
    assert math.isnan(with_spread([{"all": {"a": 1.0}}, {"all": {"a": math.nan}}])["all"]["a_spread"])


def surface(step, model="m", **changes):
    settings = replace(SETTINGS, **changes)
    return compute_features([bowl()], parameters(), settings, model=model, step=step).surface.values


def test_directions_stay_the_same_over_a_models_checkpoints_unless_asked_otherwise():
    assert np.array_equal(surface(0), surface(1))
    assert not np.array_equal(surface(0), surface(0, model="n"))
    assert not np.array_equal(surface(0), surface(0, seed=43))
    assert not np.array_equal(
        surface(0, directions="per_checkpoint"), surface(1, directions="per_checkpoint")
    )


def test_three_dimensions_and_eigenvectors():
    assert surface(0, dimensions=3).shape == (5, 5, 5)
    settings = replace(SETTINGS, axes="eigenvectors", eigenvector_extent=0.5)
    found = compute_features([bowl()], parameters(), settings, model="m", step=0)
    assert found.surface.coordinates[0] == pytest.approx(np.linspace(-0.5, 0.5, 5))
    # Along a unit eigenvector of value 3 the second difference is 3 times the squared step.
    middle = found.surface.values[:, 2]
    assert np.diff(middle, 2) == pytest.approx(3 * 0.25**2)


def test_the_density_of_two_eigenvalues_has_two_peaks():
    # The bulk at 3 has 24 of 40 eigenvalues, 1 has 12, 1/2 has 4.
    grid, density, error = compute_features(
        [bowl()], parameters(), replace(SETTINGS, density_runs=40), model="m", step=0
    ).density
    mass = [
        np.trapezoid(density[chosen], grid[chosen])
        for chosen in (grid > 2, (grid > 0.75) & (grid < 2), grid < 0.75)
    ]
    assert mass == pytest.approx([0.6, 0.3, 0.1], abs=0.06)
    assert np.isfinite(error).all()


@pytest.mark.parametrize("axes", ["random", "eigenvectors"])
def test_weights_that_are_not_finite_have_the_same_features_all_nan(axes):
    settings = replace(SETTINGS, axes=axes)
    broken = parameters()
    broken["second.weight"][1, 1] = math.nan
    healthy = compute_features([bowl()] * 2, parameters(), settings, model="m", step=0)
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        found = compute_features([bowl()] * 2, broken, settings, model="m", step=0)
    for ours, theirs in (
        (found.features, healthy.features),
        (found.gradient_features, healthy.gradient_features),
    ):
        assert {layer: set(named) for layer, named in ours.items()} == {
            layer: set(named) for layer, named in theirs.items()
        }
    whole = found.features["all"]
    assert whole.pop("nonfinite_count") == 25
    assert whole.pop("nonfinite_count_spread") == 0
    assert all(math.isnan(value) for value in whole.values())
    assert found.surface is None
    assert np.isnan(found.diagrams["all"][0]).all()


def test_a_loss_that_is_not_finite_somewhere_is_counted_and_one_everywhere_is_survived():
    def walled(point):
        return torch.where(point["first.weight"][0, 0] > 0.3, torch.nan, bowl()(point))

    point = parameters()
    point["first.weight"][0, 0] = 0.0
    found = compute_features([walled], point, SETTINGS, model="m", step=0)
    count = found.features["all"]["nonfinite_count"]
    assert count == np.isnan(found.surface.values).sum()
    nowhere = lambda point: bowl()(point) * math.nan  # noqa: E731
    for axes in ("random", "eigenvectors"):
        with pytest.warns((RuntimeWarning, UserWarning)):
            found = compute_features([nowhere], parameters(), replace(SETTINGS, axes=axes), model="m", step=0)
        assert found.features["all"]["nonfinite_count"] == 25
        assert math.isnan(found.features["all"]["hessian_trace"])
        assert found.density is None
        assert found.profile is None


def test_a_gradient_that_is_not_finite_has_nan_features_under_the_same_names():
    good = np.random.default_rng(0).normal(size=(4, 3))
    bad = good.copy()
    bad[0, 0] = np.inf
    healthy, _ = gradients.compute_features({"a": good, "b": good}, gradients.Settings(), model="m")
    with pytest.warns(RuntimeWarning, match="gradient of b"):
        found, diagrams = gradients.compute_features({"a": good, "b": bad}, gradients.Settings(), model="m")
    assert found["a"] == healthy["a"]
    assert set(found["b"]) == set(healthy["b"])
    assert all(math.isnan(value) for value in found["b"].values())
    assert not math.isfinite(found["all"]["gradient_norm"])
    assert math.isnan(found["all"]["h0_total"])
    assert np.isnan(diagrams["b"][0]).all()


def rows(model, values):
    """Features of two graphs at checkpoints 0, 1, ...: `values[graph]` for every shape feature."""
    return [
        (model, step, "landscape", "all", f"{shape}_{graph}", value)
        for graph, series in values.items()
        for shape in ("n_minima", "n_saddles", "average_persistence", "total_persistence")
        for step, value in enumerate(series)
    ]


def test_dependence_on_the_graph_by_hand():
    values = {
        "grid8": [1.0, 2.0, 3.0, 4.0],
        "grid4": [3.0, 4.0, 5.0, 6.0],
        "grid8_spread": [0.5, 0.5, 0.5, 1.5],
    }
    columns = ["model", "step", "source", "layer", "feature", "value"]
    table = dependence(pd.DataFrame(rows("m", values), columns=columns), ["grid8", "grid4"])
    row = table.set_index("feature").loc["n_minima"]
    assert (row["lowest"], row["lowest_graph"]) == (2.5, "grid8")
    assert (row["highest"], row["highest_graph"]) == (4.5, "grid4")
    assert row["spread_over_graphs"] == pytest.approx(math.sqrt(2))
    assert row["spread_over_repeats"] == pytest.approx(0.75)
    assert row["spread_over_training"] == pytest.approx(np.std([1, 2, 3, 4], ddof=1))
    assert row["agreement"] == pytest.approx(1)
    values["grid4"][2] = math.nan
    row = dependence(pd.DataFrame(rows("m", values), columns=columns), ["grid8", "grid4"]).iloc[0]
    assert math.isnan(row["spread_over_graphs"])
    assert math.isnan(row["agreement"])
    assert row["lowest_graph"] == ""
    alone = dependence(pd.DataFrame(rows("m", {"grid8": [1.0]}), columns=columns), ["grid8"]).iloc[0]
    assert alone["lowest"] == 1.0
    assert math.isnan(alone["spread_over_graphs"])
