"""Surfaces against losses evaluated one at a time, and features against small cases by hand."""

import math

import gudhi
import numpy as np
import pytest
import torch
from torch import nn

from toposcale.landscape import Hessian, landscape_features, loss_surface, losses, probe_loss, random_directions
from toposcale.landscape.merge_tree import cubical_diagram, sharpness, surface_edges
from toposcale.landscape.surface import segment_losses


class Attention(nn.Module):
    """A small transformer with what the kernels know: linear maps and causal attention."""

    def __init__(self, width=12, heads=2, vocabulary=11):
        super().__init__()
        self.heads = heads
        self.token, self.norm = nn.Embedding(vocabulary, width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens)
        batch, time, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(x + attended.transpose(1, 2).reshape(batch, time, width))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = Attention()
    tokens = torch.randint(11, (7, 40))
    return model, tokens, tokens.roll(1, 0)


def one_by_one(network, directions, scale):
    """The reference: parameters set on the model in place, the whole batch at once."""
    model, tokens, targets = network
    centre = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    values = np.empty((len(scale),) * len(directions))
    with torch.no_grad():
        for index in np.ndindex(values.shape):
            for name, tensor in model.named_parameters():
                steps = [scale[i] * direction[name] for i, direction in zip(index, directions, strict=True)]
                tensor.copy_(centre[name] + sum(steps))
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            values[index] = float(loss)
        for name, tensor in model.named_parameters():
            tensor.copy_(centre[name])
    return values


@pytest.mark.parametrize("count", [1, 2, 3])
def test_loss_surface_surface_matches_one_by_one(network, count, monkeypatch):
    monkeypatch.setattr(losses, "_ROWS", 3)
    model, tokens, targets = network
    parameters = dict(model.named_parameters())
    directions = random_directions(parameters, count, seed=1)
    surface = loss_surface(probe_loss(model, tokens, targets), parameters, directions, steps=3, extent=0.7)
    expected = one_by_one(network, directions, [-0.7, 0.0, 0.7])
    assert surface.values.dtype == np.float64
    # Single precision: some tens of roundings of 6e-8 on a loss of order 1.
    np.testing.assert_allclose(surface.values, expected, rtol=5e-6)
    assert len(np.unique(surface.values)) > 1


def test_loss_surface_coordinates_are_true_distances(network):
    model, tokens, targets = network
    parameters = dict(model.named_parameters())
    directions = random_directions(parameters, 2, seed=2)
    surface = loss_surface(probe_loss(model, tokens, targets), parameters, directions, steps=5, extent=0.5)
    assert surface.points.shape == (25, 2)
    scale = np.linspace(-0.5, 0.5, 5)
    for row, (i, j) in enumerate(np.ndindex(5, 5)):
        moved = [scale[i] * directions[0][name] + scale[j] * directions[1][name] for name in parameters]
        distance = math.sqrt(sum(float((part.double() ** 2).sum()) for part in moved))
        assert np.linalg.norm(surface.points[row]) == pytest.approx(distance, rel=1e-6)
    assert surface.coordinates[0][2] == 0.0
    centre = probe_loss(model, tokens, targets)(parameters).item()
    assert surface.values[2, 2] == pytest.approx(centre, rel=5e-6)


def test_loss_surface_same_bytes_whatever_the_number_of_threads(network, monkeypatch):
    model, tokens, targets = network
    parameters = dict(model.named_parameters())
    directions = random_directions(parameters, 2, seed=3)
    monkeypatch.setattr(losses, "_ROWS", 2)
    loss = probe_loss(model, tokens, targets)
    before = torch.get_num_threads()
    surfaces = [loss_surface(loss, parameters, directions, steps=5, threads=threads) for threads in (1, 2, 5)]
    assert len({surface.values.tobytes() for surface in surfaces}) == 1
    assert torch.get_num_threads() == before


def test_probe_loss_model_is_neither_read_nor_written(network):
    model, tokens, targets = network
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    loss = probe_loss(model, tokens, targets)
    value = loss(before)
    loss_surface(loss, before, random_directions(before, 1, seed=0), steps=3)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())
    assert all(tensor.requires_grad and tensor.grad is None for tensor in model.parameters())
    with torch.no_grad():
        model.out.weight.add_(1.0)
    assert torch.equal(loss(before), value)
    with torch.no_grad():
        model.out.weight.copy_(before["out.weight"])


