"""The landscape of any loss: planes of known quadratics, and a ball compared with its bowl."""

import math

import numpy as np
import pytest
import torch

from toposcale.io.errors import UserError
from toposcale.landscape import Hessian, LandscapeSettings, measure_landscape, module_loss

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
def test_measure_landscape_extent_of_eigenvector_planes(plane, curvatures):
    found = measured(quadratic, origin(), planes={plane: (0.3, 1.0)})
    for extent in (0.3, 1.0):
        surface = found.surfaces[f"{plane}_{extent:g}"]
        # Along each axis the loss ends at sign(lambda) c^2 / 2, whatever lambda is.
        ends = [surface.values[0, 2], surface.values[2, 0]]
        assert ends == pytest.approx([math.copysign(extent**2 / 2, value) for value in curvatures], rel=1e-6)
        reached = [axis[-1] for axis in surface.coordinates]
        assert reached == pytest.approx([extent / math.sqrt(abs(value)) for value in curvatures], rel=1e-6)


def test_measure_landscape_three_axes_of_a_mixed_plane():
    surface = measured(quadratic, origin(), planes={"mixed": (1.0,)}, dimensions=3).surfaces["mixed_1"]
    ends = [surface.values[0, 2, 2], surface.values[2, 0, 2], surface.values[2, 2, 0]]
    assert ends == pytest.approx([0.5, -0.5, 0.5], rel=1e-6)


def test_measure_landscape_both_ends_of_spectrum_and_the_trace():
    whole = measured(quadratic, origin(), planes={"negative": (1.0,)}).features["all"]
    assert whole["hessian_max"] == pytest.approx(8)
    assert whole["hessian_min"] == pytest.approx(-2)
    assert whole["hessian_trace"] == pytest.approx(float(CURVATURES.sum()))
    upside_down = measured(lambda point: -quadratic(point), origin(), planes={"mixed": (1.0,)}).features["all"]
    assert upside_down["hessian_top_1"] == pytest.approx(-8)
    assert upside_down["hessian_max"] == pytest.approx(2)
    assert upside_down["hessian_min"] == pytest.approx(-8)


def test_measure_landscape_two_wells_two_minima_and_one_saddle():
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


def test_measure_landscape_flat_loss_has_no_eigenvector_plane():
    slope = lambda point: point["w"].sum()  # noqa: E731
    with pytest.warns(UserWarning, match="no plane negative"):
        found = measured(slope, {"w": torch.ones(2, 3)}, planes={"random": (1.0,), "negative": (1.0,)})
    assert set(found.surfaces) == {"random_1"}
    assert math.isnan(found.features["all"]["n_saddles_negative_1_grid8"])
    assert found.features["all"]["n_saddles_random_1_grid8"] == 0


def test_measure_landscape_ball_of_a_bowl_equals_its_sample():
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


def test_landscape_settings_a_plane_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"^planes: .sideways."):
        LandscapeSettings(planes={"sideways": (1.0,)})


class Square(torch.autograd.Function):
    """x^2 whose gradient cannot be differentiated: autograd takes its derivative for 0."""

    @staticmethod
    def forward(context, values):
        context.save_for_backward(values)
        return values**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, slope):
        (values,) = context.saved_tensors
        return 2 * slope * values


class Cubed(torch.autograd.Function):
    """x^3 with a gradient of operations that have derivatives."""

    @staticmethod
    def forward(context, values):
        context.save_for_backward(values)
        return values**3

    @staticmethod
    def backward(context, slope):
        (values,) = context.saved_tensors
        return 3 * slope * values**2


def in_a_network(operation, seed=0):
    torch.manual_seed(seed)
    first, last = torch.nn.Linear(6, 20).double(), torch.nn.Linear(20, 3).double()
    inputs = torch.randn(30, 6, dtype=torch.float64)
    network = torch.nn.ModuleList([first, last])
    loss = module_loss(network, lambda layers: (layers[1](operation(layers[0](inputs))) ** 2).mean())
    return loss, dict(network.named_parameters())


@pytest.mark.parametrize("seed", range(3))
def test_measure_landscape_refuses_no_second_derivative(seed):
    with pytest.raises(UserError, match=r"its operation Square has a gradient that cannot be differentiated \(u\.Hv"):
        measured(*in_a_network(Square.apply, seed))
    # Without curvature there is nothing wrong.
    no_curvature = {"planes": {"random": (1.0,)}, "eigenvalues": 0, "trace_probes": 0}
    found = measured(*in_a_network(Square.apply, seed), **no_curvature)
    same = measured(*in_a_network(torch.square, seed), **no_curvature)
    assert found.features["all"] == same.features["all"]


def test_measure_landscape_refuses_a_partial_hessian():
    """The whole loss is one operation, so that its Hessian would be 0."""
    loss = lambda point: Square.apply(point["w"]).sum()  # noqa: E731
    with pytest.raises(UserError, match=r"Square .* off finite differences"):
        Hessian(loss, {"w": torch.ones(2, 3)}).traces(probes=2, seed=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_measure_landscape_takes_second_derivatives(dtype):
    cubed = lambda point: Cubed.apply(point["w"]).sum()  # noqa: E731
    trace, _ = Hessian(cubed, {"w": torch.full((2, 3), 2.0, dtype=dtype)}).traces(probes=2, seed=0)["all"]
    assert trace == pytest.approx(6 * 6 * 2.0)
    measured(*in_a_network(torch.relu))  # whose kinks no finite difference agrees with


def test_measure_landscape_a_surface_of_nan_has_no_minimum():
    nowhere = lambda point: point["w"].sum() * math.nan  # noqa: E731
    with pytest.warns(UserWarning, match="not finite"):
        whole = measured(nowhere, {"w": torch.ones(9, 12)}, planes={"random": (1.0,)}, ball_points=50).features["all"]
    assert {name for name, value in whole.items() if not math.isnan(value)} == {
        "nonfinite_count_random_1",
        "n_components_ball_aknn8",
        "n_components_bowl_aknn8",
    }
