"""Curvature of a loss: Hessian eigenpairs, traces and spectral density, and the gradient.

`loss` maps a dict of tensors, such as `parameters`, to a scalar tensor; `.grad` is not touched. The Hessian is with
respect to all tensors concatenated in the order of the dict.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Literal

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from toposcale.io.errors import UserError, is_shared, one_line

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]

# Of each part of the spectrum: what ARPACK calls it, the Lanczos vectors to keep, and the residual by |value|. Products
# cost more than restarts, so few vectors are kept, and more for the crowded lower end. The error of a value goes by the
# square of its residual.
_SEARCHES = {"largest": ("LM", 8, 1e-4), "ends": ("BE", 20, 1e-3)}
# From scipy 1.17 on, a Lanczos basis that ends early is continued with a random vector, which is another one in each
# process unless the generator is given; the Fortran code of earlier releases has fixed seeds.
_RESTARTS_ARE_RANDOM = "rng" in signature(eigsh).parameters
_DENSE_SIZE = 16  # up to here the whole Hessian takes no more products
_FEWEST_PROBES = 10  # a standard error from fewer is too rough to stop by
# Of the two products of a symmetric Hessian, by the length of one: in single precision rounding alone makes 5e-4 of it.
_MAX_ASYMMETRY = 3e-2
# Of a product off a finite difference, by the larger of both; and the steps of the difference, by the parameters' norm.
_MAX_DIFFERENCE_ERROR, _DIFFERENCE_STEPS = 0.1, (1e-2, 1e-3)
_WITHOUT_CURVATURE = "write it with operations that torch differentiates twice, or measure no curvature"
_INVARIANT = 1e-13  # a new Lanczos vector shorter than this share of the image is rounding


class HessianProduct:
    """Hessian-vector products of `loss` at `parameters`, float64 (n,) to float64 (n,), in the parameters' precision.

    The graph of the gradient is built once, and a product is one backward pass through it (the Hessian is symmetric):
    half the time of a forward-mode pass, for the memory of that graph. torch.autograd, since the first transform of
    torch.func loads sympy, which takes a second. `count` is the number of products.
    """

    def __init__(self, loss: Loss, parameters: Mapping[str, Tensor]) -> None:
        values = detached(parameters)
        self.size = sum(tensor.numel() for tensor in values.values())
        self.count = 0
        # The fused attention kernels have no second derivative.
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            self._input = joined(values).requires_grad_()
            value = loss(parts(self._input, values))
            self._gradient = _derivative(value, self._input, create_graph=True)
        self.finite = bool(torch.isfinite(self._gradient).all())
        self._like, self._custom = values, _custom_operations(value)
        if self._custom:
            self.check(loss)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """Return the product with a vector (n,)."""
        self.count += 1
        direction = torch.from_numpy(vector).to(self._gradient)
        # The slope along the vector, and not the vector handed to autograd, which would load sympy for it.
        with torch.enable_grad():
            product = _derivative((self._gradient * direction).sum(), self._input)
        return product.double().cpu().numpy()

    def check(self, loss: Loss) -> None:
        """Raise UserError for a loss with an operation that has no second derivative, which autograd may take for 0.

        Then u . H v and v . H u differ for two random vectors. Where they agree, a custom operation may still hide a part
        of the Hessian; a finite difference of the gradient tells. It needs no more than two steps, of which the longer one
        is for rounding and the shorter one for strong curvature; without a custom operation the kinks of a ReLU explain
        any difference.
        """
        if not self.finite:
            return
        operation = f"its operation {' or '.join(self._custom)}" if self._custom else "an operation in it"
        refusal = f"the loss has no second derivative: {operation} has a gradient that cannot be differentiated"
        first, second = np.random.default_rng(0).standard_normal((2, self.size))
        try:
            images = self(first), self(second)
        except (RuntimeError, NotImplementedError) as error:
            if is_shared(error):
                raise
            raise UserError(f"{refusal} ({one_line(error)}); {_WITHOUT_CURVATURE}") from error
        self.count = 0
        size = max(np.linalg.norm(image) for image in images)
        asymmetry = abs(first @ images[1] - second @ images[0]) / size if size else 0.0
        if asymmetry > _MAX_ASYMMETRY:
            raise UserError(f"{refusal} (u.Hv and v.Hu differ by {asymmetry:.2g} of |Hv|); {_WITHOUT_CURVATURE}")
        if self._custom:
            off = min(self._difference_error(loss, first, images[0], share) for share in _DIFFERENCE_STEPS)
            if off > _MAX_DIFFERENCE_ERROR:
                raise UserError(f"{refusal} (Hv is {off:.0%} off finite differences); {_WITHOUT_CURVATURE}")

    def _difference_error(self, loss: Loss, vector: np.ndarray, image: np.ndarray, share: float) -> float:
        """Return how far H v is off a central difference of the gradient, of a step that is a share of the parameters."""
        point = flatten(self._like)
        step = share * (np.linalg.norm(point) or 1.0) / np.linalg.norm(vector)
        ends = (unflatten(point + sign * step * vector, self._like) for sign in (1, -1))
        after, before = (np.concatenate([g.ravel() for g in loss_gradients(loss, end).values()]) for end in ends)
        difference = (after - before) / (2 * step)
        size = max(np.linalg.norm(difference), np.linalg.norm(image))
        return float(np.linalg.norm(difference - image) / size) if size else 0.0


def _custom_operations(value: Tensor) -> list[str]:
    """Return the names of the `torch.autograd.Function`s by which a scalar was computed."""
    seen, waiting = set(), [value.grad_fn]
    names: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.add(type(node).__name__.removesuffix("Backward"))
    return sorted(names)


def _derivative(output: Tensor, point: Tensor, *, create_graph: bool = False) -> Tensor:
    """Return the gradient of a scalar with respect to a vector; zero where nothing depends on it."""
    if not output.requires_grad:
        return torch.zeros_like(point)
    grad = torch.autograd.grad
    return grad(output, point, retain_graph=True, create_graph=create_graph, materialize_grads=True)[0]


def detached(parameters: Mapping[str, Tensor]) -> Parameters:
    """Return the values without their graph; ValueError if there is none or one is not floating point."""
    if not parameters:
        raise ValueError("parameters: need at least one tensor")
    for name, tensor in parameters.items():
        if not tensor.is_floating_point():
            raise ValueError(f"parameters: {name} is {tensor.dtype}, and only floating point can vary")
    return {name: tensor.detach() for name, tensor in parameters.items()}


def joined(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return all tensors as one vector, of the widest of their types: one operation then moves all of them."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()])


def parts(vector: Tensor, like: Mapping[str, Tensor]) -> Parameters:
    """Return views of a vector with the shapes, dtypes and devices of `like`, the inverse of `joined`."""
    pieces = vector.split([tensor.numel() for tensor in like.values()])
    return {
        name: piece.view(tensor.shape).to(tensor.device, tensor.dtype)
        for piece, (name, tensor) in zip(pieces, like.items(), strict=True)
    }


def flatten(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return all tensors concatenated, float64 (n,)."""
    return joined(tensors).double().cpu().numpy()


