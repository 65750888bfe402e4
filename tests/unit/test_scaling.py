"""Planted power laws, coverage of the intervals, predictions."""

import numpy as np
import pytest

from toposcale.analysis.scaling import fit_power_law, fit_power_law_with_offset

SIZES = np.array([2936.0, 7408, 20640, 46368, 97200])


def test_exact_laws_are_recovered():
    plain = fit_power_law(SIZES, 7.0 * SIZES**-0.12)
    assert (plain.coefficient, plain.exponent) == pytest.approx((7.0, -0.12), rel=1e-9)
    assert plain.r_squared == pytest.approx(1.0)
    # 1e-4: the search over b stops where the sum of squares is flat to rounding.
    offset = fit_power_law_with_offset(SIZES, 40.0 * SIZES**-0.5 + 1.3)
    assert (offset.coefficient, offset.exponent, offset.offset) == pytest.approx((40.0, -0.5, 1.3), rel=1e-4)
    assert offset.coefficient * 1e6**offset.exponent + offset.offset == pytest.approx(1.34, rel=1e-4)


def coverage(law, n_draws, noise):
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(n_draws):
        if law is fit_power_law:
            values = 7.0 * SIZES**-0.12 * np.exp(noise * rng.standard_normal(5))
            fit, truth = fit_power_law(SIZES, values), -0.12
        else:
            values = 40.0 * SIZES**-0.5 + 1.3 + noise * rng.standard_normal(5)
            fit, truth = fit_power_law_with_offset(SIZES, values), -0.5
        inside += fit.exponent_low <= truth <= fit.exponent_high
    return inside / n_draws


@pytest.mark.parametrize(("law", "noise"), [(fit_power_law, 0.03), (fit_power_law_with_offset, 0.005)])
def test_intervals_hold_the_planted_exponent_at_the_stated_rate(law, noise):
    # 400 draws at 95%: three binomial standard errors are 0.033.
    assert 0.917 <= coverage(law, 400, noise) <= 0.983


def test_the_law_with_an_offset_is_the_best_on_its_grid():
    rng = np.random.default_rng(6)
    values = 40.0 * SIZES**-0.5 + 1.3 + 0.02 * rng.standard_normal(5)
    fit = fit_power_law_with_offset(SIZES, values)
    least = ((values - fit.coefficient * SIZES**fit.exponent - fit.offset) ** 2).sum()
    for exponent in np.linspace(-2.9, 2.9, 117):
        if abs(exponent) > 1e-3:
            design = np.column_stack([SIZES**exponent, np.ones(5)])
            residual = values - design @ np.linalg.lstsq(design, values, rcond=1e-15)[0]
            assert least <= (residual**2).sum() * (1 + 1e-6)


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        (SIZES[:2], [1.0, 2.0], "2 different sizes"),
        (SIZES, [1.0, 2.0, 0.0, 1.0, 1.0], "no logarithm"),
        (SIZES, [1.0, np.nan, 1.0, 1.0, 1.0], "not all finite"),
        (-SIZES, np.ones(5), "n_parameters"),
    ],
)
def test_what_no_law_fits_is_refused_by_name(sizes, values, message):
    with pytest.raises(ValueError, match=message):
        fit_power_law(sizes, values)
