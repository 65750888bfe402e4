"""Test of correlation for two series that both have memory and drift, as all series of a training run do.

Each series is prewhitened: fitted by an autoregression of order 0 to 3 (chosen by AICc) around a trend, and by control
series now and past (docs/statistics.md). The residuals (innovations) of two unrelated series have independent signs, so
that flipping signs gives the null distribution of their rank correlation. It keeps autocorrelation, drift, a unit root and
noise that fades with the learning rate, which a permutation would not. All 2^n flips are counted by the Lugannani-Rice
formula, without random numbers.

The cosine in the trend is the shape of a decaying learning rate: without it five unrelated runs together have a
false-positive rate of up to 13% at a significance level of 5%. The rate is kept on real nulls at evenly spaced checkpoints
after the warm-up, and nowhere else (`make nulls`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from toposcale.statistics.coefficients import Floats, as_series, average_ranks, is_constant, orthogonal_to, standardised

MIN_FOR_TEST = 10
"""Fewer points leave no degrees of freedom besides the trend and the past: no test is made."""
WARMUPS = 2
"""The testable segment begins at so many times the warm-up."""
MAX_ORDER = 3

_NEGLIGIBLE = 1e-9  # a regressor or a residual below this share of its series is rounding noise, not information


class Segment(NamedTuple):
    """Checkpoints of a series that can be tested."""

    start: int
    stop: int  # exclusive
    reason: str  # why they cannot be tested, else empty


def testable_segment(steps: ArrayLike, warmup_steps: float | None) -> Segment:
    """Return the longest evenly spaced segment of checkpoints from twice the warm-up on; of equal ones the last.

    Parameters
    ----------
    steps : array_like of shape (T,)
        Training steps of the checkpoints, increasing.
    warmup_steps : float or None
        Steps of the learning-rate warm-up; None or NaN if unknown.

    Returns
    -------
    Segment
        Indices `start` and `stop` (exclusive), and the `reason` if it has fewer than 10 checkpoints, else "".

    Raises
    ------
    ValueError
        If the steps do not increase.

    Examples
    --------
    >>> from toposcale.statistics import testable_segment
    >>> testable_segment(range(0, 1300, 100), warmup_steps=100)
    Segment(start=2, stop=13, reason='')
    """
    times = np.asarray(steps, dtype=np.float64)
    if not (np.diff(times) > 0).all():
        raise ValueError("steps: not increasing")
    if warmup_steps is None or not np.isfinite(warmup_steps):
        return Segment(0, 0, "the warm-up is not known; give warmup_steps (0 without one) in the entry of the model")
    first = int(np.searchsorted(times, WARMUPS * warmup_steps))
    start = stop = begin = first
    for end in range(first, len(times)):
        uneven = end - begin >= 2 and times[end] - times[end - 1] != times[end - 1] - times[end - 2]
        begin = end - 1 if uneven else begin
        if end + 1 - begin >= stop - start:
            start, stop = begin, end + 1
    if stop - start < MIN_FOR_TEST:
        checkpoints = f"{stop - start} evenly spaced checkpoints from step {WARMUPS * warmup_steps:g} on"
        return Segment(start, stop, f"{checkpoints}; the test needs {MIN_FOR_TEST}")
    return Segment(start, stop, "")


@dataclass(frozen=True)
class Prewhitened:
    """Result of `prewhiten`."""

    values: Floats  # (S, m): residuals at m = T - start points; NaN where nothing is left of a series
    n_fitted: Floats  # (S,): coefficients that were fitted
    start: int


@dataclass(frozen=True)
class ResidualTest:
    """Result of `residual_test`, with what tests of several runs need."""

    correlation: Floats  # (S, M): Spearman's, of the residuals
    products: Floats  # (S, M, m): terms of the correlation
    degrees_of_freedom: Floats  # (S, M): points less coefficients
    start: int

    @property
    def statistic(self) -> Floats:
        """Statistic (S, M) for the sign flips of `products`: the correlation times sqrt(degrees_of_freedom / m).

        Both residuals are orthogonal to the same trend, so their correlation spreads as over that many points.
        """
        return self.correlation * np.sqrt(self.degrees_of_freedom / self.products.shape[2])

    @cached_property
    def p(self) -> Floats:
        """Two-sided p-values (S, M)."""
        return sign_flip_p_value(self.statistic, self.products)


def max_order(n: int) -> int:
    """Return the largest autoregressive order that n points can carry besides the trend."""
    return int(np.clip((n - 5) // 5, 1, MAX_ORDER))


def with_squares(norms: ArrayLike) -> Floats:
    """Return the norms (C, T) and their centred squares (2C, T): controls that also span a curve of the norm."""
    norm_rows = as_series(norms, "norms")
    return np.vstack([norm_rows, (norm_rows - norm_rows.mean(axis=1, keepdims=True)) ** 2])


def prewhiten(
    series: ArrayLike, controls: ArrayLike | None = None, *, half_cosine: bool = False, own_past: bool = True
) -> Prewhitened:
    """Return the residuals of series (S, T) on trend, controls (C, T) now and past, and their own past.

    The order (0 to `max_order`) has the least AICc. half_cosine: include the cosine; `residual_test` needs it, the run
    permutation does not. own_past: False for a series that leads the others, whose past is their future. ValueError: fewer
    than `MIN_FOR_TEST` points.
    """
    series = np.ascontiguousarray(as_series(series, "series"))
    n = series.shape[1]
    if n < MIN_FOR_TEST:
        raise ValueError(f"series: {n} points; at least {MIN_FOR_TEST} are needed")
    controls = np.empty((0, n)) if controls is None else np.ascontiguousarray(as_series(controls, "controls"))
    if controls.shape[1] != n:
        raise ValueError(f"controls: {controls.shape[1]} points, but the series have {n}")
    # Rows without variation are 0, and left out of the fit.
    scaled, regressors = (np.nan_to_num(standardised(rows)) * np.sqrt(n) for rows in (series, controls))
    start = max_order(n)
    present, *past = (scaled[:, start - lag : n - lag] for lag in range(start + 1))
    values, n_fitted = np.full(present.shape, np.nan), np.zeros(len(series))
    least = np.full(len(series), np.inf)
    for order, shared in enumerate(_shared_directions(regressors, half_cosine)):
        series_directions: list[Floats] = []
        n_directions = np.full(len(series), float(len(shared)))
        for column in past[: order if own_past else 0]:
            direction, is_kept = _direction(column, shared, series_directions)
            series_directions.append(direction)
            n_directions += is_kept
        residuals = _orthogonal(present, shared, series_directions)
        criterion = _aicc(residuals, n_directions)
        better = criterion < least
        least[better] = criterion[better]
        values[better], n_fitted[better] = residuals[better], n_directions[better]
    values[is_constant(series) | (np.abs(values).max(axis=1) <= _NEGLIGIBLE)] = np.nan
    return Prewhitened(values, n_fitted, start)


def residual_test(
    x: ArrayLike, y: ArrayLike, controls: ArrayLike | None = None, *, own_past_of_y: bool = True
) -> ResidualTest:
    """Test whether series move together beyond trend, own past and controls: the correlation of prewhitened residuals.

    Parameters
    ----------
    x : array_like of shape (S, T)
        S series at T evenly spaced checkpoints after the warm-up (`testable_segment`), T at least 10.
    y : array_like of shape (M, T)
        M series at the same checkpoints.
    controls : array_like of shape (C, T), optional
        Series that are held fixed, now and in the past.
    own_past_of_y : bool
        Hold the past of y fixed for y. False for a y that leads x by more than a checkpoint: its past is the future of x.

    Returns
    -------
    ResidualTest
        `correlation` (Spearman's, of the residuals) and two-sided `p` of shape (S, M); NaN where nothing is left of a
        series (constant, an exact trend, a copy of a control).

    Raises
    ------
    ValueError
        If there are fewer than 10 points, x, y and controls differ in T, or a value is not finite.

    References
    ----------
    .. [1] Lugannani and Rice, "Saddle point approximation for the distribution of the sum of independent random
       variables", 1980. It counts all sign flips of the residuals, which are the null distribution.

    Examples
    --------
    A series follows itself; a constant one has no residuals.

    >>> from toposcale.statistics import residual_test
    >>> noise = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0, 5.5, 3.5, 8.0, 7.0]
    >>> residual_test([noise, [1.0] * 12], noise).correlation.round(6)
    array([[ 1.],
           [nan]])
    """
    new_x = prewhiten(x, controls, half_cosine=True)
    new_y = prewhiten(y, controls, half_cosine=True, own_past=own_past_of_y)
    if (n_x := np.shape(x)[-1]) != (n_y := np.shape(y)[-1]):
        raise ValueError(f"y: {n_y} points, but x has {n_x}")
    ranks_x, ranks_y = (standardised(average_ranks(new.values)) for new in (new_x, new_y))
    products = ranks_x[:, None, :] * ranks_y[None, :, :]
    degrees_of_freedom = products.shape[2] - np.maximum(new_x.n_fitted[:, None], new_y.n_fitted[None, :])
    correlation = np.clip(products.sum(axis=2), -1.0, 1.0)
    return ResidualTest(correlation, products, degrees_of_freedom, new_x.start)


def sign_flip_p_value(statistic: ArrayLike, weights: ArrayLike) -> Floats:
    """Return P(|sum_t e_t w_t| >= |statistic|) for random signs e_t: statistic (...), weights (..., m) -> (...).

    Lugannani-Rice formula at the saddlepoint of sum_t log cosh(s w_t): within 20% of the full count down to p = 0.0005 with
    18 terms, 0.01 with 14; at least 2^(1 - m), the share of the two extreme flips.
    """
    observed, sizes = np.abs(statistic), np.abs(np.asarray(weights, dtype=np.float64))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scale = np.sqrt((sizes * sizes).sum(axis=-1))  # the standard deviation of the sum
        sizes = sizes / scale[..., None]
        # What cancels between models leaves 1e-18 and not 0, and no saddlepoint is found to that precision.
        sizes = np.where(sizes > _NEGLIGIBLE, sizes, 0.0)
        total, least = sizes.sum(axis=-1), np.where(sizes > 0, sizes, np.inf).min(axis=-1, initial=np.inf)
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
    """Return the root s >= 0 of sum_t w_t tanh(s w_t) = target by bisection; least: smallest weight above 0."""
    low, high = np.zeros_like(target), np.where(np.isfinite(least), 20.0 / least, 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = (weights * np.tanh(middle[..., None] * weights)).sum(axis=-1) > target
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return 0.5 * (low + high)


class SharedFlips:
    """Sum of the tests of runs, for `n_pairs` pairs of a feature and a metric.

    Runs that share batches and learning rates are dependent; shared flips keep that dependence.
    """

    def __init__(self, n_pairs: int, steps: ArrayLike) -> None:
        self._steps = np.unique(np.asarray(steps, dtype=np.float64))
        self._products = np.zeros((n_pairs, len(self._steps)))
        self._statistics = np.zeros(n_pairs)

    def add(self, test: ResidualTest, steps: ArrayLike, *, rows: Any = slice(None), weight: float = 1.0) -> None:
        """Add the test of a run at `rows` of the pairs; steps (T,): all its checkpoints."""
        columns = np.searchsorted(self._steps, np.asarray(steps, dtype=np.float64)[test.start :])
        products = weight * np.nan_to_num(test.products).reshape(-1, test.products.shape[-1])
        self._products[np.ix_(np.arange(len(self._products))[rows], columns)] += products
        self._statistics[rows] += weight * np.nan_to_num(test.statistic).ravel()

    def p_values(self) -> Floats:
        """Return the p-values (n_pairs,), NaN for a pair that no run could test."""
        p_values = sign_flip_p_value(self._statistics, self._products)
        return np.where((self._products != 0).any(axis=1), p_values, np.nan)


def _shared_directions(controls: Floats, half_cosine: bool) -> Iterator[Floats]:
    """Yield orthonormal directions (K, m) of trend and controls (C, n), with 0, 1, ... `max_order` points of the past."""
    n = controls.shape[1]
    start = max_order(n)
    directions = np.empty((0, n - start))
    for order in range(start + 1):
        columns = controls[:, start - order : n - order]
        if order == 0:
            columns = np.vstack([trend(n)[: 4 if half_cosine else 3, start:], columns])
        for column in columns:
            direction, is_kept = _direction(column[None], directions, [])
            directions = np.concatenate([directions, direction[is_kept]])
        yield directions


def _direction(column: Floats, shared: Floats, series_directions: Sequence[Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the direction (S, m) that a regressor adds to the others, 0 where they span it, and a mask of the others."""
    # By hand rather than by LAPACK: a regressor that the earlier ones already span is left out by a rule, and the sums do
    # not depend on the number of threads. Twice, or nearly collinear columns lose their orthogonality to rounding.
    residuals = _orthogonal(_orthogonal(column, shared, series_directions), shared, series_directions)
    row_length, residual_length = (np.sqrt((rows * rows).sum(axis=1, keepdims=True)) for rows in (column, residuals))
    is_kept = residual_length > _NEGLIGIBLE * row_length
    return np.where(is_kept, residuals / np.where(is_kept, residual_length, 1.0), 0.0), is_kept[:, 0]