def unflatten(vector: np.ndarray, like: Mapping[str, Tensor]) -> Parameters:
    """Return a vector (n,) as tensors of the shapes, dtypes and devices of `like`, the inverse of `flatten`."""
    return parts(torch.from_numpy(vector), like)


def hessian_eigenpairs(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    k: int,
    *,
    seed: int,
    which: Literal["largest", "ends"] = "largest",
    max_products: int = 500,
) -> tuple[np.ndarray, list[Parameters]]:
    """Compute the largest eigenvalues and unit eigenvectors of the Hessian, or those at both ends of its spectrum.

    By ARPACK's implicitly restarted Lanczos method (`scipy.sparse.linalg.eigsh`) from a seeded start vector. Residuals
    are at most 1e-4 |value| (1e-3 at both ends), so values are good to about 1e-7 (1e-5) where the next eigenvalue is a
    tenth away. Both ends come from one Lanczos basis, for about half the products of a search for each. One start
    vector finds one vector of a repeated eigenvalue's eigenspace; only rounding brings in others.

    Parameters
    ----------
    loss : callable
        Function of a dict of tensors that returns a scalar tensor.
    parameters : mapping of str to Tensor
        Point at which the Hessian is taken.
    k : int
        Number of eigenpairs; of "ends", at each end.
    seed : int
        Seed of the start vector.
    which : {"largest", "ends"}
        Largest in magnitude (descending), or the k lowest and the k highest (ascending; all, if there are fewer than 2k).
    max_products : int
        Approximate limit of Hessian-vector products.

    Returns
    -------
    values : ndarray of shape (k,) or (2k,)
        Eigenvalues, loss per squared parameter, float64; NaN, with a warning, if one has not converged or the loss is
        not finite.
    vectors : list of dict of str to Tensor
        Eigenvectors; the entry of largest magnitude is positive.

    Raises
    ------
    ValueError
        If `k` is not in 1..n, the number of parameters, or a parameter is not floating point.

    Examples
    --------
    >>> hessian_eigenpairs(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(2)}, 2, seed=0)[0].tolist()
    [2.0, 2.0]
    """
    product = HessianProduct(loss, parameters)
    if not 1 <= k <= product.size:
        raise ValueError(f"k: need 1 to {product.size} (the number of parameters), got {k}")
    if not product.finite:
        warnings.warn("the gradient is not finite, so the Hessian has no eigenvalues", stacklevel=2)
        count = _count(k, which, product.size)
        return np.full(count, np.nan), [unflatten(np.full(product.size, np.nan), parameters)] * count
    values, vectors = _outer_pairs(product, k, which, np.random.default_rng(seed), max_products)
    if np.isnan(values).any():
        warnings.warn(f"Hessian eigenvalues have not converged in {product.count} products", stacklevel=2)
    largest = np.abs(vectors).argmax(axis=1)
    vectors = vectors * np.sign(vectors[np.arange(len(values)), largest])[:, None]
    return values, [unflatten(vector, parameters) for vector in vectors]


