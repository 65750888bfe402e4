"""Curvature of a loss: Hessian eigenpairs, traces and spectral density, and its gradient.

Nothing here touches `.grad`. In all functions `loss` maps a dict of tensors to a scalar tensor, and
`parameters` is such a dict. The Hessian is that of the loss with respect to all the tensors laid end to end,
in the order of the dict.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from toposcale.landscape.lanczos import LanczosBasis, top_eigenpairs

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]


class HessianProduct:
    """Products of the Hessian of `loss` at `parameters` with vectors, float64 (n,) to float64 (n,).

    The graph of the gradient is built once and every product is one backward pass through it (the Hessian is
    symmetric): about half the time of a forward-mode pass through the gradient, for the memory of that graph.
    By torch.autograd, because the first transform of torch.func loads sympy, which takes a second.
    The products are computed in the parameters' own precision; `count` says how many were taken.
    """

    def __init__(self, loss: Loss, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = detached(parameters)
        self.size = sum(tensor.numel() for tensor in self._parameters.values())
        self.count = 0
        # The fused attention kernels have no second derivative.
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            self._inputs = [tensor.requires_grad_() for tensor in detached(parameters).values()]
            named = dict(zip(self._parameters, self._inputs, strict=True))
            gradient = _derivative(loss(named), self._inputs, create_graph=True)
        self._gradient = gradient
        self.finite = all(bool(torch.isfinite(tensor).all()) for tensor in gradient)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        self.count += 1
        direction = unflatten(vector, self._parameters).values()
        # The slope along the vector, and not the vector handed to autograd, which would load sympy for it.
        with torch.enable_grad():
            parts = [(g * v).sum() for g, v in zip(self._gradient, direction, strict=True)]
            product = _derivative(torch.stack(parts).sum(), self._inputs)
        return flatten(dict(zip(self._parameters, product, strict=True)))

    @property
    def rounding(self) -> float:
        """Relative rounding error of a product."""
        return 8 * max(torch.finfo(tensor.dtype).eps for tensor in self._parameters.values())


def _derivative(output: Tensor, inputs: Sequence[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Gradient of a scalar with respect to every input; zero where nothing depends on it."""
    if not output.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    return list(
        torch.autograd.grad(
            output, inputs, retain_graph=True, create_graph=create_graph, materialize_grads=True
        )
    )


def detached(parameters: Mapping[str, Tensor]) -> Parameters:
    """The same values without their history; `ValueError` if there is none or one is not floating point."""
    if not parameters:
        raise ValueError("parameters: need at least one tensor")
    for name, tensor in parameters.items():
        if not tensor.is_floating_point():
            raise ValueError(f"parameters: {name} is {tensor.dtype}, and only floating point can vary")
    return {name: tensor.detach() for name, tensor in parameters.items()}


def flatten(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """All tensors end to end, float64 (n,)."""
    return np.concatenate([tensor.detach().double().cpu().numpy().ravel() for tensor in tensors.values()])


def unflatten(vector: np.ndarray, like: Mapping[str, Tensor]) -> Parameters:
    """The inverse of `flatten`, in the shapes, types and places of `like`."""
    parts = np.split(vector, np.cumsum([tensor.numel() for tensor in like.values()])[:-1])
    return {
        name: torch.from_numpy(part).to(tensor.device, tensor.dtype).reshape(tensor.shape)
        for part, (name, tensor) in zip(parts, like.items(), strict=True)
    }


def hessian_eigenpairs(
    loss: Loss, parameters: Mapping[str, Tensor], k: int, *, seed: int, max_products: int = 500
) -> tuple[np.ndarray, list[Parameters]]:
    """The k Hessian eigenvalues of largest magnitude, float64 (k,) by falling |value|, and unit eigenvectors.

    Lanczos with full reorthogonalisation; a value is good to a relative 1e-6, or to the rounding of the
    products relative to the largest value where that is more. Repeated values come with their multiplicity.
    The sign of a vector makes its entry of largest magnitude positive. Units of values: loss per squared
    parameter.

    `ValueError`: k is below 1, above the number of parameters, or above `max_products`. Values that have not
    converged within `max_products` are given with a warning; a loss that is not finite gives NaN, with a
    warning.
    """
    product = HessianProduct(loss, parameters)
    if not 1 <= k <= min(product.size, max_products):
        limit = min(product.size, max_products)
        raise ValueError(f"k: need 1..{limit} (parameters {product.size}, products {max_products}), got {k}")
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no eigenvalues", stacklevel=2)
        missing = unflatten(np.full(product.size, np.nan), detached(parameters))
        return np.full(k, np.nan), [missing] * k
    values, vectors, converged = top_eigenpairs(
        product,
        product.size,
        k,
        np.random.default_rng(seed),
        rounding=product.rounding,
        max_products=max_products,
    )
    if not converged:
        warnings.warn(f"Hessian eigenvalues have not converged in {max_products} products", stacklevel=2)
    largest = np.abs(vectors).argmax(axis=1)
    vectors = vectors * np.sign(vectors[np.arange(len(vectors)), largest])[:, None]
    return values, [unflatten(vector, parameters) for vector in vectors]


def hessian_traces(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    *,
    probes: int,
    seed: int,
    layer_of: Callable[[str], str] | None = None,
) -> dict[str, tuple[float, float]]:
    """Trace of the Hessian ("all") and of each layer's diagonal block: {layer: (estimate, standard error)}.

    Hutchinson (1990): the mean of v . H v over `probes` random vectors of signs, and its standard error from
    their spread. One probe serves all layers, so the estimates of the layers add up to that of the whole.
    `layer_of` names the layer of a parameter; by default every tensor is its own. Units: loss per squared
    parameter.

    `ValueError`: fewer than 2 probes, or a layer named "all". NaN, with a warning, where the loss is not
    finite.
    """
    if probes < 2:
        raise ValueError(f"probes: a standard error needs at least 2, got {probes}")
    product, like = HessianProduct(loss, parameters), detached(parameters)
    layers = [layer_of(name) if layer_of else name for name in like]
    if "all" in layers:
        raise ValueError('layer_of: "all" is the name of the whole model')
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no trace", stacklevel=2)
        return dict.fromkeys(["all", *layers], (math.nan, math.nan))
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0] + [tensor.numel() for tensor in like.values()])[:-1]
    samples = np.empty((probes, len(layers)))
    for sample in samples:
        signs = rng.integers(0, 2, size=product.size) * 2.0 - 1.0
        sample[:] = np.add.reduceat(signs * product(signs), starts)
    columns = {layer: [name == layer for name in layers] for layer in dict.fromkeys(layers)}
    columns = {"all": [True] * len(layers)} | columns
    return {layer: _mean_and_error(samples[:, chosen].sum(axis=1)) for layer, chosen in columns.items()}


