"""p-values for a pair of series that both have memory and both drift, as everything does in training.

The null hypothesis: given its own past, a trend a + b t + c log(1 + t) + d cos(pi t / n) in the checkpoint number t, and
(if given) the control series now and in the past, the innovation of one series (its value less the predicted one) has a
sign that says nothing about the innovation of the other series. "Both fall during training" is therefore no evidence
against it; "whenever one stands above its course so does the other" is. The cosine is the course of a decaying learning
rate, which unrelated runs of one schedule share: without it five such runs together pass in up to 13% at a level of 5%.

Surrogates: each series is modelled as an autoregression of order 0 to 3 (chosen by AICc) around that trend; a surrogate
is the same model driven by the same prewhitened residuals with their signs flipped at random, so it keeps the
autocorrelation, the drift, a unit root, and a noise that fades with the learning rate (which a permutation would not
keep). The statistic is the Spearman correlation of the prewhitened residuals. All 2^n surrogates are counted at once by
the Lugannani-Rice formula: no random numbers, and p-values far below one in a thousand for the correction of many
tests.

Chosen by measurement among seven methods (`python -m studies.nulls.surrogates`; docs/statistics.md has the table). The
price: a relation that shows only in the slow common course is not found, because from one run it cannot be told from
coincidence; that question needs more models, not more checkpoints.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from toposcale.statistics.coefficients import Floats, as_series, average_ranks, is_constant
from toposcale.statistics.testable import MIN_FOR_TEST

MAX_ORDER = 3

_BLOCK_BYTES = 16 * 2**20
_NEGLIGIBLE = 1e-9  # a regressor or a residual below this share of its series is rounding noise, not information


@dataclass(frozen=True)
class Prewhitened:
    """Each of S series at each of m = T - start points, less what its past, its trend and the controls predicted.

    values (S, m), a row of NaN where nothing is left; n_fitted (S,) coefficients spent; start: first point
    with a value.
    """

    values: Floats
    n_fitted: Floats
    start: int


@dataclass(frozen=True)
class ResidualTest:
    """Spearman correlations of prewhitened residuals (S, M), and what their p-values, and several runs together, need.

    products (S, M, m): the terms that add up to the correlation, one per point; degrees_of_freedom (S, M): points less
    coefficients spent; start: first point with an innovation.
    """

    correlation: Floats
    products: Floats
    degrees_of_freedom: Floats
    start: int

    @property
    def statistic(self) -> Floats:
        """What is compared with the sign flips of `products`: the correlation times sqrt(degrees_of_freedom / m).

        Both residuals are orthogonal to the same trend, so their correlation spreads as over `degrees_of_freedom` points
        and not over the m that the flips know of.
        """
        return self.correlation * np.sqrt(self.degrees_of_freedom / self.products.shape[2])

    @property
    def p(self) -> Floats:
        """p-values (S, M), computed again at each call."""
        return sign_flip_p_value(self.statistic, self.products)


def max_order(n: int) -> int:
    """Largest autoregressive order that n points can carry beside the trend."""
    return int(np.clip((n - 5) // 5, 1, MAX_ORDER))


def with_squares(norms: ArrayLike) -> Floats:
    """Norms (C, T) and, below them, their squares: the controls "given the norm", so that a curve of it is no discovery."""
    norm_rows = as_series(norms, "norms")
    return np.vstack([norm_rows, (norm_rows - norm_rows.mean(axis=1, keepdims=True)) ** 2])


def lagged(controls: ArrayLike) -> Floats:
    """The trend without a cosine, and controls (C, T) now and at the lags that `prewhiten` may use, at the points with an
    innovation."""
    control_rows = as_series(controls, "controls")
    n, start = control_rows.shape[1], max_order(control_rows.shape[1])
    return np.vstack([_trend(n)[:3, start:], *(control_rows[:, start - lag : n - lag] for lag in range(start + 1))])


def prewhiten(series: ArrayLike, controls: ArrayLike | None = None, *, half_cosine: bool = False) -> Prewhitened:
    """Residuals of each series (S, T) on trend, controls (C, T) now and past, and its own past.

    half_cosine: whether the trend has half a period of a cosine, too. `residual_test` needs it; the run permutation does
    not, since what runs share cancels there. The order (0 to `max_order`) is chosen per series by AICc among fits to the
    same points. Raises ValueError for fewer than `MIN_FOR_TEST` points.
    """
    series = as_series(series, "series")
    n = series.shape[1]
    if n < MIN_FOR_TEST:
        raise ValueError(f"series: {n} points; at least {MIN_FOR_TEST} are needed")
    regressors = [_standard(row[None]) for row in as_series(controls, "controls")] if controls is not None else []
    start, scaled = max_order(n), _standard(series)
    fit = _GrowingFit(scaled[:, start:])
    for column in _trend(n)[: 4 if half_cosine else 3]:
        fit.add(column[None, start:])
    values, n_fitted = np.full((len(series), n - start), np.nan), np.zeros(len(series))
    least = np.full(len(series), np.inf)
    for order in range(start + 1):
        if order > 0:
            fit.add(scaled[:, start - order : n - order])
        for control in regressors:
            fit.add(control[:, start - order : n - order])
        criterion = fit.aicc()
        better = criterion < least
        least[better] = criterion[better]
        values[better], n_fitted[better] = fit.residuals[better], fit.n_fitted[better]
    values[is_constant(series) | (np.abs(values).max(axis=1) <= _NEGLIGIBLE)] = np.nan
    return Prewhitened(values, n_fitted, start)


def residual_test(x: ArrayLike, y: ArrayLike, controls: ArrayLike | None = None) -> ResidualTest:
    """Do x and y (S, T), (M, T) move together beyond trend, past and controls (C, T)? Null: module docstring.

    NaN where no residual variance is left of a series (constant, an exact trend, a copy of a control).
    """
    new_x, new_y = (prewhiten(series, controls, half_cosine=True) for series in (x, y))
    ranks_x, ranks_y = _unit_ranks(new_x.values), _unit_ranks(new_y.values)
    products = ranks_x[:, None, :] * ranks_y[None, :, :]
    degrees_of_freedom = products.shape[2] - np.maximum(new_x.n_fitted[:, None], new_y.n_fitted[None, :])
    correlation = np.clip(products.sum(axis=2), -1.0, 1.0)
    return ResidualTest(correlation, products, degrees_of_freedom, new_x.start)


def sign_flip_p_value(statistic: ArrayLike, weights: ArrayLike) -> Floats:
    """P(|sum_t e_t w_t| >= |statistic|) for independent random signs e_t, by the Lugannani-Rice formula.

    statistic (...), weights (..., m) -> (...). Saddlepoint of K(s) = sum_t log cosh(s w_t). Within 20% of the
    full count down to p = 0.0005 with 18 terms, down to 0.01 with 14. Never below 2^(1 - m), the share of the
    two extreme surrogates.
    """
    sizes = np.abs(np.asarray(weights, dtype=np.float64))
    *shape, m = sizes.shape
    rows, observed = sizes.reshape(-1, m), np.broadcast_to(np.abs(statistic), shape).reshape(-1)
    block = max(1, _BLOCK_BYTES // (8 * max(1, m)))
    parts = [_flip_p_values(observed[i : i + block], rows[i : i + block]) for i in range(0, len(rows), block)]
    return np.concatenate([*parts, np.empty(0)]).reshape(shape)


def _flip_p_values(observed: Floats, sizes: Floats) -> Floats:
    """`sign_flip_p_value` of |statistics| (N,) and |weights| (N, m)."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scale = np.sqrt((sizes * sizes).sum(axis=-1))  # the standard deviation of the sum
        sizes = sizes / scale[..., None]
        # What cancels between models leaves 1e-18 and not 0, and no saddlepoint is found to that precision.
        sizes = np.where(sizes > _NEGLIGIBLE, sizes, 0.0)
        total, least = sizes.sum(axis=-1), np.where(sizes > 0, sizes, np.inf).min(axis=-1)
        target = observed / scale
        # Beyond the second largest sum only the one with all signs alike is left, twice; there the saddlepoint fails.
        extreme = target > total - 2.0 * least + 1e-9
        target = np.where(extreme, 0.0, target)
        saddle = _saddlepoint(target, sizes, least)
        arguments = saddle[..., None] * sizes
        cumulant = (np.logaddexp(arguments, -arguments) - np.log(2.0)).sum(axis=-1)
        curvature = (sizes * sizes / np.cosh(np.minimum(arguments, 300.0)) ** 2).sum(axis=-1)
        w = np.sqrt(np.maximum(2.0 * (saddle * target - cumulant), 0.0))
        u = saddle * np.sqrt(curvature)
        upper = ndtr(-w) + np.exp(-0.5 * w * w) / np.sqrt(2.0 * np.pi) * (1.0 / u - 1.0 / w)
        # At a statistic of zero both fractions are infinite; the normal law is exact enough there.
        p_value = np.where(target > 1e-3, 2.0 * upper, 2.0 * ndtr(-target))
        smallest = 2.0 ** (1.0 - (sizes > 0).sum(axis=-1))
        p_value = np.where(extreme, smallest, np.clip(p_value, smallest, 1.0))
        return np.where(np.isfinite(observed / scale), p_value, np.nan)


