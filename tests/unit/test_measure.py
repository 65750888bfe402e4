"""The landscape of any loss: planes of known quadratics, and a ball beside its bowl."""

import math

import numpy as np
import pytest
import torch

from toposcale.landscape import LandscapeSettings, measure_landscape

CURVATURES = torch.tensor([[8.0, 3.0, 1.0], [0.5, -0.25, -2.0]], dtype=torch.float64)


def quadratic(point):
    """A diagonal Hessian whose eigenvalues are those of CURVATURES."""
    return (CURVATURES * point["w"] ** 2).sum() / 2


def origin():
    return {"w": torch.zeros(2, 3, dtype=torch.float64)}


def measured(loss, parameters, **changes):
    return measure_landscape(loss, parameters, LandscapeSettings(**{"resolution": 5, "trace_probes": 10} | changes))


@pytest.mark.parametrize(
    ("plane", "curvatures"), [("top", [8.0, 3.0]), ("negative", [-2.0, -0.25]), ("mixed", [8.0, -2.0])]
)
def test_planes_of_eigenvectors_reach_as_far_as_their_curvature_says(plane, curvatures):
    found = measured(quadratic, origin(), planes={plane: (0.3, 1.0)})
    for extent in (0.3, 1.0):
        surface = found.surfaces[f"{plane}_{extent:g}"]
        # Along each axis the loss ends at sign(lambda) c^2 / 2, whatever lambda is.
        ends = [surface.values[0, 2], surface.values[2, 0]]
        assert ends == pytest.approx([math.copysign(extent**2 / 2, value) for value in curvatures], rel=1e-6)
        reached = [axis[-1] for axis in surface.coordinates]
        assert reached == pytest.approx([extent / math.sqrt(abs(value)) for value in curvatures], rel=1e-6)


def test_three_axes_of_a_mixed_plane_are_two_of_the_positive_end_and_one_of_the_other():
    surface = measured(quadratic, origin(), planes={"mixed": (1.0,)}, dimensions=3).surfaces["mixed_1"]
    ends = [surface.values[0, 2, 2], surface.values[2, 0, 2], surface.values[2, 2, 0]]
    assert ends == pytest.approx([0.5, -0.5, 0.5], rel=1e-6)


def test_both_ends_of_the_spectrum_and_the_trace():
    whole = measured(quadratic, origin(), planes={"negative": (1.0,)}).features["all"]
    assert whole["hessian_max"] == pytest.approx(8)
    assert whole["hessian_min"] == pytest.approx(-2)
    assert whole["hessian_trace"] == pytest.approx(float(CURVATURES.sum()))
    upside_down = measured(lambda point: -quadratic(point), origin(), planes={"mixed": (1.0,)}).features["all"]
    assert upside_down["hessian_top_1"] == pytest.approx(-8)
    assert upside_down["hessian_max"] == pytest.approx(2)
    assert upside_down["hessian_min"] == pytest.approx(-8)


def test_two_wells_are_two_minima_and_one_saddle():
    """(x^2 - 1)^2 + y^2: minima at x = -1 and 1, and a saddle of height 1 between them."""

    def wells(point):
        x, y = point["w"][0, 0], point["w"][0, 1]
        return (x**2 - 1) ** 2 + y**2 + (point["w"][1] ** 2).sum()

    # At the saddle the Hessian along x is -4 and all others are 2: mixed at c = 4 reaches from x = -2 to 2.
    found = measured(wells, {"w": torch.zeros(2, 2, dtype=torch.float64)}, planes={"mixed": (4.0,)}, resolution=21)
    whole = found.features["all"]
    assert whole["n_minima_mixed_4_grid8"] == 2
    assert whole["n_saddles_mixed_4_grid8"] == 1
    assert whole["average_persistence_mixed_4_grid8"] == pytest.approx(1, abs=1e-6)
    surface = found.surfaces["mixed_4"].values
    closed = (np.ptp(surface) + 1) / 2
    assert whole["average_persistence_closed_mixed_4_grid8"] == pytest.approx(closed, rel=1e-6)


def test_a_flat_loss_has_no_plane_of_eigenvectors_and_says_so():
    slope = lambda point: point["w"].sum()  # noqa: E731
    with pytest.warns(UserWarning, match="no plane negative"):
        found = measured(slope, {"w": torch.ones(2, 3)}, planes={"random": (1.0,), "negative": (1.0,)})
    assert set(found.surfaces) == {"random_1"}
    assert math.isnan(found.features["all"]["n_saddles_negative_1_grid8"])
    assert found.features["all"]["n_saddles_random_1_grid8"] == 0


def test_a_ball_of_a_bowl_has_exactly_the_saddles_of_its_sample():
    """The loss is the bowl: whatever saddles the graph shows are those of the sample, and both counts agree."""
    bowl = lambda point: ((point["w"] - 1) ** 2).sum()  # noqa: E731
    parameters = {"w": torch.ones(9, 12, dtype=torch.float64)}
    found = measured(bowl, parameters, planes={"random": (1.0,)}, ball_points=300)
    whole, ball = found.features["all"], found.ball
    assert ball.points.shape == (300, 6)
    radius = math.sqrt(9 * 12)
    assert np.linalg.norm(ball.points, axis=1).max() <= radius
    # Half of the points of a ball of 6 dimensions lie beyond 0.89 of its radius.
    assert (np.linalg.norm(ball.points, axis=1) > 0.5 ** (1 / 6) * radius).mean() == pytest.approx(0.5, abs=0.1)
    assert np.argsort(ball.values).tolist() == np.argsort(ball.bowl).tolist()
    assert whole["n_saddles_ball_aknn8"] == whole["n_saddles_bowl_aknn8"] > 0


def test_a_plane_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"^planes: .sideways."):
        LandscapeSettings(planes={"sideways": (1.0,)})