def hessian_trace(
    loss: Loss, parameters: Mapping[str, Tensor], *, probes: int, seed: int
) -> tuple[float, float]:
    """Trace of the Hessian and its standard error by Hutchinson's estimator; see `hessian_traces`."""
    return hessian_traces(loss, parameters, probes=probes, seed=seed)["all"]


def _mean_and_error(samples: np.ndarray) -> tuple[float, float]:
    return float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(len(samples)))


@dataclass(frozen=True)
class SpectralDensity:
    """Quadrature of the Hessian's spectral density: `nodes` and `weights`, float64 (runs, steps).

    Each row is a discrete distribution (weights sum to 1) with the first 2 * steps moments of the spectrum as
    its random vector sees them; nodes in loss per squared parameter.
    """

    nodes: np.ndarray
    weights: np.ndarray

    def on(self, grid: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Density on `grid`, smoothed by a Gaussian of standard deviation `width`: mean and standard error.

        Both over the runs; the standard error of a single run is NaN. `ValueError`: a width that is not
        positive.
        """
        if not width > 0:
            raise ValueError(f"width: need a positive number, got {width}")
        grid = np.asarray(grid, dtype=np.float64)
        bells = np.exp(-0.5 * ((grid - self.nodes[:, :, None]) / width) ** 2) / (
            width * math.sqrt(2 * math.pi)
        )
        runs = (self.weights[:, :, None] * bells).sum(axis=1)
        if len(runs) == 1:
            return runs[0], np.full(len(grid), np.nan)
        return runs.mean(axis=0), runs.std(axis=0, ddof=1) / math.sqrt(len(runs))


def spectral_density(
    loss: Loss, parameters: Mapping[str, Tensor], *, runs: int, seed: int, steps: int = 40
) -> SpectralDensity:
    """Spectral density of the Hessian by stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017).

    Each of `runs` random Gaussian vectors gives the Ritz values of `steps` Lanczos steps, weighted by the
    squared first coordinates of their vectors. Where the Krylov space ends early the rest of the row has
    weight 0.

    `ValueError`: runs or steps below 1. NaN, with a warning, where the loss is not finite.
    """
    if runs < 1 or steps < 1:
        raise ValueError(f"runs, steps: need at least 1 each, got {runs}, {steps}")
    product = HessianProduct(loss, parameters)
    steps = min(steps, product.size)
    nodes, weights = np.zeros((runs, steps)), np.zeros((runs, steps))
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no spectrum", stacklevel=2)
        return SpectralDensity(np.full_like(nodes, np.nan), np.full_like(weights, np.nan))
    for row, rng in enumerate(np.random.default_rng(seed).spawn(runs)):
        basis = LanczosBasis(product, product.size, rng)
        while basis.steps < steps and not basis.invariant:
            basis.step()
        values, coordinates = basis.ritz()
        nodes[row, : basis.steps], weights[row, : basis.steps] = values, coordinates[0] ** 2
    return SpectralDensity(nodes, weights)


def hessian_features(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    *,
    top: int,
    probes: int,
    seed: int,
    layer_of: Callable[[str], str] | None = None,
) -> tuple[dict[str, dict[str, float]], list[Parameters]]:
    """Curvature as features by layer, a dict of dicts, and the eigenvectors of the `top` eigenvalues.

    "all" has hessian_top_1 ... hessian_top_k, hessian_trace and hessian_trace_standard_error; every layer the
    last two.
    """
    values, vectors = hessian_eigenpairs(loss, parameters, top, seed=seed)
    traces = hessian_traces(loss, parameters, probes=probes, seed=seed, layer_of=layer_of)
    features = {
        layer: {"hessian_trace": estimate, "hessian_trace_standard_error": error}
        for layer, (estimate, error) in traces.items()
    }
    features["all"] |= {f"hessian_top_{rank}": float(value) for rank, value in enumerate(values, start=1)}
    return features, vectors


def loss_gradients(loss: Loss, parameters: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Gradient of the loss with respect to every tensor, float64 in its own shape.

    The rows of the matrices, (n_out, n_in), are the gradient clouds; the norm of them all end to end is the
    gradient norm.
    """
    inputs = {name: tensor.requires_grad_() for name, tensor in detached(parameters).items()}
    with torch.enable_grad():
        gradient = _derivative(loss(inputs), list(inputs.values()))
    return {name: tensor.double().cpu().numpy() for name, tensor in zip(inputs, gradient, strict=True)}
