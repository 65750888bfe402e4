"""L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, arXiv 2203.15556, approach 3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import huber

from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast

HUBER_DELTA = 1e-3
GRADIENT = 1e-2
STARTS = 8
"""Grid points, the best of the published grid of 4,500, from which BFGS starts."""

_NAMES = ("E", "A", "B", "alpha", "beta")
_GRID = np.array(list(product(np.linspace(-1, 1, 5), *[np.linspace(0, 25, 6)] * 2, *[np.linspace(0, 2, 5)] * 2)))


@dataclass(frozen=True)
class ChinchillaFit:
    """Scaling law L(N, D) = E + A / N^alpha + B / D^beta that was fitted to points.

    centre (2,): means of log N and log D. points (n, 2), log_losses (n,): what was read, centred. solution (5,): e, a, b,
    alpha and beta for centred points. draws (n_draws, 5): such solutions for resamples.
    """

    centre: np.ndarray
    points: np.ndarray
    log_losses: np.ndarray
    solution: np.ndarray
    draws: np.ndarray

    @property
    def constants(self) -> dict[str, float]:
        """E, A, B, alpha and beta in the units of the given N and D, losses in nats per token."""
        return dict(zip(_NAMES, self._published(self.solution[None, :])[0].tolist(), strict=True))

    def __call__(self, n_parameters: np.ndarray | float, n_tokens: np.ndarray | float) -> np.ndarray:
        """Return the loss at N parameters and D tokens, broadcast against each other, nats per token."""
        sizes, tokens = np.broadcast_arrays(n_parameters, n_tokens)
        points = np.column_stack([np.log(sizes.ravel()), np.log(tokens.ravel())]) - self.centre
        return np.exp(_log_law(self.solution[None, :], points)[0]).reshape(sizes.shape)

    def bootstrap(self, rng: np.random.Generator, draws: int = 100) -> Self:
        """Return the same fit with solutions for resamples of the points, for `intervals` and `interval`."""
        n_points = len(self.log_losses)
        weights = rng.multinomial(n_points, np.full(n_points, 1 / n_points), size=draws).astype(np.float64)
        solutions = [_minimise(self.points, self.log_losses, self.solution, row)[0] for row in weights]
        return replace(self, draws=np.array(solutions))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the 95% percentile interval of each constant over the bootstrap draws, by its name."""
        low, high = np.quantile(self._published(self.draws), (0.025, 0.975), axis=0)
        return {name: (float(low[i]), float(high[i])) for i, name in enumerate(_NAMES)}

    def interval(self, n_parameters: float, n_tokens: float) -> tuple[float, float]:
        """Return the 95% interval of one observed loss: bootstrap draws times the residual factors of the fit."""
        point = np.log([[n_parameters, n_tokens]]) - self.centre
        residuals = self.log_losses - _log_law(self.solution[None, :], self.points)[0]
        values = _log_law(self.draws, point)[:, 0]
        low, high = np.exp(np.quantile((values[:, None] + residuals[None, :]).ravel(), (0.025, 0.975)))
        value = float(self(n_parameters, n_tokens))
        return min(float(low), value), max(float(high), value)

    def _published(self, solutions: np.ndarray) -> np.ndarray:
        """Return E, A, B, alpha and beta (draws, 5) in the units of the given N and D."""
        published = solutions.copy()
        published[:, 1:3] += solutions[:, 3:] * self.centre
        published[:, :3] = np.exp(published[:, :3])
        return published


def fit_chinchilla(n_parameters: np.ndarray, n_tokens: np.ndarray, losses: np.ndarray) -> ChinchillaFit:
    """Fit the scaling law to the losses of runs: parameters, training tokens and nats per token, (n_points,) each.

    The objective is the SUM of the Huber loss (delta 1e-3) of log L against log-sum-exp(e, a - alpha log N, b -
    beta log D). Its mean would be so small that default tolerances stop at once; here it is divided by delta^2, and
    N and D by their geometric means, which moves neither the optimum nor the published parameters. `ValueError`:
    the arrays are malformed, or have fewer than 6 points, 2 sizes or 2 numbers of tokens.
    """
    sizes, tokens, losses = (np.asarray(x, dtype=np.float64) for x in (n_parameters, n_tokens, losses))
    for name, values in (("n_parameters", sizes), ("n_tokens", tokens), ("losses", losses)):
        if values.ndim != 1 or values.shape != sizes.shape:
            raise ValueError(f"{name}: three arrays of one length are needed")
        if not np.all(np.isfinite(values)) or np.any(values <= 0):
            raise ValueError(f"{name}: finite and above 0")
    if len(sizes) < 6 or len(np.unique(sizes)) < 2 or len(np.unique(tokens)) < 2:
        raise ValueError("n_parameters: at least 6 points, of at least 2 sizes and 2 token counts")
    centre = np.array([np.mean(np.log(sizes)), np.mean(np.log(tokens))])
    points, log_losses = np.column_stack([np.log(sizes), np.log(tokens)]) - centre, np.log(losses)
    starts = _starts(centre, points, log_losses)
    fits = [_minimise(points, log_losses, start, np.ones(len(losses))) for start in starts]
    solution = min(fits, key=lambda fit: fit[1])[0]
    return ChinchillaFit(centre, points, log_losses, solution, solution[None, :])


