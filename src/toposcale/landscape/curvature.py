"""Curvature of a loss: Hessian eigenpairs, traces and spectral density, and its gradient.

Nothing here touches `.grad`. In all functions `loss` maps a dict of tensors to a scalar tensor, and `parameters` is
such a dict. The Hessian is that of the loss with respect to all the tensors laid end to end, in the order of the dict.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Literal

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]

# Of each end of the spectrum: what ARPACK calls it, the Lanczos vectors to keep, and the residual by |value|. Products cost
# more than restarts, so few vectors are kept but at the lower end. The error of a value goes by the square of its residual.
_ENDS = {"largest": ("LM", 8, 1e-4), "highest": ("LA", 8, 1e-4), "lowest": ("SA", 24, 1e-2)}
# From scipy 1.17 on, a Lanczos basis that ends early is continued with a random vector, which is another one in each
# process unless the generator is given; the Fortran code of earlier releases has fixed seeds.
_RESTARTS_ARE_RANDOM = "rng" in signature(eigsh).parameters
_DENSE_SIZE = 16  # up to here the whole Hessian takes no more products
_FEWEST_PROBES = 10  # a standard error from fewer is too rough to stop by
_INVARIANT = 1e-13  # a new Lanczos vector shorter than this share of the image is rounding


class HessianProduct:
    """Products of the Hessian of `loss` at `parameters` with vectors, float64 (n,) to float64 (n,).

    The graph of the gradient is built once and every product is one backward pass through it (the Hessian is symmetric):
    about half the time of a forward-mode pass through the gradient, for the memory of that graph. By torch.autograd,
    because the first transform of torch.func loads sympy, which takes a second. The products are computed in the
    parameters' own precision; `count` says how many were taken.
    """

    def __init__(self, loss: Loss, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = detached(parameters)
        self.size = sum(tensor.numel() for tensor in self._parameters.values())
        self.count = 0
        # The fused attention kernels have no second derivative.
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            self._inputs = [tensor.requires_grad_() for tensor in detached(parameters).values()]
            named = dict(zip(self._parameters, self._inputs, strict=True))
            self._gradient = _derivative(loss(named), self._inputs, create_graph=True)
        self.finite = all(bool(torch.isfinite(tensor).all()) for tensor in self._gradient)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        self.count += 1
        direction = unflatten(vector, self._parameters).values()
        # The slope along the vector, and not the vector handed to autograd, which would load sympy for it.
        with torch.enable_grad():
            parts = [(g * v).sum() for g, v in zip(self._gradient, direction, strict=True)]
            product = _derivative(torch.stack(parts).sum(), self._inputs)
        return flatten(dict(zip(self._parameters, product, strict=True)))


def _derivative(output: Tensor, inputs: Sequence[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Gradient of a scalar with respect to every input; zero where nothing depends on it."""
    if not output.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    grad = torch.autograd.grad
    return list(grad(output, inputs, retain_graph=True, create_graph=create_graph, materialize_grads=True))


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
    loss: Loss,
    parameters: Mapping[str, Tensor],
    k: int,
    *,
    seed: int,
    which: Literal["largest", "highest", "lowest"] = "largest",
    max_products: int = 500,
) -> tuple[np.ndarray, list[Parameters]]:
    """k Hessian eigenvalues, float64 (k,), and unit eigenvectors.

    `largest`: those of largest magnitude, by falling |value|. `highest`: the most positive, by falling value.
    `lowest`: the most negative, by rising value.

    By scipy's `eigsh` (ARPACK, implicitly restarted Lanczos) from a seeded start. Residuals are at most 1e-4 |value|
    (1e-2 at the lower end, which is crowded), so that values are good to about 1e-7 (1e-3) where the next eigenvalue is
    a tenth away. A repeated eigenvalue may come back once only: one start vector sees one vector of each eigenspace, and
    only rounding brings in the others. The sign of a vector makes its entry of largest magnitude positive. Units of
    values: loss per squared parameter.
    `ValueError`: k is below 1 or above the number of parameters. Values that have not converged within about
    `max_products` products are NaN, with a warning, and so are all of a loss that is not finite.
    """
    product = HessianProduct(loss, parameters)
    if not 1 <= k <= product.size:
        raise ValueError(f"k: need 1 to {product.size} (the number of parameters), got {k}")
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no eigenvalues", stacklevel=2)
        return np.full(k, np.nan), [unflatten(np.full(product.size, np.nan), parameters)] * k
    values, vectors = _leading_pairs(product, k, which, np.random.default_rng(seed), max_products)
    if np.isnan(values).any():
        warnings.warn(f"Hessian eigenvalues have not converged in {product.count} products", stacklevel=2)
    largest = np.abs(vectors).argmax(axis=1)
    vectors = vectors * np.sign(vectors[np.arange(k), largest])[:, None]
    return values, [unflatten(vector, parameters) for vector in vectors]


