"""Losses of any module: derivatives inside, running means, threads that share nothing, batches of points."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from toposcale.landscape import (
    Hessian,
    LandscapeSettings,
    loss_surface,
    measure_landscape,
    module_loss,
    random_directions,
)
from toposcale.landscape.curvature import loss_gradients


def convolutional():
    """A small network with batch normalisation, and its batch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)
    )
    return model, torch.randn(8, 1, 4, 4), torch.randint(3, (8,))


def differential():
    """A loss that differentiates by its inputs: u' = u at some points, and u(0) = 1."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    points = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]

    def function(module):
        inside = points.clone().requires_grad_()
        value = module(inside)
        (slope,) = torch.autograd.grad(value.sum(), inside, create_graph=True)
        return ((slope - value) ** 2).mean() + (module(points[:1]) - 1).square().mean()

    return model, function


def parameters_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def by_hand(model, function, directions, scale):
    """Losses along the first direction, each on a fresh copy of the model whose weights are set in place."""
    values = []
    for factor in scale:
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for name, tensor in moved.named_parameters():
                tensor.add_(factor * directions[0][name])
        values.append(float(function(moved).detach()))
    return values


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_module_loss_leaves_running_means_unchanged(training, threads):
    model, images, labels = convolutional()
    model.train(training)

    def function(module):
        return functional.cross_entropy(module(images), labels)

    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    loss, parameters = module_loss(model, function), parameters_of(model)
    directions = random_directions(parameters, 1, seed=0)
    line = loss_surface(loss, parameters, directions, steps=7, threads=threads)
    again = loss_surface(loss, parameters, directions, steps=7, threads=threads)
    assert line.values.tobytes() == again.values.tobytes()
    expected = by_hand(model, function, directions, np.linspace(-1, 1, 7))
    np.testing.assert_allclose(line.values, expected, rtol=1e-5)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_buffers())


@pytest.mark.parametrize("threads", [1, 3])
def test_module_loss_a_loss_may_differentiate_by_its_inputs(threads):
    model, function = differential()
    loss, parameters = module_loss(model, function), parameters_of(model)
    directions = random_directions(parameters, 1, seed=0)
    line = loss_surface(loss, parameters, directions, steps=5, threads=threads)
    expected = by_hand(model, function, directions, np.linspace(-1, 1, 5))
    np.testing.assert_allclose(line.values, expected, rtol=1e-12)


def test_module_loss_curvature_of_a_loss_with_derivatives_inside():
    model, function = differential()
    loss, parameters = module_loss(model, function), parameters_of(model)

    def of_one_vector(vector):
        parts = vector.split([tensor.numel() for tensor in parameters.values()])
        named = {name: part.view_as(tensor) for (name, tensor), part in zip(parameters.items(), parts, strict=True)}
        return loss(named)

    whole = torch.cat([tensor.reshape(-1) for tensor in parameters.values()])
    exact = np.linalg.eigvalsh(torch.autograd.functional.hessian(of_one_vector, whole).numpy())
    values, _ = Hessian(loss, parameters).eigenpairs(2, seed=0, which="ends")
    np.testing.assert_allclose(values, [*exact[:2], *exact[-2:]], rtol=1e-2, atol=1e-6)


def shared_module_loss(model, function):
    """What is not safe: every call writes the weights of one and the same module."""

    def loss(parameters):
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                tensor.copy_(parameters[name])
        return function(model)

    return loss


def test_module_loss_threads_that_share_a_module_are_refused():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    inputs = torch.randn(512, 64)

    def function(module):
        return module(inputs).square().mean()

    parameters = parameters_of(model)
    directions = random_directions(parameters, 2, seed=0)
    shared = shared_module_loss(model, function)
    alone = loss_surface(shared, parameters, directions, steps=5, threads=1)
    with pytest.raises(ValueError, match=r"^loss: .* at the same point.*threads"):
        loss_surface(shared, parameters, directions, steps=15, threads=8)
    safe = loss_surface(module_loss(model, function), parameters, directions, steps=5, threads=4)
    np.testing.assert_allclose(safe.values, alone.values, rtol=1e-5)


def test_module_loss_a_loss_with_noise_is_refused():
    model, images, labels = convolutional()
    noisy = nn.Sequential(nn.Dropout(0.5), model).train()
    loss = module_loss(noisy, lambda module: functional.cross_entropy(module(images), labels))
    parameters = parameters_of(noisy)
    directions = random_directions(parameters, 1, seed=0)
    with pytest.raises(ValueError, match=r"^loss: .*dropout"):
        loss_surface(loss, parameters, directions, steps=3)
    quiet = module_loss(noisy.eval(), lambda module: functional.cross_entropy(module(images), labels))
    assert np.isfinite(loss_surface(quiet, parameters, directions, steps=3).values).all()


def test_loss_surface_a_mistake_in_the_loss_is_its_own_error():
    def wrong(parameters):
        return parameters["w"] @ torch.ones(5, dtype=torch.float64)

    parameters = {"w": torch.ones(2, 2, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="size mismatch"):
        loss_surface(wrong, parameters, [parameters], steps=3)


def test_module_loss_kernels_are_matrices_of_their_outputs():
    """The landscape of a kernel (out, in, k, k) is that of the matrix (out, in k k), in names, rows and curvature."""
    model, images, labels = convolutional()
    model.eval()
    loss = module_loss(model, lambda module: functional.cross_entropy(module(images), labels))
    parameters = parameters_of(model)
    settings = LandscapeSettings(planes={"random": (1.0,)}, resolution=3, trace_probes=10)
    found = measure_landscape(loss, parameters, settings)
    assert set(found.features) == {"all", "0.weight", "4.weight", "vectors"}

    flat = {name: tensor.flatten(1) if tensor.dim() > 2 else tensor for name, tensor in parameters.items()}

    def of_matrices(matrices):
        return loss({name: tensor.view_as(parameters[name]) for name, tensor in matrices.items()})

    same = measure_landscape(of_matrices, flat, settings)
    assert found.surfaces["random_1"].values.tobytes() == same.surfaces["random_1"].values.tobytes()
    assert same.features["0.weight"] == pytest.approx(found.features["0.weight"], rel=1e-4)
    assert loss_gradients(loss, parameters)["0.weight"].shape == (4, 1, 3, 3)


@pytest.mark.parametrize("registered", ["parameter", "buffer"])
def test_module_loss_tied_tensors_move_together(registered):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))
            if registered == "parameter":
                self.again = self.scale
            else:
                self.register_buffer("fixed", torch.ones(2))
                self.register_buffer("again", self.fixed)

        def forward(self):
            return (self.scale * self.again).sum()

    loss = module_loss(Tied(), lambda module: module())
    assert loss({"scale": torch.tensor([2.0, 3.0])}).item() == (13 if registered == "parameter" else 5)


def test_module_loss_tensor_that_is_not_given_is_that_of_module():
    model, images, labels = convolutional()
    loss = module_loss(model, lambda module: functional.cross_entropy(module(images), labels))
    parameters = parameters_of(model)
    centre = loss(parameters).item()
    assert loss({name: 2 * tensor for name, tensor in parameters.items()}).item() != centre
    assert loss({"4.bias": parameters["4.bias"]}).item() == centre