class Chinchilla:
    """Scaling law L(N, D) = E + A / N^alpha + B / D^beta of a family, for N parameters and D tokens.

    It reads the curves of all runs as losses after D tokens, and knows no schedule.

    Parameters
    ----------
    draws : int, default=100
        Resamples of the points, for intervals.
    seed : int, default=0
        Seed of the resamples.

    Attributes
    ----------
    law_ : ChinchillaFit
        Fitted law of arrays; its `constants` are E, A, B, alpha and beta.

    References
    ----------
    Hoffmann et al. 2022, arXiv 2203.15556, approach 3.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import Chinchilla, LearningRateSchedule, RunFacts, TrainingRun
    >>> schedule, steps = LearningRateSchedule(4000, np.full(4001, 1e-3)), np.arange(400, 4001, 400)
    >>> run, *others = (
    ...     TrainingRun(RunFacts(f"{n}M", n * 10**6, 5e5), schedule, steps=steps, losses=losses)
    ...     for n in (25, 50, 100)
    ...     for losses in [1.7 + 400 * (n * 1e6) ** -0.34 + 410 * (steps * 5e5) ** -0.28]
    ... )
    >>> law = Chinchilla(draws=10).fit(run, others)
    >>> round(law.law_.constants["alpha"], 2), round(law.law_.constants["beta"], 2)
    (0.34, 0.28)
    >>> [end] = law.predict([run.target()])
    >>> round(end.value, 3)
    3.941
    """

    def __init__(self, draws: int = 100, seed: int = 0) -> None:
        self.draws, self.seed = draws, seed
        self._fits: dict[bytes, ChinchillaFit] = {}

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the law to the curves of a run and of its family; NoForecast: fewer than three sizes have one."""
        points = points_of([*others, run])
        if (key := points.tobytes()) not in self._fits:  # one fit serves all runs of a family
            self._fits[key] = fit_chinchilla(*points).bootstrap(np.random.default_rng(self.seed), self.draws)
        self.law_ = self._fits[key]
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses, in nats per token, with their 95% intervals."""
        points = [(float(target.n_parameters), float(target.cost.tokens(target.step))) for target in targets]
        return [Prediction(float(self.law_(*point)), *self.law_.interval(*point)) for point in points]


def points_of(family: Sequence[TrainingRun]) -> np.ndarray:
    """Return sizes, tokens and losses (3, points) of the curves of a family; NoForecast: fewer than three sizes.

    Of two runs of one name the last one counts.
    """
    by_name = {member.model: member for member in family}
    triples = [
        np.stack([np.full(len(steps), member.n_parameters), member.cost.tokens(steps), losses])
        for _, member in sorted(by_name.items())
        for steps, losses in [member.loss_curve]
        if len(steps) >= MINIMUM_POINTS
    ]
    points = np.concatenate(triples, axis=1) if triples else np.empty((3, 0))
    points = points[:, np.all(np.isfinite(points) & (points > 0), axis=0)]
    if len(np.unique(points[0])) < 3:
        raise NoForecast("fewer than 3 sizes with a loss curve")
    return points


def _starts(centre: np.ndarray, points: np.ndarray, log_losses: np.ndarray) -> np.ndarray:
    """Return the best points of the published grid, in centred units."""
    centred = _GRID.copy()
    centred[:, 1:3] -= _GRID[:, 3:] * centre
    # many grid points share a far-off value; the order of the grid decides among equals
    residuals = _log_law(centred, points) - log_losses
    order = np.argsort(huber(1, residuals / HUBER_DELTA).sum(axis=1), kind="stable")
    return centred[order[:STARTS]]


def _minimise(
    points: np.ndarray, log_losses: np.ndarray, start: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the solution (5,) of weighted points (n,), and its value of the objective."""

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        logs, gradient = _log_law_and_gradient(parameters, points)
        residuals = logs - log_losses
        slope = np.clip(residuals / HUBER_DELTA, -1, 1) / HUBER_DELTA
        # numpy sums, not BLAS, whose order of summation depends on the number of threads
        value = float(np.sum(weights * huber(1, residuals / HUBER_DELTA)))
        return value, np.sum((weights * slope) * gradient, axis=1)

    # BFGS is L-BFGS with its whole memory, which five parameters can afford. scipy's L-BFGS-B calls threaded LAPACK in
    # every step: up to 40 times the CPU time on a busy machine. Away from the optimum the gradient is of the order of
    # 1e5; stopping at GRADIENT moves no loss by 1e-8.
    result = minimize(objective, start, jac=True, method="BFGS", options={"gtol": GRADIENT, "maxiter": 2000})
    return result.x, float(result.fun)


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