def _orthogonal(rows: Floats, shared: Floats, series_directions: Sequence[Floats]) -> Floats:
    """Return rows (S, m) less their projections on directions shared by all (K, m) and of each series, (S, m) each."""
    residuals = rows - np.einsum("sk,km->sm", np.einsum("sm,km->sk", rows, shared), shared)
    for direction in series_directions:
        residuals = residuals - direction * (direction * residuals).sum(axis=1, keepdims=True)
    return residuals


def _aicc(residuals: Floats, n_fitted: Floats) -> Floats:
    """Return Akaike's information criterion of each series, corrected for small samples."""
    m, k = residuals.shape[1], n_fitted
    squares = np.maximum((residuals**2).sum(axis=1), m * _NEGLIGIBLE**2)
    spare = m - k - 1
    penalty = np.where(spare > 0, 2 * k + 2 * k * (k + 1) / np.maximum(spare, 1), np.inf)
    return m * np.log(squares / m) + penalty


def trend(n: int) -> Floats:
    """Return the trend (4, n) around which series are fitted: constant, line, logarithm, half a cosine."""
    time = np.arange(n, dtype=np.float64)
    return np.stack([np.ones(n), time - time.mean(), np.log1p(time), np.cos(np.pi * time / (n - 1))])


_FLOOR = 1e-12  # of the spectrum, relative to its peak


