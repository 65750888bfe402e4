"""L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, arXiv 2203.15556, approach 3)."""

from itertools import product
from typing import Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import huber

HUBER_DELTA = 1e-3
GRADIENT = 1e-2
STARTS = 8
"""Grid points, the best of the published grid of 4,500, from which BFGS starts."""

_NAMES = ("E", "A", "B", "alpha", "beta")
_GRID = np.array(list(product(np.linspace(-1, 1, 5), *[np.linspace(0, 25, 6)] * 2, *[np.linspace(0, 2, 5)] * 2)))


class Chinchilla:
    """Scaling law L(N, D) = E + A / N^alpha + B / D^beta in nats per token, for N parameters and D tokens.

    The objective is the SUM of the Huber loss (delta 1e-3) of log L against log-sum-exp(e, a - alpha log N, b - beta log
    D). Its mean would be so small that default tolerances stop at once; here it is divided by delta^2, and N and D by their
    geometric means, which moves neither the optimum nor the published parameters.

    Attributes
    ----------
    E, A, B, alpha, beta : float
        Constants after `fit`, in the units of the given N and D.

    References
    ----------
    Hoffmann et al. 2022, arXiv 2203.15556, approach 3.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import Chinchilla
    >>> sizes, tokens = np.repeat([25e6, 50e6, 100e6], 3), np.tile([1e9, 2e9, 4e9], 3)
    >>> law = Chinchilla().fit(sizes, tokens, 1.7 + 400 * sizes**-0.34 + 410 * tokens**-0.28)
    >>> round(law.alpha, 2), round(law.beta, 2)
    (0.34, 0.28)
    >>> float(law.predict(1e9, 20e9).round(3))
    2.584
    """

    def fit(self, n_parameters: np.ndarray, n_tokens: np.ndarray, losses: np.ndarray) -> Self:
        """Fit the law to the losses of runs.

        Parameters
        ----------
        n_parameters, n_tokens, losses : ndarray of shape (n_points,)
            Positive finite numbers: parameters, training tokens, and losses in nats per token.

        Returns
        -------
        Chinchilla
            Itself.

        Raises
        ------
        ValueError
            If the arrays are malformed, or have fewer than 6 points, 2 sizes or 2 numbers of tokens.
        """
        sizes, tokens, losses = (np.asarray(x, dtype=np.float64) for x in (n_parameters, n_tokens, losses))
        for name, values in (("n_parameters", sizes), ("n_tokens", tokens), ("losses", losses)):
            if values.ndim != 1 or values.shape != sizes.shape:
                raise ValueError(f"{name}: three arrays of one length are needed")
            if not np.all(np.isfinite(values)) or np.any(values <= 0):
                raise ValueError(f"{name}: finite and above 0")
        if len(sizes) < 6 or len(np.unique(sizes)) < 2 or len(np.unique(tokens)) < 2:
            raise ValueError("n_parameters: at least 6 points, of at least 2 sizes and 2 token counts")
        self._centre = np.array([np.mean(np.log(sizes)), np.mean(np.log(tokens))])
        self._points = np.column_stack([np.log(sizes), np.log(tokens)]) - self._centre
        self._log_losses = np.log(losses)
        fits = [self._minimise(start, np.ones(len(losses))) for start in self._starts()]
        self._solution = min(fits, key=lambda fit: fit[1])[0]
        self._draws = self._solution[None, :]
        self.E, self.A, self.B, self.alpha, self.beta = self._published(self._solution[None, :])[0].tolist()
        return self

    def predict(self, n_parameters: np.ndarray | float, n_tokens: np.ndarray | float) -> np.ndarray:
        """Return the loss at N parameters and D tokens.

        Parameters
        ----------
        n_parameters, n_tokens : float or ndarray
            Parameters and training tokens, broadcast against each other.

        Returns
        -------
        ndarray
            Losses in nats per token, of the broadcast shape.
        """
        sizes, tokens = np.broadcast_arrays(n_parameters, n_tokens)
        points = np.column_stack([np.log(sizes.ravel()), np.log(tokens.ravel())]) - self._centre
        return np.exp(_log_law(self._solution[None, :], points)[0]).reshape(sizes.shape)

    def bootstrap(self, rng: np.random.Generator, draws: int = 100) -> Self:
        """Refit to resamples of the points, for `intervals` and `interval`.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the resamples.
        draws : int, default=100
            Number of resamples.

        Returns
        -------
        Chinchilla
            Itself.
        """
        points = len(self._log_losses)
        weights = rng.multinomial(points, np.full(points, 1 / points), size=draws).astype(np.float64)
        self._draws = np.array([self._minimise(self._solution, row)[0] for row in weights])
        return self

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the 95% percentile interval of each constant over the bootstrap draws.

        Returns
        -------
        dict of str to tuple of float
            Lower and upper end by the name of the constant.
        """
        low, high = np.quantile(self._published(self._draws), (0.025, 0.975), axis=0)
        return {name: (float(low[i]), float(high[i])) for i, name in enumerate(_NAMES)}

    def interval(self, n_parameters: float, n_tokens: float) -> tuple[float, float]:
        """Return the 95% interval of one observed loss: bootstrap draws times the residual factors of the fit.

        Parameters
        ----------
        n_parameters, n_tokens : float
            Parameters and training tokens.

        Returns
        -------
        tuple of float
            Lower and upper end in nats per token.
        """
        point = np.log([[n_parameters, n_tokens]]) - self._centre
        residuals = self._log_losses - _log_law(self._solution[None, :], self._points)[0]
        values = _log_law(self._draws, point)[:, 0]
        low, high = np.exp(np.quantile((values[:, None] + residuals[None, :]).ravel(), (0.025, 0.975)))
        value = float(self.predict(n_parameters, n_tokens))
        return min(float(low), value), max(float(high), value)

    def _starts(self) -> np.ndarray:
        """Return the best points of the published grid, in centred units."""
        centred = _GRID.copy()
        centred[:, 1:3] -= _GRID[:, 3:] * self._centre
        # many grid points share a far-off value; the order of the grid decides among equals
        residuals = _log_law(centred, self._points) - self._log_losses
        order = np.argsort(huber(1, residuals / HUBER_DELTA).sum(axis=1), kind="stable")
        return centred[order[:STARTS]]

    def _minimise(self, start: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            logs, gradient = _log_law_and_gradient(parameters, self._points)
            residuals = logs - self._log_losses
            slope = np.clip(residuals / HUBER_DELTA, -1, 1) / HUBER_DELTA
            # numpy sums, not BLAS, whose order of summation depends on the number of threads
            value = float(np.sum(weights * huber(1, residuals / HUBER_DELTA)))
            return value, np.sum((weights * slope) * gradient, axis=1)

        # BFGS is L-BFGS with its whole memory, which five parameters can afford. scipy's L-BFGS-B calls threaded LAPACK in
        # every step: up to 40 times the CPU time on a busy machine. Away from the optimum the gradient is of the order of
        # 1e5; stopping at GRADIENT moves no loss by 1e-8.
        result = minimize(objective, start, jac=True, method="BFGS", options={"gtol": GRADIENT, "maxiter": 2000})
        return result.x, float(result.fun)

    def _published(self, solutions: np.ndarray) -> np.ndarray:
        """Return E, A, B, alpha and beta (draws, 5) in the units of the given N and D."""
        published = solutions.copy()
        published[:, 1:3] += solutions[:, 3:] * self._centre
        published[:, :3] = np.exp(published[:, :3])
        return published


def published_surface(n_parameters: float, n_tokens: float) -> float:
    """Return the loss of Hoffmann et al. 2022 at N parameters and D tokens, nats per token."""
    return _published_floor(n_parameters) + float(_B / n_tokens**_BETA)


def published_tokens(n_parameters: float, loss: float) -> float:
    """Return the tokens after which that surface has a loss; infinite where it never has."""
    above = loss - _published_floor(n_parameters)
    return float((_B / above) ** (1 / _BETA)) if above > 0 else np.inf


_B, _BETA = 410.7, 0.28
"""Constants of the published surface in D tokens, nats per token."""


def _published_floor(n_parameters: float) -> float:
    """Return the loss of that surface after infinitely many tokens."""
    return float(1.69 + 406.4 / n_parameters**0.34)


def _log_law(parameters: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return log L (draws, points) of parameters (draws, 5) at log sizes and log tokens (points, 2)."""
    e, a, b, alpha, beta = (parameters[:, [i]] for i in range(5))
    return np.logaddexp(e, np.logaddexp(a - alpha * points[None, :, 0], b - beta * points[None, :, 1]))


def _log_law_and_gradient(parameters: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log L (points,) and its gradient (5, points)."""
    e, a, b, alpha, beta = parameters
    gradient = np.empty((5, len(points)))
    gradient[0], gradient[1], gradient[2] = e, a - alpha * points[:, 0], b - beta * points[:, 1]
    largest = gradient[:3].max(axis=0)
    shares = np.exp(gradient[:3] - largest)
    total = shares.sum(axis=0)
    gradient[:3] = shares / total
    gradient[3:] = -gradient[1:3] * points.T
    return largest + np.log(total), gradient