def test_probe_loss_serves_transforms_one_after_another(network, monkeypatch):
    # A copy of the model made inside one transform must not leak into the next.
    model, tokens, targets = network
    monkeypatch.setattr(losses, "_ROWS", 2)
    loss = probe_loss(model, tokens, targets)
    parameters = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    first = Hessian(loss, parameters).eigenpairs(1, seed=0)[0]
    gradient = torch.func.grad(loss)(parameters)
    again = Hessian(loss, parameters).eigenpairs(1, seed=0)[0]
    assert first.tobytes() == again.tobytes()
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    logits = torch.func.functional_call(model, leaves, (tokens,))
    nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(gradient[name], leaf.grad, rtol=1e-4, atol=1e-6)


def test_segment_losses_segment_runs_from_start_to_end():
    start, end = {"w": torch.zeros(2, 2).double()}, {"w": torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double()}
    surface = segment_losses(lambda p: p["w"].sum(), start, end, steps=3)
    assert surface.values.tolist() == [0.0, 3.5, 7.0]
    assert surface.coordinates[0].tolist() == [0.0, 2.5, 5.0]


def test_loss_surface_point_is_one_vector_of_loss_reads_views():
    parameters = {"w": torch.ones(2, 3), "b": torch.ones(4)}
    directions, storages = [dict(reversed(parameters.items()))], []

    def loss(point):
        storages.append({tensor.untyped_storage().data_ptr() for tensor in point.values()})
        return point["w"].sum() + 10 * point["b"].sum()

    assert loss_surface(loss, parameters, directions, steps=3).values.tolist() == [0, 46, 92]
    assert {len(pointers) for pointers in storages} == {1}


def test_loss_surface_tensors_of_several_types_keep_their_types():
    parameters = {"w": torch.ones(2, dtype=torch.float64), "b": torch.ones(1), "h": torch.ones(1, dtype=torch.half)}
    types = []

    def loss(point):
        types.append([tensor.dtype for tensor in point.values()])
        return torch.stack([tensor.double().sum() for tensor in point.values()]).sum() ** 2

    assert loss_surface(loss, parameters, [parameters], steps=3).values.tolist() == [0, 16, 64]
    values, _ = Hessian(loss, parameters).eigenpairs(1, seed=0)
    assert values == pytest.approx([8])
    assert types == [[torch.float64, torch.float32, torch.half]] * len(types)


def test_loss_surface_nonfinite_losses_are_kept_and_counted():
    # log of a negative number is NaN, log of zero minus infinity.
    surface = loss_surface(
        lambda p: p["w"].log().sum(),
        {"w": torch.ones(1, 1).double()},
        [{"w": torch.ones(1, 1).double()}],
        steps=5,
        extent=2.0,
    )
    assert np.isnan(surface.values[0])
    assert surface.values[1] == -np.inf
    assert surface.values[2] == 0.0
    features, trees = landscape_features(surface.values, surface.coordinates, ["grid4"])
    assert features["nonfinite_count"] == 2.0
    assert features["sharpness_max"] == pytest.approx(math.log(3))
    assert trees["grid4"].minima.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"directions": []}, "directions"),
        ({"directions": [{"w": torch.ones(2, 2)}] * 4}, "directions"),
        ({"directions": [{"v": torch.ones(2, 2)}]}, "directions"),
        ({"directions": [{"w": torch.ones(2, 1)}]}, "directions"),
        ({"steps": 0}, "steps"),
        ({"extent": 0.0}, "extent"),
        ({"extent": math.inf}, "extent"),
        ({"threads": 0}, "threads"),
        ({"parameters": {}, "directions": [{}]}, "parameters"),
    ],
)
def test_loss_surface_wrong_calls_name_the_argument(change, named):
    call = {"parameters": {"w": torch.ones(2, 2)}, "directions": [{"w": torch.ones(2, 2)}], "steps": 3}
    with pytest.raises(ValueError, match=f"^{named}:"):
        loss_surface(lambda p: p["w"].sum(), **(call | change))


