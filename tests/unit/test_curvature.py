"""Curvature against full Hessians, prescribed spectra and exact moments."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from toposcale.landscape import Hessian, curvature
from toposcale.landscape.curvature import flatten, loss_gradients


@pytest.fixture(scope="module")
def network():
    """A small network in double precision, its loss, and its whole Hessian."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 4)).double()
    inputs, targets = torch.randn(40, 5, dtype=torch.float64), torch.randint(4, (40,))

    def loss(parameters):
        return nn.functional.cross_entropy(functional_call(model, parameters, (inputs,)), targets)

    parameters = dict(model.named_parameters())
    return loss, parameters, full_hessian(loss, parameters), model


def full_hessian(loss, parameters):
    """Row by row through autograd: torch.func.hessian of torch 2.13 is not symmetric through a LayerNorm."""
    sizes = [tensor.numel() for tensor in parameters.values()]

    def of_vector(vector):
        parts = zip(parameters.items(), vector.split(sizes), strict=True)
        return loss({name: part.reshape(tensor.shape) for (name, tensor), part in parts})

    vector = torch.cat([tensor.detach().reshape(-1) for tensor in parameters.values()])
    return torch.autograd.functional.hessian(of_vector, vector).numpy()


def falling(values):
    return values[np.lexsort((-values, -np.abs(values)))]


def quadratic(spectrum, seed=0, dtype=torch.float64):
    """x . A x / 2 with the eigenvalues `spectrum`, split over two tensors; and A."""
    size = len(spectrum)
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    matrix = basis @ np.diag(spectrum) @ basis.T
    fixed = torch.from_numpy(matrix).to(dtype)

    def loss(parameters):
        x = torch.cat([parameters["head"], parameters["body"].reshape(-1)])
        return x @ fixed @ x / 2

    x = torch.linspace(-1, 1, size, dtype=dtype)
    cut = size % 2 or 2
    return loss, {"head": x[:cut], "body": x[cut:].reshape(2, -1)}, matrix


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_hessian_eigenpairs_match_the_full_hessian(network, k, seed):
    loss, parameters, hessian, _ = network
    values, vectors = Hessian(loss, parameters).eigenpairs(k, seed=seed)
    expected = falling(np.linalg.eigvalsh(hessian))[:k]
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    flat = np.array([flatten(vector) for vector in vectors])
    np.testing.assert_allclose(flat @ flat.T, np.eye(k), atol=1e-10)
    residual = np.linalg.norm(flat @ hessian - values[:, None] * flat, axis=1)
    assert (residual <= 3.01e-4 * abs(values[0])).all()  # what the search promises, and rounding
    assert all(vector[name].shape == parameters[name].shape for vector in vectors for name in parameters)
    assert (flat[np.arange(k), np.abs(flat).argmax(axis=1)] > 0).all()


def test_hessian_all_eigenpairs_rebuild_the_hessian(network):
    loss, parameters, hessian, _ = network
    values, vectors = Hessian(loss, parameters).eigenpairs(len(hessian), seed=0)
    flat = np.array([flatten(vector) for vector in vectors])
    np.testing.assert_allclose(flat.T @ (values[:, None] * flat), hessian, atol=1e-9)


