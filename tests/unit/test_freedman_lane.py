"""The test between runs: each configuration has its own slopes and spread; exact small cases; its false-positive rate
on the configurations of study 1."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from toposcale.statistics.freedman_lane import between_runs, share_as_extreme

STUDY = ROOT / "studies/nulls/runs/study-1"


def rest(values, *controls):
    """What a line through the controls leaves of values of one configuration, by other code than that of the test."""
    design = np.column_stack([np.ones(len(values)), *controls])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def partial(x, y, *controls):
    left, right = rest(x, *controls), rest(y, *controls)
    return left @ right / np.sqrt((left @ left) * (right @ right))


def test_between_runs_statistic_by_hand():
    rng = np.random.default_rng(3)
    configurations = np.repeat(["a", "b"], [9, 14])
    x, y, control = rng.standard_normal((3, 23))
    found = between_runs(x, y, list(configurations), control, draws=99)
    own = {
        configuration: partial(
            x[configurations == configuration],
            y[configurations == configuration],
            control[configurations == configuration],
        )
        for configuration in "ab"
    }
    # Runs less the mean, the slope and one.
    assert found.degrees_of_freedom == 6 + 11
    assert found.correlation[0] == pytest.approx((6 * own["a"] + 11 * own["b"]) / 17)


def test_all_permutations_counted_by_hand():
    rng = np.random.default_rng(3)
    x, y, control = rng.standard_normal((3, 13))
    configurations = [slice(0, 6), slice(6, 13)]

    def statistic(residuals):
        return np.average([partial(x[own], residuals[own], control[own]) for own in configurations], weights=[3, 4])

    residuals = np.concatenate([rest(y[own], control[own]) for own in configurations])
    test = between_runs(x, y, ["a"] * 6 + ["b"] * 7, control, draws=4000)
    assert not test.exact  # 3.6 million
    one = between_runs(x[:6], y[:6], ["a"] * 6, control[:6])
    counted = np.array([partial(x[:6], residuals[list(order)], control[:6]) for order in permutations(range(6))])
    assert one.exact
    assert one.n_permutations == 720
    far = np.abs(counted - counted.mean())
    assert one.p[0] == pytest.approx((far >= far[0] - 1e-9).mean())
    drawn = np.array([statistic(residuals[[*rng.permutation(6), *(6 + rng.permutation(7))]]) for _ in range(4000)])
    expected = (np.abs(drawn) >= abs(statistic(residuals))).mean()
    assert test.p[0] == pytest.approx(expected, abs=4 * np.sqrt(2 * 0.25 / 4000))


def test_between_runs_with_slopes_of_each_configuration():
    """Feature and outcome follow a control with the configuration's own slope, which goes the same way in both."""
    rng, rejected = np.random.default_rng(1), []
    configurations = np.repeat(list("abcd"), 12)
    slope = np.repeat([3.0, -3.0, 2.0, -2.0], 12)
    for draw in range(40):
        control = rng.standard_normal(48)
        x, y = slope * control + rng.standard_normal((2, 48))
        rejected.append(between_runs(x, y, list(configurations), control, draws=199, seed=draw).p[0] <= 0.05)
    # 40 draws at 5%: 7 or more have probability 0.004.
    assert sum(rejected) <= 6


def test_between_runs_with_a_wide_configuration():
    rng = np.random.default_rng(2)
    configurations, spread = np.repeat(list("abcdef"), 12), np.repeat([1.0, 1, 1, 1, 1, 100], 12)
    x = rng.standard_normal(72)
    y = spread * (0.7 * np.where(spread > 1, 0, x) + rng.standard_normal(72))
    own = between_runs(x, y, list(configurations), draws=999)
    assert own.p[0] <= 0.01
    units = between_runs(spread[::-1] * x, 1e-6 * y, list(configurations), draws=999)
    assert units.correlation[0] == pytest.approx(own.correlation[0])


def test_between_runs_with_a_constant_control():
    """Such as a learning rate. Less their mean its values are rounding noise, which no one may fit."""
    rng = np.random.default_rng(4)
    configurations = ["a"] * 7 + ["b"] * 7
    x, y, control = rng.standard_normal((3, 14))
    rate = np.repeat([0.1 + 0.2, 1 / 3], 7)
    without = between_runs(x, y, configurations, control)
    beside = between_runs(x, y, configurations, np.stack([control, rate]))
    assert beside.degrees_of_freedom == without.degrees_of_freedom == 2 * (7 - 2 - 1)
    np.testing.assert_array_equal(beside.correlation, without.correlation)
    np.testing.assert_array_equal(beside.p, without.p)


