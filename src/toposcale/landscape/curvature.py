"""Curvature of a loss: Hessian eigenpairs, traces and spectral density, and the gradient.

`loss` maps a dict of tensors, such as `parameters`, to a scalar tensor; `.grad` is not touched. The Hessian is with
respect to all tensors concatenated in the order of the dict.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from toposcale.io.errors import UserError, is_shared, one_line
from toposcale.landscape.krylov import KrylovBasis

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]
Which = Literal["largest", "ends"]

# Residual of an eigenpair by |value|, by the part of the spectrum. The error of a value goes by the square of it.
_MAX_RESIDUAL = {"largest": 1e-4, "ends": 1e-3}
_ZERO = 1e-10  # smaller shares of the largest eigenvalue are as good as 0
_BASIS_VECTORS = 32  # kept at least before a restart: most networks need no more for two eigenpairs at either end
_DENSE_SIZE = 16  # up to here the whole Hessian takes no more products
_MAX_PRODUCTS = 500  # with a vector, approximately, in a search for eigenpairs
_MIN_PROBES = 10  # a standard error from fewer is too rough to stop by
# Of the two products of a symmetric Hessian, by the length of one: in single precision rounding makes 5e-4 of it.
_MAX_ASYMMETRY = 3e-2
# Of a product off a finite difference, by the larger of both; and the steps of the difference, by the parameters' norm.
_MAX_DIFFERENCE_ERROR = 0.1
_DIFFERENCE_STEPS = (1e-2, 1e-3)
_WITHOUT_CURVATURE = "write it with operations that torch differentiates twice, or measure no curvature"


class Hessian:
    """Hessian of a loss at a point, with respect to all parameters concatenated in the order of the dict.

    A call is the product with a vector, float64 (n,) to float64 (n,), in the parameters' precision. The graph of the
    gradient is built once, and a product is one backward pass through it (the Hessian is symmetric): half the time of a
    forward-mode pass, for the memory of that graph.

    Parameters
    ----------
    loss : callable
        Function of a dict of tensors that returns a scalar tensor.
    parameters : mapping of str to Tensor
        Point at which the Hessian is taken.

    Attributes
    ----------
    size, count : int
        Number of parameters, and of products so far.
    finite : bool
        Whether the gradient and the Hessian are finite. If not, with a warning, all that the methods return is NaN.

    Raises
    ------
    ValueError
        If there is no parameter, or one is not floating point.
    UserError
        If an operation of the loss has no second derivative.

    Examples
    --------
    >>> hessian = Hessian(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(2)})
    >>> hessian(np.array([1.0, 0.0])).tolist(), hessian.eigenpairs(2, seed=0)[0].tolist()
    ([2.0, 0.0], [2.0, 2.0])
    """

    def __init__(self, loss: Loss, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = detach(parameters)
        self.size = sum(tensor.numel() for tensor in self.parameters.values())
        self.count = 0
        self._basis: tuple[int, KrylovBasis] | None = None
        # The fused attention kernels have no second derivative.
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            self._input = concatenate_tensors(self.parameters).requires_grad_()
            value = loss(split_vector(self._input, self.parameters))
            self._gradient = _derivative(value, self._input, create_graph=True)
        self.finite = bool(torch.isfinite(self._gradient).all())
        if not self.finite:
            warnings.warn("the gradient is not finite, so the Hessian is unknown", stacklevel=2)
            return
        self.finite = self._check(loss, _custom_operations(value))
        if not self.finite:
            warnings.warn("the Hessian is not finite", stacklevel=2)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """Return the product with a vector (n,)."""
        self.count += 1
        return self._product(vector)

    def _product(self, vector: np.ndarray) -> np.ndarray:
        direction = torch.from_numpy(vector).to(self._gradient)
        # H v is the gradient of (gradient . v), since v is constant (Pearlmutter 1994).
        with torch.enable_grad():
            product = _derivative((self._gradient * direction).sum(), self._input)
        return product.double().cpu().numpy()

    def eigenpairs(self, k: int, *, seed: int, which: Which = "largest") -> tuple[np.ndarray, list[Parameters]]:
        """Compute the largest eigenvalues and unit eigenvectors, or those at both ends of the spectrum.

        By the Lanczos method with thick restarts from a seeded start vector, the first one of `density`: what either has
        computed serves the other. Residuals are at most 1e-4 |value| (1e-3 at both ends), so values are good to about
        1e-7 (1e-5) where the next eigenvalue is a tenth away. One start vector finds one vector of a repeated
        eigenvalue's eigenspace; only rounding brings in others.

        Parameters
        ----------
        k : int
            Number of eigenpairs; of "ends", at each end.
        seed : int
            Seed of the start vector.
        which : {"largest", "ends"}
            Largest in magnitude (descending), or the k lowest and the k highest (ascending; all, if there are fewer than
            2k).

        Returns
        -------
        values : ndarray of shape (k,) or (2k,)
            Eigenvalues, loss per squared parameter, float64; NaN, with a warning, if one has not converged.
        vectors : list of dict of str to Tensor
            Eigenvectors; the entry of largest magnitude is positive.

        Raises
        ------
        ValueError
            If `k` is not in 1..n, the number of parameters.

        References
        ----------
        Wu and Simon, SIAM Journal on Matrix Analysis and Applications 22(2), 2000.
        """
        if not 1 <= k <= self.size:
            raise ValueError(f"k: need 1 to {self.size} (the number of parameters), got {k}")
        n_pairs = k if which == "largest" else min(2 * k, self.size)
        pairs = self._outer_pairs(n_pairs, seed, which, self.count + _MAX_PRODUCTS) if self.finite else None
        if pairs is None:
            if self.finite:
                warnings.warn(f"Hessian eigenvalues have not converged in {self.count} products", stacklevel=2)
            return np.full(n_pairs, np.nan), [unflatten(np.full(self.size, np.nan), self.parameters)] * n_pairs
        values, vectors = pairs
        largest = np.abs(vectors).argmax(axis=1)
        vectors *= np.sign(vectors[np.arange(n_pairs), largest])[:, None]
        return values, [unflatten(vector, self.parameters) for vector in vectors]

    def _outer_pairs(
        self, n_pairs: int, seed: int, which: Which, most_products: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return eigenvalues (m,) of one kind and eigenvectors (m, n); None if one has not converged."""
        if self.size <= _DENSE_SIZE:
            values, vectors = np.linalg.eigh(np.stack([self(unit) for unit in np.eye(self.size)]))
            outermost = _outermost(values, n_pairs, which)
            return values[outermost], vectors.T[outermost]
        basis = self._basis[1] if self._basis and self._basis[0] == seed else None
        if basis is None or len(basis.vectors) < min(self.size, 2 * n_pairs + 4):
            basis = self._new_basis(seed, 0, 2 * n_pairs + 4)
        while True:
            if basis.count >= min(self.size, max(_DENSE_SIZE, n_pairs)):
                values, coordinates, residuals = basis.ritz_pairs()
                outermost = _outermost(values, n_pairs, which)
                magnitudes = np.abs(values[outermost]).clip(min=_ZERO * np.abs(values).max())
                if basis.count == self.size or (residuals[outermost] <= _MAX_RESIDUAL[which] * magnitudes).all():
                    return values[outermost], coordinates[:, outermost].T @ basis.vectors[: basis.count]
                if self.count >= most_products:
                    return None
                if basis.count == len(basis.vectors):
                    basis.restart(_outermost(values, basis.count // 2, which))
            basis.grow(self)

    def _new_basis(self, seed: int, run: int, vectors: int) -> KrylovBasis:
        """Return a basis with room for `vectors` vectors, from the start vector of a run; that of run 0 is reused."""
        rng = np.random.default_rng(seed).spawn(run + 1)[run]
        basis = KrylovBasis(rng, min(self.size, max(_BASIS_VECTORS, vectors)), self.size)
        if run == 0:
            self._basis = seed, basis
        return basis

    def traces(
        self, *, probes: int, seed: int, accuracy: float = 0.0, layer_of: Callable[[str], str] | None = None
    ) -> dict[str, tuple[float, float]]:
        """Estimate the trace and that of each layer's diagonal block by Hutchinson's method.

        The estimate is the mean of v . H v over vectors v of random signs. A probe serves all layers, so their estimates
        add up to that of the whole.

        Parameters
        ----------
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
            Estimate and standard error of "all" and of every layer, loss per squared parameter.

        Raises
        ------
        ValueError
            If `probes` is below 2, or a layer is named "all".

        References
        ----------
        Hutchinson, Communications in Statistics 19(2), 1990.

        Examples
        --------
        >>> Hessian(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(2)}).traces(probes=2, seed=0)
        {'all': (4.0, 0.0), 'w': (4.0, 0.0)}
        """
        if probes < 2:
            raise ValueError(f"probes: a standard error needs at least 2, got {probes}")
        layers = [layer_of(name) if layer_of else name for name in self.parameters]
        if "all" in layers:
            raise ValueError('layer_of: "all" is the name of the whole model')
        if not self.finite:
            return dict.fromkeys(["all", *layers], (math.nan, math.nan))
        rng = np.random.default_rng(seed)
        starts = np.cumsum([0] + [tensor.numel() for tensor in self.parameters.values()])[:-1]
        estimates: list[np.ndarray] = []
        while len(estimates) < probes:
            signs = rng.integers(0, 2, size=self.size) * 2.0 - 1.0
            estimates.append(np.add.reduceat(signs * self(signs), starts))
            if len(estimates) >= _MIN_PROBES:
                mean, error = _mean_and_error(np.sum(estimates, axis=1))
                if error < accuracy * abs(mean):
                    break
        samples = np.stack(estimates)
        columns = {"all": [True] * len(layers)} | {layer: [name == layer for name in layers] for layer in layers}
        return {layer: _mean_and_error(samples[:, chosen].sum(axis=1)) for layer, chosen in columns.items()}

    def density(self, *, runs: int, seed: int, steps: int = 40) -> "SpectralDensity":
        """Estimate the spectral density by stochastic Lanczos quadrature.

        Parameters
        ----------
        runs : int
            Number of random Gaussian start vectors.
        seed : int
            Seed of the vectors.
        steps : int
            Lanczos steps per run.

        Returns
        -------
        SpectralDensity
            Ritz values and weights; weights 0 after the Krylov space ends.

        Raises
        ------
        ValueError
            If `runs` or `steps` is below 1.

        References
        ----------
        Ubaru, Chen and Saad, SIAM Journal on Matrix Analysis and Applications 38(4), 2017.

        Examples
        --------
        >>> density = Hessian(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(1)}).density(runs=1, seed=0)
        >>> density.nodes.tolist(), density.weights.tolist()
        ([[2.0]], [[1.0]])
        """
        if runs < 1 or steps < 1:
            raise ValueError(f"runs, steps: need at least 1 each, got {runs}, {steps}")
        steps = min(steps, self.size)
        density = SpectralDensity(*np.full((2, runs, steps), 0.0 if self.finite else np.nan))
        for run in range(runs if self.finite else 0):
            basis = self._new_basis(seed, run, steps)
            while basis.count < steps and basis.residual_norm:
                basis.grow(self)
            values, coordinates, _ = basis.ritz_pairs()
            density.nodes[run, : len(values)], density.weights[run, : len(values)] = values, coordinates[0] ** 2
        return density

    def _check(self, loss: Loss, custom: list[str]) -> bool:
        """Return whether products are finite; raise UserError if an operation of the loss has no second derivative.

        Autograd may take such a derivative for 0; then u . H v and v . H u differ for two random vectors. Where they
        agree, a custom operation may still hide a part of the Hessian; a finite difference of the gradient tells. It needs
        no more than two steps, of which the longer one is for rounding and the shorter one for strong curvature; without
        a custom operation the kinks of a ReLU explain any difference.
        """
        operation = f"its operation {' or '.join(custom)}" if custom else "an operation in it"
        refusal = f"the loss has no second derivative: {operation} has a gradient that cannot be differentiated"
        first, second = np.random.default_rng(0).standard_normal((2, self.size))
        try:
            images = self._product(first), self._product(second)
        except (RuntimeError, NotImplementedError) as error:
            if is_shared(error):
                raise
            raise UserError(f"{refusal} ({one_line(error)}); {_WITHOUT_CURVATURE}") from error
        if not np.isfinite(images).all():
            return False
        largest_norm = max(np.linalg.norm(image) for image in images)
        asymmetry = abs(first @ images[1] - second @ images[0]) / largest_norm if largest_norm else 0.0
        if asymmetry > _MAX_ASYMMETRY:
            raise UserError(f"{refusal} (u.Hv and v.Hu differ by {asymmetry:.2g} of |Hv|); {_WITHOUT_CURVATURE}")
        if custom:
            relative_error = min(self._difference_error(loss, first, images[0], share) for share in _DIFFERENCE_STEPS)
            if relative_error > _MAX_DIFFERENCE_ERROR:
                raise UserError(f"{refusal} (Hv is {relative_error:.0%} off finite differences); {_WITHOUT_CURVATURE}")
        return True

    def _difference_error(self, loss: Loss, vector: np.ndarray, image: np.ndarray, share: float) -> float:
        """Return the relative difference of H v from a central difference; share: its step per norm of the parameters."""
        point = flatten(self.parameters)
        step = share * (np.linalg.norm(point) or 1.0) / np.linalg.norm(vector)
        ends = (unflatten(point + sign * step * vector, self.parameters) for sign in (1, -1))
        after, before = (np.concatenate([g.ravel() for g in loss_gradients(loss, end).values()]) for end in ends)
        difference = (after - before) / (2 * step)
        largest_norm = max(np.linalg.norm(difference), np.linalg.norm(image))
        return float(np.linalg.norm(difference - image) / largest_norm) if largest_norm else 0.0


def _outermost(values: np.ndarray, count: int, which: Which) -> np.ndarray:
    """Return the indices of `count` of ascending values: the largest in magnitude, or those at both ends."""
    if which == "largest":  # of opposite values the positive one first
        return np.lexsort((-values, -np.abs(values)))[:count]
    return np.delete(np.arange(len(values)), np.s_[count - count // 2 : len(values) - count // 2])


def _custom_operations(value: Tensor) -> list[str]:
    """Return the names of the `torch.autograd.Function`s by which a scalar was computed."""
    visited, pending = set(), [value.grad_fn]
    names: set[str] = set()
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        pending += [following for following, _ in node.next_functions]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.add(type(node).__name__.removesuffix("Backward"))
    return sorted(names)


def _derivative(output: Tensor, point: Tensor, *, create_graph: bool = False) -> Tensor:
    """Return the gradient of a scalar with respect to a vector; zero where nothing depends on it."""
    if not output.requires_grad:
        return torch.zeros_like(point)
    grad = torch.autograd.grad
    return grad(output, point, retain_graph=True, create_graph=create_graph, materialize_grads=True)[0]


def detach(parameters: Mapping[str, Tensor]) -> Parameters:
    """Detach the parameters from their graph; ValueError if there is none, or one is not floating point."""
    if not parameters:
        raise ValueError("parameters: need at least one tensor")
    for name, tensor in parameters.items():
        if not tensor.is_floating_point():
            raise ValueError(f"parameters: {name} is {tensor.dtype}, and only floating point can vary")
    return {name: tensor.detach() for name, tensor in parameters.items()}


def concatenate_tensors(tensors: Mapping[str, Tensor]) -> Tensor:
    """Concatenate all tensors into one vector of their promoted type: one operation then moves all of them."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()])


def split_vector(vector: Tensor, like: Mapping[str, Tensor]) -> Parameters:
    """Return views of a vector with the shapes, dtypes and devices of `like`, the inverse of `concatenate_tensors`."""
    pieces = vector.split([tensor.numel() for tensor in like.values()])
    return {
        name: piece.view(tensor.shape).to(tensor.device, tensor.dtype)
        for piece, (name, tensor) in zip(pieces, like.items(), strict=True)
    }


def flatten(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return all tensors concatenated, float64 (n,)."""
    return concatenate_tensors(tensors).double().cpu().numpy()


def unflatten(vector: np.ndarray, like: Mapping[str, Tensor]) -> Parameters:
    """Return a vector (n,) as tensors of the shapes, dtypes and devices of `like`, the inverse of `flatten`."""
    return split_vector(torch.from_numpy(vector), like)


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

    def on(self, grid: np.ndarray, width: float) -> np.ndarray:
        """Smooth the density by a Gaussian and evaluate it on a grid.

        Parameters
        ----------
        grid : ndarray of shape (m,)
            Eigenvalues, loss per squared parameter.
        width : float
            Standard deviation of the Gaussian, in the unit of `grid`.

        Returns
        -------
        ndarray of shape (m,)
            Mean over the runs, in the inverse of that unit.

        Raises
        ------
        ValueError
            If `width` is not positive.
        """
        if not width > 0:
            raise ValueError(f"width: need a positive number, got {width}")
        grid = np.asarray(grid, dtype=np.float64)
        bells = np.exp(-0.5 * ((grid - self.nodes[:, :, None]) / width) ** 2) / (width * math.sqrt(2 * math.pi))
        return (self.weights[:, :, None] * bells).sum(axis=1).mean(axis=0)


def loss_gradients(loss: Loss, parameters: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return the gradient of a loss by the name of every parameter, in its shape, float64."""
    values = detach(parameters)
    point = concatenate_tensors(values).requires_grad_()
    with torch.enable_grad():
        gradient = _derivative(loss(split_vector(point, values)), point)
    return {name: tensor.double().cpu().numpy() for name, tensor in split_vector(gradient, values).items()}