def test_probe_loss_wrong_probes_and_segments_name_the_argument(network):
    model, tokens, targets = network
    with pytest.raises(ValueError, match=r"^targets:"):
        probe_loss(model, tokens, targets[:, 1:])
    with pytest.raises(ValueError, match=r"^steps:"):
        segment_losses(lambda p: p["w"].sum(), {"w": torch.ones(1)}, {"w": torch.ones(1)}, steps=1)


def test_landscape_features_features_of_two_valleys_by_hand():
    # Two valleys, 0 and 1, joined at 3 along the axes and at 2 across the diagonal.
    values = [[0.0, 3.0, 9.0], [5.0, 2.0, 3.5], [9.0, 9.0, 1.0]]
    axis = [-1.0, 0.0, 1.0]
    features, trees = landscape_features(values, [axis, axis], ["grid4", "grid8"])
    assert features["n_minima_grid4"] == 3.0
    assert trees["grid4"].diagram.tolist() == [[0.0, np.inf], [1.0, 3.5], [2.0, 3.0]]
    assert features["total_persistence_grid4"] == 3.5
    assert features["average_persistence_grid4"] == 1.75
    assert trees["grid8"].diagram.tolist() == [[0.0, np.inf], [1.0, 2.0]]
    assert features["n_saddles_grid8"] == 1.0
    # With the pair of the least and the largest value: (9 + 3.5) / 3 and (9 + 1) / 2.
    assert features["average_persistence_closed_grid4"] == pytest.approx(12.5 / 3)
    assert features["average_persistence_closed_grid8"] == 5.0
    assert features["sharpness_max"] == 7.0
    assert features["sharpness_mean"] == pytest.approx(np.mean(values) - 2.0)
    assert features["sharpness_relative"] == pytest.approx(100 * 7 / 3)
    assert features["nonfinite_count"] == 0.0


@pytest.mark.parametrize("graph", ["grid4", "grid8"])
def test_cubical_diagram_crater_has_one_loop(graph):
    # A ring of 1 around a peak of 5 on a plain of 3: the loop closes at 1 and is filled at 5.
    values = np.full((7, 7), 3.0)
    values[2:5, 2:5] = 1.0
    values[3, 3] = 5.0
    assert cubical_diagram(values, dimension=1, graph=graph).tolist() == [[1.0, 5.0]]
    axis = np.arange(7.0)
    features, _ = landscape_features(values, [axis, axis], [graph])
    assert features[f"h1_count_{graph}"] == 1.0
    assert features[f"h1_total_{graph}"] == features[f"h1_max_{graph}"] == 4.0


def test_cubical_diagram_loops_across_corners_belong_to_grid8():
    values = np.full((5, 5), 9.0)
    values[[1, 2, 2, 3], [2, 1, 3, 2]] = 0.0
    assert cubical_diagram(values, dimension=1, graph="grid8").tolist() == [[0.0, 9.0]]
    assert cubical_diagram(values, dimension=1, graph="grid4").shape == (0, 2)


def test_cubical_diagram_h1_on_plane_is_dual_to_h0_of_negative():
    # Alexander duality on a square: loops of sublevel sets are components of superlevel sets, with the other
    # adjacency and a rim above everything.
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 9))
    loops = cubical_diagram(values, dimension=1, graph="grid4")
    rimmed = np.pad(-values, 1, constant_values=-100.0)
    complex_ = gudhi.CubicalComplex(top_dimensional_cells=rimmed)
    complex_.persistence(homology_coeff_field=2, min_persistence=0.0)
    pairs = complex_.persistence_intervals_in_dimension(0)
    islands = -pairs[np.isfinite(pairs[:, 1])][:, ::-1]
    np.testing.assert_array_equal(loops, islands[np.lexsort((islands[:, 1], islands[:, 0]))])


def test_landscape_features_all_nonfinite_surface():
    axis = np.arange(3.0)
    features, _ = landscape_features(np.full((3, 3), np.nan), [axis, axis], ["grid4", "delaunay"])
    assert features["nonfinite_count"] == 9.0
    assert all(math.isnan(value) for name, value in features.items() if name != "nonfinite_count")


