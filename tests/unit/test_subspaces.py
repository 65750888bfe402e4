"""Minima in subspaces of the Hessian: exact for convex losses and planted wells, whatever the dimension."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from toposcale.features.landscape import LandscapeFeatureSettings, compute_features
from toposcale.landscape import Hessian, measure_landscape
from toposcale.landscape.subspaces import subspace_trees

DIMENSIONS = (2, 3, 5, 10)
CURVATURES = torch.linspace(3.0, 1.2, 14, dtype=torch.float64)
ORIGIN = {"w": torch.zeros(14, dtype=torch.float64)}


def bowl(point):
    return (CURVATURES * point["w"] ** 2).sum() / 2


def wells(point):
    """Minima of height 0 where the first coordinate is 0 or 2, a saddle of height 1 between them; curvature 8 there."""
    along = point["w"][0]
    return (CURVATURES[1:] * point["w"][1:] ** 2).sum() / 2 + ((along - 1) ** 2 - 1) ** 2


def trees(loss, dimension, parameters=ORIGIN, **changes):
    values, vectors = Hessian(loss, parameters).eigenpairs(dimension, seed=0)
    pairs = zip(values.tolist(), vectors, strict=True)
    directions = [{name: tensor / math.sqrt(abs(value)) for name, tensor in vector.items()} for value, vector in pairs]
    options = {"extent": 6.0, "starts": 40, "threshold": 0.01, "seed": 1} | changes
    return list(subspace_trees(loss, parameters, directions, np.sign(values), **options).values())


def counts(tree):
    return tree.n_minima, tree.n_saddles, tree.n_components


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_subspace_trees_of_a_quadratic_have_one_minimum(dimension):
    beside = {"w": torch.linspace(-1.0, 1.0, 14, dtype=torch.float64)}
    for parameters in (ORIGIN, beside):
        for found in trees(bowl, dimension, parameters):
            assert counts(found) == (1, 0, 1)
    # The quadratic model of a quadratic is it: gradient and curvature agree.
    loss, quadratic = trees(bowl, dimension, beside)
    assert loss.values.min() == pytest.approx(quadratic.values.min(), abs=1e-6)


@pytest.mark.parametrize("starts", [1, 7])
def test_subspace_trees_convex_loss_has_one_minimum(starts):
    cosh = lambda point: torch.log(torch.cosh(CURVATURES * point["w"])).sum()  # noqa: E731
    loss, _ = trees(cosh, 6, starts=starts)
    assert counts(loss) == (1, 0, 1)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_subspace_trees_two_wells_are_two_minima(dimension):
    loss, quadratic = trees(wells, dimension)
    assert counts(loss) == (2, 1, 1)
    assert loss.persistences == pytest.approx([1.0], abs=1e-4)
    assert counts(quadratic) == (1, 0, 1)


def test_subspace_trees_have_no_wells_outside_of_the_cube():
    def weak(point):
        along = point["w"][13]
        return (CURVATURES[:13] * point["w"][:13] ** 2).sum() / 2 + ((along - 1) ** 2 - 1) ** 2 / 16

    assert counts(trees(weak, 4)[0]) == (1, 0, 1)
    # The second well lies 2 sqrt(8) = 5.7 away.
    assert counts(trees(wells, 4, extent=2.0)[0]) == (1, 0, 1)


def test_subspace_trees_barrier_below_threshold_is_not_counted():
    # The barrier is 1, and the model rises by 18 along an axis.
    assert counts(trees(wells, 3, threshold=0.05)[0]) == (2, 1, 1)
    assert counts(trees(wells, 3, threshold=0.06)[0]) == (1, 0, 1)


def test_subspace_trees_at_saddle_quadratic_model_minima_of_loss():
    signs = torch.ones(14, dtype=torch.float64)
    signs[0] = -1
    for found in trees(lambda point: (signs * CURVATURES * point["w"] ** 2).sum() / 2, 3, extent=1.0):
        # Downhill to either side, to the faces of the cube.
        assert counts(found) == (2, 1, 1)
        assert found.persistences == pytest.approx([0.5])


def test_subspace_trees_loss_not_finite_in_places_searched_where():
    half = lambda point: bowl(point) - torch.log(point["w"][0] + 0.5)  # noqa: E731
    with np.errstate(invalid="ignore"):
        loss, _ = trees(half, 2, extent=3.0)
    # A start where the loss is NaN stays one, and enters last.
    assert np.isnan(loss.values).any()
    assert np.isfinite(loss.values[loss.minima]).all()
    assert counts(loss) == (1, 0, 1)


SETTINGS = LandscapeFeatureSettings(
    planes={}, trace_probes=2, subspaces=(2, 5), subspace_starts=10, subspace_extent=6.0
)


def test_measure_landscape_has_both_trees_of_each_dimension():
    whole = measure_landscape(wells, ORIGIN, SETTINGS).features["all"]
    for dimension in (2, 5):
        assert whole[f"n_minima_subspace_{dimension}_aknn8"] == 2
        assert whole[f"n_saddles_subspace_{dimension}_aknn8"] == 1
        assert whole[f"total_persistence_subspace_{dimension}_aknn8"] == pytest.approx(1, abs=1e-4)
        assert whole[f"n_saddles_quadratic_{dimension}_aknn8"] == 0
    off = measure_landscape(wells, ORIGIN, replace(SETTINGS, subspaces=())).features["all"]
    assert not any("subspace" in name or "quadratic" in name for name in off)


def test_measure_landscape_subspaces_nan_without_curvature():
    names = {name for name in measure_landscape(wells, ORIGIN, SETTINGS).features["all"] if "_aknn8" in name}
    with pytest.warns(UserWarning, match="no plane top"):
        flat = measure_landscape(lambda point: point["w"].sum(), ORIGIN, SETTINGS).features["all"]
    nowhere = {"w": torch.full((14,), math.nan)}
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        damaged = compute_features([bowl], nowhere, SETTINGS)
    for features in (flat, damaged.features["all"]):
        assert names == {name for name in features if "_aknn8" in name}
        assert all(math.isnan(features[name]) for name in names)