def test_between_runs_leaves_out_small_configurations():
    rng = np.random.default_rng(5)
    configurations = ["a"] * 12 + ["b"] * 4
    x, y, control = rng.standard_normal((3, 16))
    both = between_runs(x, y, configurations, control)
    alone = between_runs(x[:12], y[:12], configurations[:12], control[:12])
    assert (both.n_runs, both.n_configurations, both.degrees_of_freedom) == (12, 1, 9)
    assert both.p[0] == alone.p[0]
    nothing = between_runs(x[12:], y[12:], configurations[12:], control[12:])
    assert np.isnan(nothing.p).all()
    assert (nothing.n_configurations, nothing.n_permutations) == (0, 0)


def test_between_runs_of_a_feature_constant_in_one():
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((2, 20))
    x[10:] = 3.3
    found = between_runs(x, y, ["a"] * 10 + ["b"] * 10)
    assert found.correlation[0] == pytest.approx(partial(x[:10], y[:10]))
    constant = between_runs(np.ones((1, 8)), np.arange(8.0) ** 2, ["a"] * 8)
    assert np.isnan(constant.correlation[0])
    assert np.isnan(constant.p[0])


def test_what_does_not_fit_together_is_named():
    with pytest.raises(ValueError, match="runs"):
        between_runs(np.ones((1, 8)), np.arange(7.0), ["a"] * 8)


def test_more_draws_go_on_where_fewer_ended():
    """A hundred thousand permutations are made block by block, and the first of them are those of fewer."""
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 24))
    configurations = ["a"] * 12 + ["b"] * 12
    few, many = (between_runs(x, y, configurations, draws=draws, seed=3) for draws in (10_000, 25_000))
    assert (few.n_permutations, many.n_permutations) == (10_001, 25_001)
    assert many.p[0] == pytest.approx(few.p[0], abs=4 * np.sqrt(0.25 / 10_000))
    assert many.p[0] == between_runs(x, y, configurations, draws=25_000, seed=3).p[0]


@pytest.fixture(scope="module")
def study():
    """The configurations of the study: feature, outcome, controls and configuration of each of 480 runs."""
    models = pd.read_csv(STUDY / "models.csv").sort_values("model")
    series = pd.read_csv(STUDY / "series.csv.gz").pivot(index="model", columns="step", values="validation_loss")
    early = pd.read_csv(STUDY / "early.csv.gz").set_index("model").loc[models["model"]]
    losses = series.loc[models["model"]]
    before, now, final = (losses[step].to_numpy() for step in (120, 180, 600))
    controls = np.stack([before, now, now**2, early["frobenius_norm"].to_numpy()])
    features = early[["h0_total_scaled", "h0_total", "h0_mean", "neural_persistence"]].to_numpy().T
    return features, final, controls, models["configuration"].to_numpy()


def test_between_runs_keeps_its_false_positive_rate(study):
    """Outcomes: what the controls of each configuration tell, and permuted residuals. One slope for all rejects in half
    of them."""
    features, final, controls, configurations = study
    rng, places = (
        np.random.default_rng(9),
        [np.flatnonzero(configurations == configuration) for configuration in np.unique(configurations)],
    )
    residuals = np.empty(len(final))
    for own in places:
        residuals[own] = rest(final[own], *controls[:, own])
    rejected = []
    for draw in range(60):
        outcome = final - residuals
        for own in places:
            outcome[own] += rng.permutation(residuals[own])
        found = between_runs(features, outcome, list(configurations), controls, draws=199, seed=draw)
        rejected.append(found.p <= 0.05)
    # 60 draws at 5%: 9 or more of a feature have probability 0.003.
    assert np.sum(rejected, axis=0).max() <= 8
    assert np.mean(rejected) <= 0.075


def test_share_as_extreme_by_hand():
    # The mean is 0.25: the first lies 0.75 away, and only the last as far.
    assert share_as_extreme([1.0, 0.5, 0.0, -0.5]) == 0.5
    assert share_as_extreme([2.0, 0.0, 0.0, 0.0]) == 0.25
    assert np.isnan(share_as_extreme([np.nan, 1.0]))