def test_landscape_features_threshold_and_rounding_of_pairs():
    values = [[0.0, 3.0, 9.0], [5.0, 2.0, 3.5], [9.0, 9.0, 1.0]]  # finite pairs of 2.5 and 1, a range of 9
    axis = [-1.0, 0.0, 1.0]
    counted = {}
    for threshold, rounding in ((0.0, 0.0), (0.12, 0.0), (0.0, 1.5), (0.28, 0.0), (0.0, 2.5)):
        features, trees = landscape_features(values, [axis, axis], ["grid4"], threshold=threshold, rounding=rounding)
        counted[threshold, rounding] = (features["n_minima_grid4"], features["total_persistence_grid4"])
        assert trees["grid4"].n_saddles == features["n_saddles_grid4"]
    assert list(counted.values()) == [(3.0, 3.5), (2.0, 2.5), (2.0, 2.5), (1.0, 0.0), (1.0, 0.0)]


def test_loss_surface_flat_surface_in_single_precision_no_saddle():
    """A loss that is constant but for its rounding: the threshold is never below that rounding."""
    torch.manual_seed(0)
    ones = torch.rand(10_000)

    def constant(point):
        # The same sum in another order at every point, which differs by some units in the last place.
        shift = int(float(point["w"].sum()) * 1e6) % 9973
        return ones.roll(shift).reshape(100, 100).sum(0).sum()

    weights = {"w": torch.ones(2, 3)}
    surface = loss_surface(constant, weights, random_directions(weights, 2, seed=0), steps=9)
    assert np.ptp(surface.values) > 0
    features, _ = landscape_features(surface.values, surface.coordinates, ["grid8"], rounding=surface.rounding)
    assert features["n_saddles_grid8"] == 0
    assert features["n_minima_grid8"] == 1
    bare, _ = landscape_features(surface.values, surface.coordinates, ["grid8"])
    assert bare["n_saddles_grid8"] > 0


@pytest.mark.parametrize("graph", ["grid4", "grid8", "delaunay", "aknn8"])
def test_surface_edges_every_graph_fits_a_cube_of_points(graph):
    axes = [np.linspace(-1, 1, 5)] * 3
    edges = surface_edges(axes, graph)
    assert edges.max() == 124
    values = np.random.default_rng(1).normal(size=(5, 5, 5))
    features, trees = landscape_features(values, axes, [graph])
    assert trees[graph].n_components == 1
    assert trees[graph].n_minima == trees[graph].n_saddles + 1
    assert features[f"n_minima_{graph}"] == trees[graph].n_minima


def test_sharpness_wrong_features_name_the_argument():
    with pytest.raises(ValueError, match=r"^values:"):
        sharpness(np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"^coordinates:"):
        landscape_features(np.ones((3, 3)), [np.arange(3.0)], ["grid4"])
    with pytest.raises(ValueError, match=r"^graph:"):
        landscape_features(np.ones(3), [np.arange(3.0)], ["grid5"])
    with pytest.raises(ValueError, match=r"^graph:"):
        cubical_diagram(np.ones((3, 3)), dimension=1, graph="delaunay")
    with pytest.raises(ValueError, match=r"^dimension:"):
        cubical_diagram(np.ones((3, 3)), dimension=-1, graph="grid4")


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float32, torch.float64)])
def test_loss_surface_points_are_those_of_formula_in_one_memory(dtypes):
    rng = torch.Generator().manual_seed(0)
    first, second, third = ({"a": torch.randn(3, generator=rng), "b": torch.randn(2, generator=rng)} for _ in range(3))
    centre, *directions = (
        {name: tensor.to(dtype) for (name, tensor), dtype in zip(point.items(), dtypes, strict=True)}
        for point in (first, second, third)
    )
    points, addresses = [], set()

    def loss(parameters):
        points.append({name: tensor.clone() for name, tensor in parameters.items()})
        addresses.add(parameters["a"].data_ptr())
        return parameters["a"].sum()

    loss_surface(loss, centre, directions, steps=3)
    expected = [
        {name: centre[name] + x * directions[0][name] + y * directions[1][name] for name in centre}
        for x in (-1.0, 0.0, 1.0)
        for y in (-1.0, 0.0, 1.0)
    ]
    for point, right in zip(points[-9:], expected, strict=True):
        assert {name: tensor.dtype for name, tensor in point.items()} == dict(zip("ab", dtypes, strict=True))
        for name in centre:
            torch.testing.assert_close(point[name], right[name])
    if dtypes[0] == dtypes[1]:
        assert len(addresses) <= 3, "a memory for each call that evaluates points"