def phase_randomised(series: ArrayLike, count: int, rng: np.random.Generator) -> Floats:
    """Draw `count` surrogates (count, T) of a series (T,): its trend, and deviations of the same spectrum in random phases.

    The trend is that of `prewhiten`. The amplitudes are drawn around the smoothed spectrum of the deviations: with those of
    the sample itself (Theiler et al. 1992) two spectra that coincide by chance are kept, and found again.
    """
    values = as_series(series, "series")
    n = values.shape[1]
    deviations = orthogonal_to(values, trend(n))[0]
    # Without the line from end to end: a jump where the ends meet would count as fast changes.
    deviations = deviations - np.linspace(deviations[0, 0], deviations[0, -1], n)
    power = np.abs(np.fft.rfft(deviations)[0, 1:]) ** 2
    if not power.any():
        return np.repeat(values, count, axis=0)
    # In logarithms, so that the steep spectrum of a random walk keeps its slope.
    reach = int(np.sqrt(len(power)) / 2)
    padded = np.pad(np.log(np.maximum(power, power.max() * _FLOOR)), reach, mode="reflect")
    smooth = np.exp(np.convolve(padded, np.full(2 * reach + 1, 1 / (2 * reach + 1)), mode="valid"))
    drawn = rng.standard_normal((2, count, len(power)))
    coefficients = np.zeros((count, len(power) + 1), dtype=np.complex128)
    coefficients[:, 1:] = np.sqrt(smooth / 2 * np.exp(np.euler_gamma)) * (drawn[0] + 1j * drawn[1])
    return values - deviations + np.fft.irfft(coefficients, n)
