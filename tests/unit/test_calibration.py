"""Conformal intervals hold what they say, whatever the forecasts are."""

import numpy as np
import pytest

from toposcale.analysis.forecasts import MIN_RUNS, calibrate, calibrate_on_others, nonconformity
from toposcale.forecasting.laws.prediction import Prediction


def interval(value, half):
    return Prediction(value, value * np.exp(-half), value * np.exp(half))


def test_a_score_is_the_miss_in_units_of_the_interval():
    assert nonconformity(interval(3.0, 0.1), 3.0 * np.exp(0.05)) == pytest.approx(0.5)
    assert nonconformity(interval(3.0, 0.1), 3.0 * np.exp(-0.2)) == pytest.approx(2.0)
    assert np.isnan(nonconformity(Prediction(np.nan, np.nan, np.nan, "none"), 3.0))
    assert np.isnan(nonconformity(Prediction(3.0, 3.0, 3.0), 3.0))


def test_the_factor_is_the_order_statistic_of_the_scores():
    """Of 39 scores the ceil(0.95 * 40) = 38th; of 9 the largest, with a coverage of 9 / 10; of 4 nothing is known."""
    assert calibrate(np.arange(1, 40)) == (38.0, 0.95)
    assert calibrate(np.arange(1, 10)) == (9.0, 0.9)
    few = calibrate([1.0] * (MIN_RUNS - 1))
    assert few.factor == 1.0
    assert np.isnan(few.coverage)
    rescaled, coverage = calibrate([2.0] * 9)(interval(3.0, 0.1))
    assert coverage == 0.9
    assert (rescaled.low, rescaled.high) == pytest.approx((3 * np.exp(-0.2), 3 * np.exp(0.2)))


@pytest.mark.parametrize("runs", [9, 19, 40])
def test_calibrate_on_others_widens_narrow_intervals(runs):
    """Errors of heavy tails under intervals ten times too narrow, each run judged by the others."""
    rng = np.random.default_rng(3)
    held, stated = [], []
    for _ in range(300):
        truth = 3.0 * np.exp(0.1 * rng.standard_t(3, size=runs + 1))
        predictions = [interval(3.0, 0.01)] * (runs + 1)
        calibration = calibrate([nonconformity(p, t) for p, t in zip(predictions[1:], truth[1:], strict=True)])
        own, coverage = calibration(predictions[0])
        held.append(own.low <= truth[0] <= own.high)
        stated.append(coverage)
    # 300 draws: the standard error of a rate of 90% is 1.7%
    assert np.mean(held) >= stated[0] - 0.05


def test_calibration_of_an_interval_that_cannot_stretch():
    own, coverage = calibrate([2.0] * 9)(Prediction(0.2, 0.0, 0.5))
    assert own == Prediction(0.2, 0.0, 0.5)
    assert np.isnan(coverage)


def test_no_run_calibrates_its_own_interval():
    """Of ten runs one misses by a hundred times its interval: the others are rescaled for it, it is not."""
    predictions, truth = [interval(3.0, 0.01)] * 10, np.full(10, 3.0 * np.exp(0.01))
    truth[0] = 3.0 * np.exp(1.0)
    calibrated = calibrate_on_others(predictions, truth)
    widths = [np.log(own.high / own.value) for own, _ in calibrated]
    assert widths == pytest.approx([0.01] + [1.0] * 9)