def _count(k: int, which: str, size: int) -> int:
    return k if which == "largest" else min(2 * k, size)


def _outer_pairs(
    product: HessianProduct, k: int, which: str, rng: np.random.Generator, max_products: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues (m,) of one kind and eigenvectors (m, n); all NaN where one has not converged."""
    size, start = product.size, rng.standard_normal(product.size)
    count = _count(k, which, size)
    if size <= _DENSE_SIZE or count >= size - 1:
        values, vectors = np.linalg.eigh(np.stack([product(unit) for unit in np.eye(size)]))
    elif not product(start).any():  # a loss without curvature: ARPACK finds nothing to start with
        values, vectors = np.zeros(count), np.eye(size, count)
    else:
        arpack, basis, residual = _SEARCHES[which]
        width = min(size, max(2 * count + 4, basis))
        try:
            values, vectors = eigsh(
                LinearOperator((size, size), matvec=product, dtype=np.float64),
                k=count,
                which=arpack,
                v0=start,
                ncv=width,
                tol=residual,
                maxiter=max(1, max_products // (width - count)),
                **({"rng": rng} if _RESTARTS_ARE_RANDOM else {}),
            )
        except ArpackNoConvergence:
            values, vectors = np.full(count, np.nan), np.full((size, count), np.nan)
    if which == "ends":
        order = np.argsort(values)
        order = np.delete(order, np.s_[k : len(order) - (count - k)])
    else:  # of opposite values the positive one first
        order = np.lexsort((-values, -np.abs(values)))[:k]
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
    """Estimate the trace of the Hessian and of each layer's diagonal block by Hutchinson's method.

    The estimate is the mean of v . H v over vectors v of random signs. A probe serves all layers, so their estimates
    add up to that of the whole.

    Parameters
    ----------
    loss, parameters
        As in `hessian_eigenpairs`.
    probes : int
        Largest number of random vectors.
    seed : int
        Seed of the vectors.
    accuracy : float
        After 10 probes, stop once the standard error of the whole is below this share of its estimate.
    layer_of : callable, optional
        Layer of a parameter by its name; by default every tensor is a layer.

    Returns
    -------
    dict of str to tuple of float
        Estimate and standard error of "all" and of every layer, loss per squared parameter; NaN, with a warning, if the
        loss is not finite.

    Raises
    ------
    ValueError
        If `probes` is below 2, a layer is named "all", or a parameter is not floating point.

    References
    ----------
    Hutchinson, Communications in Statistics 19(2), 1990.

    Examples
    --------
    >>> hessian_traces(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(2)}, probes=2, seed=0)
    {'all': (4.0, 0.0), 'w': (4.0, 0.0)}
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
    """Quadrature of the Hessian's spectral density.

    A row is a discrete distribution with the first 2 * steps moments of the spectrum as weighted by one random vector.

    Attributes
    ----------
    nodes : ndarray of shape (runs, steps)
        Ritz values, loss per squared parameter, float64.
    weights : ndarray of shape (runs, steps)
        Weights, summing to 1 in each row, float64.
    """

    nodes: np.ndarray
    weights: np.ndarray

    def on(self, grid: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Smooth the density by a Gaussian and evaluate it on a grid.

        Parameters
        ----------
        grid : ndarray of shape (m,)
            Eigenvalues, loss per squared parameter.
        width : float
            Standard deviation of the Gaussian, in the unit of `grid`.

        Returns
        -------
        mean, standard_error : ndarray of shape (m,)
            Over the runs, in the inverse of that unit; the standard error of one run is NaN.

        Raises
        ------
        ValueError
            If `width` is not positive.
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
    """Estimate the spectral density of the Hessian by stochastic Lanczos quadrature.

    Parameters
    ----------
    loss, parameters
        As in `hessian_eigenpairs`.
    runs : int
        Number of random Gaussian start vectors.
    seed : int
        Seed of the vectors.
    steps : int
        Lanczos steps per run.

    Returns
    -------
    SpectralDensity
        Ritz values and weights; weights 0 after the Krylov space ends, NaN, with a warning, if the loss is not finite.

    Raises
    ------
    ValueError
        If `runs` or `steps` is below 1, or a parameter is not floating point.

    References
    ----------
    Ubaru, Chen and Saad, SIAM Journal on Matrix Analysis and Applications 38(4), 2017.

    Examples
    --------
    >>> density = spectral_density(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(1)}, runs=1, seed=0)
    >>> density.nodes.tolist(), density.weights.tolist()
    ([[2.0]], [[1.0]])
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
    """Return the Ritz values of at most `steps` Lanczos steps, and the squared first coordinates of their vectors."""
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
    """Return the gradient of a loss by the name of every parameter, in its shape, float64."""
    values = detached(parameters)
    point = joined(values).requires_grad_()
    with torch.enable_grad():
        gradient = _derivative(loss(parts(point, values)), point)
    return {name: tensor.double().cpu().numpy() for name, tensor in parts(gradient, values).items()}