def _leading_pairs(
    product: HessianProduct, k: int, which: str, rng: np.random.Generator, max_products: int
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (k,) at one end of the spectrum and eigenvectors (k, n); NaN where they have not converged."""
    size, start = product.size, rng.standard_normal(product.size)
    if size <= _DENSE_SIZE or k >= size - 1:
        values, vectors = np.linalg.eigh(np.stack([product(unit) for unit in np.eye(size)]))
    elif not product(start).any():  # a loss without curvature: ARPACK finds nothing to start with
        values, vectors = np.zeros(k), np.eye(size, k)
    else:
        arpack, basis, residual = _ENDS[which]
        width = min(size, max(2 * k + 4, basis))
        try:
            values, vectors = eigsh(
                LinearOperator((size, size), matvec=product, dtype=np.float64),
                k=k,
                which=arpack,
                v0=start,
                ncv=width,
                tol=residual,
                maxiter=max(1, max_products // (width - k)),
                **({"rng": rng} if _RESTARTS_ARE_RANDOM else {}),
            )
        except ArpackNoConvergence as error:
            values, vectors = error.eigenvalues, error.eigenvectors
            missing = (0, k - len(values))
            values = np.pad(values, missing, constant_values=np.nan)
            vectors = np.pad(vectors, ((0, 0), missing), constant_values=np.nan)
    # NaN last; of opposite values the positive one first
    keys = {"largest": (-values, -np.abs(values)), "highest": (-values,), "lowest": (values,)}
    order = np.lexsort(keys[which])[:k]
    return values[order], vectors.T[order]


def hessian_traces(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    *,
    probes: int,
    seed: int,
    accuracy: float = 0.0,
    layer_of: Callable[[str], str] | None = None,
) -> dict[str, tuple[float, float]]:
    """Trace of the Hessian ("all") and of each layer's diagonal block: {layer: (estimate, standard error)}.

    Hutchinson (1990): the mean of v . H v over random vectors of signs, and its standard error from their spread. At
    most `probes` vectors; after 10 of them it stops once the standard error of the whole is below `accuracy` times the
    estimate. One probe serves all layers, so the estimates of the layers add up to that of the whole. `layer_of` names
    the layer of a parameter; by default every tensor is its own. Units: loss per squared parameter.
    `ValueError`: fewer than 2 probes, or a layer named "all". NaN, with a warning, where the loss is not finite.
    """
    if probes < 2:
        raise ValueError(f"probes: a standard error needs at least 2, got {probes}")
    product = HessianProduct(loss, parameters)
    layers = [layer_of(name) if layer_of else name for name in parameters]
    if "all" in layers:
        raise ValueError('layer_of: "all" is the name of the whole model')
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no trace", stacklevel=2)
        return dict.fromkeys(["all", *layers], (math.nan, math.nan))
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0] + [tensor.numel() for tensor in parameters.values()])[:-1]
    estimates: list[np.ndarray] = []
    while len(estimates) < probes:
        signs = rng.integers(0, 2, size=product.size) * 2.0 - 1.0
        estimates.append(np.add.reduceat(signs * product(signs), starts))
        if len(estimates) >= _FEWEST_PROBES:
            mean, error = _mean_and_error(np.sum(estimates, axis=1))
            if error < accuracy * abs(mean):
                break
    samples = np.stack(estimates)
    columns = {"all": [True] * len(layers)} | {layer: [name == layer for name in layers] for layer in layers}
    return {layer: _mean_and_error(samples[:, chosen].sum(axis=1)) for layer, chosen in columns.items()}


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

        Both over the runs; the standard error of a single run is NaN. `ValueError`: a width that is not positive.
        """
        if not width > 0:
            raise ValueError(f"width: need a positive number, got {width}")
        grid = np.asarray(grid, dtype=np.float64)
        bells = np.exp(-0.5 * ((grid - self.nodes[:, :, None]) / width) ** 2) / (width * math.sqrt(2 * math.pi))
        runs = (self.weights[:, :, None] * bells).sum(axis=1)
        if len(runs) == 1:
            return runs[0], np.full(len(grid), np.nan)
        return runs.mean(axis=0), runs.std(axis=0, ddof=1) / math.sqrt(len(runs))


def spectral_density(
    loss: Loss, parameters: Mapping[str, Tensor], *, runs: int, seed: int, steps: int = 40
) -> SpectralDensity:
    """Spectral density of the Hessian by stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017).

    Each of `runs` random Gaussian vectors gives the Ritz values of `steps` Lanczos steps, weighted by the squared first
    coordinates of their vectors. Where the Krylov space ends early the rest of the row has weight 0.
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
        values, shares = _lanczos_quadrature(product, rng.standard_normal(product.size), steps)
        nodes[row, : len(values)], weights[row, : len(values)] = values, shares
    return SpectralDensity(nodes, weights)


def _lanczos_quadrature(
    product: Callable[[np.ndarray], np.ndarray], start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values of at most `steps` Lanczos steps, and the squared first coordinates of their vectors."""
    basis, vector = np.empty((0, len(start))), start / np.linalg.norm(start)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        basis = np.vstack([basis, vector])
        image = product(vector)
        diagonal.append(float(image @ vector))
        scale = np.linalg.norm(image)
        for _ in range(2):  # once leaves the rounding of what was taken away; twice is enough (Parlett)
            image = image - basis.T @ (basis @ image)
        length = float(np.linalg.norm(image))
        if len(diagonal) == steps or length <= _INVARIANT * scale:
            values, coordinates = eigh_tridiagonal(diagonal, off_diagonal)
            return values, coordinates[0] ** 2
        off_diagonal.append(length)
        vector = image / length


def loss_gradients(loss: Loss, parameters: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Gradient of the loss with respect to every tensor, float64 in its own shape.

    The rows of the matrices, (n_out, n_in), are the gradient clouds; the norm of them all end to end is the
    gradient norm.
    """
    inputs = {name: tensor.requires_grad_() for name, tensor in detached(parameters).items()}
    with torch.enable_grad():
        gradient = _derivative(loss(inputs), list(inputs.values()))
    return {name: tensor.double().cpu().numpy() for name, tensor in zip(inputs, gradient, strict=True)}