def _saddlepoint(target: Floats, weights: Floats, least: Floats) -> Floats:
    """Root s >= 0 of sum_t w_t tanh(s w_t) = target, by bisection (monotone, so it is safe); least: weight above 0."""
    low, high = np.zeros_like(target), np.where(np.isfinite(least), 20.0 / least, 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = (weights * np.tanh(middle[..., None] * weights)).sum(axis=-1) > target
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return 0.5 * (low + high)


class _GrowingFit:
    """Least squares of many series at once, one regressor more at a time (modified Gram-Schmidt)."""

    # By hand rather than by LAPACK: the fits of order 0, 1, 2, ... come as by-products, a regressor that the earlier ones
    # already span is left out by a rule, and the sums do not depend on the number of threads.
    def __init__(self, target: Floats) -> None:
        self.residuals = target.copy()
        self.n_fitted = np.zeros(len(target))
        self._basis: list[Floats] = []

    def add(self, column: Floats) -> None:
        """Add one regressor: (1, m) shared by all series, or (S, m)."""
        size = np.sqrt((column * column).sum(axis=1, keepdims=True))
        rest = np.broadcast_to(column, self.residuals.shape)
        for _ in range(2):  # twice, or nearly collinear columns lose their orthogonality to rounding
            for direction in self._basis:
                rest = rest - direction * (direction * rest).sum(axis=1, keepdims=True)
        length = np.sqrt((rest * rest).sum(axis=1, keepdims=True))
        kept = length > _NEGLIGIBLE * size
        direction = np.where(kept, rest / np.where(kept, length, 1.0), 0.0)
        self._basis.append(direction)
        self.n_fitted = self.n_fitted + kept[:, 0]
        self.residuals = self.residuals - direction * (direction * self.residuals).sum(axis=1, keepdims=True)

    def aicc(self) -> Floats:
        """Akaike's criterion of each series, corrected for few points."""
        m, k = self.residuals.shape[1], self.n_fitted
        squares = np.maximum((self.residuals**2).sum(axis=1), m * _NEGLIGIBLE**2)
        spare = m - k - 1
        penalty = np.where(spare > 0, 2 * k + 2 * k * (k + 1) / np.maximum(spare, 1), np.inf)
        return m * np.log(squares / m) + penalty


def _trend(n: int) -> Floats:
    time = np.arange(n, dtype=np.float64)
    return np.stack([np.ones(n), time - time.mean(), np.log1p(time), np.cos(np.pi * time / (n - 1))])


def _standard(series: Floats) -> Floats:
    """Rows of mean 0 and standard deviation 1; a constant row becomes 0."""
    centred = series - series.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    constant = is_constant(series)[:, None]
    return np.where(constant, 0.0, centred / np.where(constant | (spread == 0), 1.0, spread))


def _unit_ranks(values: Floats) -> Floats:
    """Centred ranks of length 1 per row; a row with NaN stays NaN."""
    ranks = average_ranks(values) - (values.shape[1] + 1) / 2
    with np.errstate(invalid="ignore"):
        return ranks / np.sqrt((ranks * ranks).sum(axis=1, keepdims=True))