DEGENERATE = [
    ([5.0, 5.0, 1.0, 0.5, 0.25, 0.1, 0.0, -1.0, -2.0], 3),
    ([3.0] * 4 + [1.0] * 5, 6),
    ([2.0, -2.0, 2.0, -2.0, 1.0, 0.0, 0.0], 4),
    ([7.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 5),  # more than the rank
    ([0.0] * 6, 3),
    ([1e-12, -2e-12, 1e-13, 0.0, 0.0], 2),
    ([4.0], 1),
]


@pytest.mark.parametrize(("spectrum", "k"), DEGENERATE)
def test_hessian_small_hessians_are_exact_with_multiplicity(spectrum, k):
    loss, parameters, matrix = quadratic(spectrum) if len(spectrum) > 1 else single(spectrum[0])
    values, vectors = Hessian(loss, parameters).eigenpairs(k, seed=0)
    expected = falling(np.array(spectrum))[:k]
    scale = max(map(abs, spectrum))
    # Of opposite values either may come first, so the magnitudes are compared; the vectors settle the signs.
    np.testing.assert_allclose(np.abs(values), np.abs(expected), rtol=1e-12, atol=1e-14 * scale)
    flat = np.array([flatten(vector) for vector in vectors])
    np.testing.assert_allclose(flat @ flat.T, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(flat @ matrix, values[:, None] * flat, atol=1e-12 * scale, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_hessian_finds_a_repeated_eigenvalue_at_least_once(seed):
    """Its multiplicity is not promised: what comes back are eigenpairs, and the first is the largest."""
    spectrum = np.concatenate([[5.0, 5.0, 5.0, -4.0], np.linspace(-1, 1, 56)])
    loss, parameters, matrix = quadratic(spectrum)
    values, vectors = Hessian(loss, parameters).eigenpairs(3, seed=seed)
    assert values[0] == pytest.approx(5.0, rel=1e-7)
    flat = np.array([flatten(vector) for vector in vectors])
    np.testing.assert_allclose(flat @ matrix, values[:, None] * flat, atol=5e-4)
    np.testing.assert_allclose(flat @ flat.T, np.eye(3), atol=1e-10)


def single(value):
    return (lambda p: value * (p["x"] ** 2).sum() / 2, {"x": torch.ones(1, dtype=torch.float64)}, np.array([[value]]))


def test_hessian_single_precision_keeps_single_precision(network):
    loss, parameters, matrix = quadratic(np.linspace(-1, 3, 60) ** 3, dtype=torch.float32)
    values, vectors = Hessian(loss, parameters).eigenpairs(2, seed=0)
    np.testing.assert_allclose(values, falling(np.linalg.eigvalsh(matrix))[:2], rtol=2e-6)
    assert vectors[0]["body"].dtype == torch.float32


def test_hessian_eigenpairs_take_few_products(monkeypatch):
    # A bulk with a handful of outliers, as networks have: far fewer products than dimensions.
    spectrum = np.concatenate([[90.0, 78.0, 70.0, 60.0], np.random.default_rng(0).normal(size=1996)])
    scale = torch.from_numpy(spectrum)
    counted = []
    plain = Hessian.__call__
    monkeypatch.setattr(Hessian, "__call__", lambda self, v: counted.append(1) or plain(self, v))
    values, _ = Hessian(
        lambda p: (scale * p["x"] ** 2).sum() / 2, {"x": torch.ones(2000, dtype=torch.float64)}
    ).eigenpairs(2, seed=0)
    np.testing.assert_allclose(values, [90.0, 78.0], rtol=1e-7)
    assert len(counted) <= 18


def test_hessian_same_seed_same_bytes_and_any_seed_same_values(network):
    loss, parameters, _, _ = network
    (one, vectors), (two, again) = (Hessian(loss, parameters).eigenpairs(2, seed=3) for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert all(torch.equal(a[name], b[name]) for a, b in zip(vectors, again, strict=True) for name in a)


@pytest.mark.parametrize("which", ["largest", "ends"])
def test_hessian_no_random_number_is_without_a_seed(network, monkeypatch, which):
    """scipy continues a Lanczos basis that ends early with a random vector: rare, and another one in each process."""
    seeded = np.random.default_rng

    def only_seeded(seed=None):
        assert seed is not None, "a generator whose numbers are not the same again"
        return seeded(seed)

    monkeypatch.setattr(np.random, "default_rng", only_seeded)
    loss, parameters, _, _ = network
    Hessian(loss, parameters).eigenpairs(2, seed=3, which=which)


def test_hessian_grad_fields_are_never_touched(network):
    loss, parameters, _, model = network
    for tensor in model.parameters():
        tensor.grad = torch.full_like(tensor, 7.0)
    Hessian(loss, parameters).eigenpairs(1, seed=0)
    Hessian(loss, parameters).traces(probes=2, seed=0)["all"]
    Hessian(loss, parameters).density(runs=1, seed=0, steps=3)
    loss_gradients(loss, parameters)
    assert all((tensor.grad == 7.0).all() and tensor.requires_grad for tensor in model.parameters())
    model.zero_grad()


def test_hessian_product_under_no_grad_matches_full_hessian(network):
    loss, parameters, hessian, _ = network
    vector = np.random.default_rng(0).normal(size=len(hessian))
    with torch.no_grad():
        product = Hessian(loss, parameters)
        np.testing.assert_allclose(product(vector), hessian @ vector, rtol=1e-10, atol=1e-12)
    assert product.count == 1


def test_hessian_fused_attention_has_curvature():
    torch.manual_seed(1)
    tokens = torch.randn(2, 2, 6, 4, dtype=torch.float64)

    def loss(parameters):
        attended = nn.functional.scaled_dot_product_attention(
            tokens @ parameters["query"], tokens, tokens, is_causal=True
        )
        return (attended**2).mean()

    parameters = {"query": torch.randn(4, 4, dtype=torch.float64)}
    value, _ = Hessian(loss, parameters).eigenpairs(1, seed=0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = falling(np.linalg.eigvalsh(full_hessian(loss, parameters)))[:1]
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("flat_loss", [lambda p: p["x"].sum(), lambda p: 0 * p["x"].sum()])
def test_hessian_loss_without_curvature(flat_loss):
    parameters = {"x": torch.ones(5), "unused": torch.ones(2, 2)}
    values, _ = Hessian(flat_loss, parameters).eigenpairs(3, seed=0)
    assert values.tolist() == [0.0, 0.0, 0.0]
    assert Hessian(flat_loss, parameters).traces(probes=3, seed=0)["all"] == (0.0, 0.0)


def test_hessian_loss_that_is_not_finite_gives_nan_and_says_so():
    parameters = {"x": torch.ones(3)}

    def loss(p):
        return (p["x"] * math.inf).sum()

    with pytest.warns(UserWarning, match="gradient is not finite"):
        values, vectors = Hessian(loss, parameters).eigenpairs(2, seed=0)
    assert np.isnan(values).all()
    assert torch.isnan(vectors[0]["x"]).all()
    with pytest.warns(UserWarning, match="gradient is not finite"):
        assert all(map(math.isnan, Hessian(loss, parameters).traces(probes=2, seed=0)["all"]))
    with pytest.warns(UserWarning, match="gradient is not finite"):
        assert np.isnan(Hessian(loss, parameters).density(runs=2, seed=0).nodes).all()


def test_hessian_that_is_not_finite_gives_nan_and_says_so():
    parameters = {"kink": torch.zeros(1), "x": torch.ones(40)}

    def loss(p):
        return p["kink"].abs().pow(1.5).sum() + p["x"].square().sum()

    with pytest.warns(UserWarning, match="Hessian is not finite"):
        hessian = Hessian(loss, parameters)
    assert np.isnan(hessian.eigenpairs(2, seed=0)[0]).all()
    assert np.isnan(hessian.density(runs=1, seed=0).nodes).all()
    assert math.isnan(hessian.traces(probes=2, seed=0)["x"][0])


def test_hessian_too_few_products_are_reported(monkeypatch):
    monkeypatch.setattr(curvature, "_MAX_PRODUCTS", 3)
    loss, parameters, _ = quadratic(np.linspace(1, 2, 40))
    with pytest.warns(UserWarning, match="not converged in"):
        values, vectors = Hessian(loss, parameters).eigenpairs(2, seed=0)
    assert values.shape == (2,)
    assert np.isnan(values).all()
    assert np.isnan(flatten(vectors[-1])).all()


def test_hessian_trace_of_a_diagonal_hessian_is_exact():
    # Signs squared are 1, so every probe gives the trace itself.
    scale = torch.tensor([1.0, -4.0, 2.5], dtype=torch.float64)
    parameters = {"x": torch.ones(3, dtype=torch.float64)}
    assert Hessian(lambda p: (scale * p["x"] ** 2).sum() / 2, parameters).traces(probes=4, seed=0)["all"] == (-0.5, 0.0)


def test_hessian_trace_covers_truth_as_its_standard_error_says(network):
    loss, parameters, hessian, _ = network
    score = [
        (estimate - np.trace(hessian)) / error
        for estimate, error in (Hessian(loss, parameters).traces(probes=50, seed=seed)["all"] for seed in range(40))
    ]
    # 40 nearly normal scores: mean 0 +- 0.16, spread 1 +- 0.11; four standard errors each.
    assert abs(np.mean(score)) < 0.64
    assert 0.56 < np.std(score) < 1.44


def test_hessian_traces_of_layers(network):
    loss, parameters, hessian, _ = network
    traces = Hessian(loss, parameters).traces(probes=400, seed=0)
    assert list(traces) == ["all", *parameters]
    assert math.isclose(sum(traces[name][0] for name in parameters), traces["all"][0], rel_tol=1e-12)
    start = 0
    for name, tensor in parameters.items():
        block = hessian[start : start + tensor.numel(), start : start + tensor.numel()]
        start += tensor.numel()
        assert abs(traces[name][0] - np.trace(block)) < 4 * traces[name][1]
    grouped = Hessian(loss, parameters).traces(probes=400, seed=0, layer_of=lambda name: name.split(".")[0])
    assert list(grouped) == ["all", "0", "2", "3"]
    assert math.isclose(grouped["0"][0], traces["0.weight"][0] + traces["0.bias"][0], rel_tol=1e-12)


def test_hessian_spectral_density_with_all_steps_exact_moments(network):
    loss, parameters, hessian, _ = network
    density = Hessian(loss, parameters).density(runs=3, seed=0, steps=len(hessian))
    np.testing.assert_allclose(density.weights.sum(axis=1), 1.0, rtol=1e-12)
    # With every step taken the nodes are the spectrum itself, less what the vector cannot see.
    spectrum = np.linalg.eigvalsh(hessian)
    seen = density.nodes[density.weights > 1e-8]
    assert np.abs(seen[:, None] - spectrum).min(axis=1).max() < 1e-8


def test_hessian_spectral_density_moments_within_their_error():
    spectrum = np.random.default_rng(0).normal(size=200)
    loss, parameters, _ = quadratic(spectrum)
    density = Hessian(loss, parameters).density(runs=60, seed=1, steps=12)
    for power in (1, 2, 3):
        runs = (density.weights * density.nodes**power).sum(axis=1)
        assert abs(runs.mean() - (spectrum**power).mean()) < 4 * runs.std(ddof=1) / math.sqrt(60)
    grid = np.linspace(-5, 5, 401)
    mean = density.on(grid, 0.3)
    assert math.isclose(np.trapezoid(mean, grid), 1.0, abs_tol=1e-6)
    bells = np.exp(-0.5 * ((grid - spectrum[:, None]) / 0.3) ** 2) / (0.3 * math.sqrt(2 * math.pi))
    assert np.abs(mean - bells.mean(axis=0)).max() < 0.1 * mean.max()


def test_hessian_spectral_density_ends_early_on_few_eigenvalues():
    loss, parameters, _ = quadratic([2.0] * 5 + [-1.0] * 3)
    density = Hessian(loss, parameters).density(runs=4, seed=0, steps=8)
    assert ((density.weights > 1e-12).sum(axis=1) == 2).all()
    assert np.isfinite(Hessian(loss, parameters).density(runs=1, seed=0).on(np.array([2.0]), 0.1)).all()


def test_hessian_both_ends_of_the_spectrum(network):
    loss, parameters, hessian, _ = network
    exact = np.linalg.eigvalsh(hessian)
    values, vectors = Hessian(loss, parameters).eigenpairs(3, seed=0, which="ends")
    np.testing.assert_allclose(values, [*exact[:3], *exact[-3:]], rtol=1e-4)
    for value, vector in zip(values, vectors, strict=True):
        flat = flatten(vector)
        assert np.linalg.norm(hessian @ flat - value * flat) <= 3e-3 * abs(value)


@pytest.mark.parametrize(
    ("spectrum", "k", "expected"),
    [
        ([2.0] + [0.1] * 20 + [-3.0, -1.0, -0.5], 2, [-3.0, -1.0, 0.1, 2.0]),
        ([1.0, 2.0, 3.0, 4.0], 3, [1.0, 2.0, 3.0, 4.0]),  # fewer than 3 at each end: all
        ([4.0, -1.0], 1, [-1.0, 4.0]),
    ],
)
def test_hessian_ends_of_a_quadratic(spectrum, k, expected):
    loss, parameters, _ = quadratic(spectrum)
    values, vectors = Hessian(loss, parameters).eigenpairs(k, seed=0, which="ends")
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    assert len(vectors) == len(expected)


def test_hessian_both_ends_take_fewer_products(monkeypatch):
    outer = [90.0, 78.0, -9.0, -8.0]
    scale = torch.from_numpy(np.concatenate([outer, np.random.default_rng(0).normal(size=1996)]))
    counted = []
    plain = Hessian.__call__
    monkeypatch.setattr(Hessian, "__call__", lambda self, v: counted.append(1) or plain(self, v))
    values, _ = Hessian(
        lambda p: (scale * p["x"] ** 2).sum() / 2, {"x": torch.ones(2000, dtype=torch.float64)}
    ).eigenpairs(2, seed=0, which="ends")
    np.testing.assert_allclose(values, sorted(outer), rtol=1e-5)
    assert len(counted) <= 18


def test_hessian_density_and_eigenpairs_share_products():
    spectrum = np.concatenate([[90.0, 78.0, -9.0, -8.0], np.random.default_rng(0).normal(size=1996)])
    loss, parameters, _ = quadratic(spectrum)
    alone, shared = Hessian(loss, parameters), Hessian(loss, parameters)
    expected, _ = alone.eigenpairs(2, seed=1, which="ends")
    density = shared.density(runs=1, seed=1, steps=12)
    values, _ = shared.eigenpairs(2, seed=1, which="ends")
    assert shared.count == alone.count
    assert values.tobytes() == expected.tobytes()
    assert density.nodes.tobytes() == alone.density(runs=1, seed=1, steps=12).nodes.tobytes()


@pytest.mark.parametrize(
    ("which", "expected"), [("ends", [-140.0, -139.0, 158.0, 159.0]), ("largest", [159.0, 158.0, 157.0])]
)
def test_hessian_search_restarts_finds_ends_of_even_spectrum(which, expected):
    loss, parameters, matrix = quadratic(np.arange(300.0) - 140)
    hessian = Hessian(loss, parameters)
    values, vectors = hessian.eigenpairs(3 if which == "largest" else 2, seed=0, which=which)
    assert hessian.count > curvature._BASIS_VECTORS + 8
    flat = np.array([flatten(vector) for vector in vectors])
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    np.testing.assert_allclose(flat @ flat.T, np.eye(len(values)), atol=1e-10)
    residuals = np.linalg.norm(flat @ matrix - values[:, None] * flat, axis=1)
    assert (residuals <= 1.01 * curvature._MAX_RESIDUAL[which] * np.abs(values)).all()


def test_hessian_trace_stops_at_a_small_error_or_the_cap(network):
    loss, parameters, hessian, _ = network
    exact = float(np.trace(hessian))
    estimate, error = Hessian(loss, parameters).traces(probes=5000, accuracy=0.1, seed=0)["all"]
    assert error < 0.1 * abs(estimate)
    assert abs(estimate - exact) < 5 * error
    capped = Hessian(loss, parameters).traces(probes=12, accuracy=1e-6, seed=0)
    assert capped == Hessian(loss, parameters).traces(probes=12, seed=0)
    # A multiple of the identity is known exactly from any probe, but a standard error takes ten.
    flat, point, _ = quadratic([2.0] * 8)
    products = []
    original = Hessian.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hessian, "__call__", lambda self, vector: (products.append(1), original(self, vector))[1])
        assert Hessian(flat, point).traces(probes=100, accuracy=0.1, seed=0)["all"][0] == pytest.approx(16)
    assert len(products) == 10


def test_loss_gradients_gradients_match_autograd(network):
    loss, parameters, _, _ = network
    gradients = loss_gradients(loss, parameters)
    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    for (name, gradient), reference in zip(gradients.items(), expected, strict=True):
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, reference.numpy(), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda loss, p: Hessian(loss, p).eigenpairs(0, seed=0), "k"),
        (lambda loss, p: Hessian(loss, p).eigenpairs(10**6, seed=0), "k"),
        (lambda loss, p: Hessian(loss, p).traces(probes=1, seed=0)["all"], "probes"),
        (lambda loss, p: Hessian(loss, p).density(runs=0, seed=0), "runs"),
        (lambda loss, p: Hessian(loss, p).traces(probes=2, seed=0, layer_of=lambda _: "all"), "layer_of"),
        (lambda loss, p: Hessian(loss, {}).eigenpairs(1, seed=0), "parameters"),
        (lambda loss, p: Hessian(loss, {"x": torch.ones(2).long()}).eigenpairs(1, seed=0), "parameters"),
    ],
)
def test_hessian_wrong_calls_name_the_argument(network, call, named):
    loss, parameters, _, _ = network
    with warnings.catch_warnings(), pytest.raises(ValueError, match=f"^{named}"):
        call(loss, parameters)
