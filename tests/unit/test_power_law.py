"""The power law of a loss curve, and the coverage of its interval."""

import numpy as np
import pytest

from toposcale.forecasting.laws.power_law import fit_loss_curve
from toposcale.forecasting.laws.residuals import variance_inflation


def test_an_exact_power_law_is_found():
    times = np.arange(1.0, 200.0)
    law = fit_loss_curve(times, 3.0 * times**-0.37 + 1.2)
    assert (law.a, law.b, law.c) == pytest.approx((3.0, 0.37, 1.2), rel=1e-6)
    low, high = law.interval(5000.0)
    assert low == pytest.approx(high, abs=1e-6)


def test_the_fit_is_no_worse_than_any_of_a_fine_grid():
    rng = np.random.default_rng(0)
    times = np.geomspace(10, 1000, 30)
    losses = 4 * times**-0.3 + 1 + 0.02 * rng.normal(size=30)
    law = fit_loss_curve(times, losses)
    found = np.sum((law(times) - losses) ** 2)
    for exponent in np.linspace(0.01, 3, 400):
        design = np.column_stack([times**-exponent, np.ones(30)])
        (a, c), *_ = np.linalg.lstsq(design, losses, rcond=None)
        if a >= 0 and c >= 0:
            assert found <= np.sum((design @ [a, c] - losses) ** 2) * (1 + 1e-9)


@pytest.mark.parametrize(("points", "correlation", "least"), [(10, 0.0, 0.90), (40, 0.0, 0.90), (40, 0.6, 0.80)])
def test_planted_power_laws_lie_in_their_intervals_at_the_stated_rate(points, correlation, least):
    """The interval is 95% for independent noise; for an AR(1) of 0.6 it is known to fall to about 88%."""
    rng = np.random.default_rng(1)
    hits, draws = 0, 200
    times = np.geomspace(100, 1000, points)
    for _ in range(draws):
        noise = rng.normal(size=points + 1)
        for i in range(1, points):
            noise[i] = correlation * noise[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
        losses = 8 * times**-0.4 + 1.5 + 0.01 * noise[:-1]
        low, high = fit_loss_curve(times, losses).interval(5000.0)
        hits += low <= 8 * 5000.0**-0.4 + 1.5 + 0.01 * noise[-1] <= high
    # 200 draws: the standard error of a rate of 95% is 1.5%
    assert hits / draws >= least


def test_flat_and_rising_curves_are_carried_on_flat():
    times = np.arange(1.0, 50.0)
    assert fit_loss_curve(times, np.full(49, 2.0))(1e4) == pytest.approx(2.0)
    assert fit_loss_curve(times, times)(1e4) == pytest.approx(times.mean())


def test_variance_inflation_of_an_autoregression():
    rng = np.random.default_rng(0)
    series = np.zeros(20000)
    for i in range(1, len(series)):
        series[i] = 0.5 * series[i - 1] + rng.normal()
    # (1 + 0.5) / (1 - 0.5) = 3; the lag's standard error is 0.006
    assert variance_inflation(series, parameters=0) == pytest.approx(3.0, abs=0.15)
    assert variance_inflation(rng.normal(size=20000), parameters=0) == pytest.approx(1.0, abs=0.05)
