from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.analysis.decisions import (
    ComputeCurve,
    compute_of,
    decision_table,
    evaluate_decisions,
    forecast_curve,
    next_sizes,
    observed_curve,
    switch_point,
)
from toposcale.forecasting import History
from toposcale.forecasting.power_law import PowerLaw


def curve(compute, loss):
    compute, loss = np.asarray(compute, dtype=float), np.asarray(loss, dtype=float)
    return ComputeCurve(compute, loss, loss - 0.1, loss + 0.1)


def planted(model, n_parameters, a, b, c, final_step=1000, seed=0):
    """L = a t^-b + c at a checkpoint every 2 steps, with no noise and no training log."""
    steps = np.arange(0, final_step + 1, 2)
    losses = np.concatenate([[9.0], a * steps[1:] ** -b + c])
    return History(
        model,
        n_parameters,
        100,
        final_step,
        checkpoint_steps=steps,
        checkpoint_losses=losses,
        family="hand",
        seed=seed,
    )


# C = 6 * 10 * 100 * t = 6000 t for the small model and 12000 t for the large one. In x = C / 6000 their losses
# are 4 x^-0.5 + 2 and 8 (x / 2)^-0.5 + 1 = 8 sqrt(2) x^-0.5 + 1: equal where 1 = (8 sqrt(2) - 4) x^-0.5.
SMALL, LARGE = planted("small", 10, 4.0, 0.5, 2.0), planted("large", 20, 8.0, 0.5, 1.0)
CROSSING = 6000 * (8 * np.sqrt(2) - 4) ** 2
END = 6000 * 1000


def test_compute_is_six_n_d():
    assert compute_of(SMALL, 7) == 6 * 10 * (7 * 100)


def test_two_straight_lines_cross_where_algebra_says():
    """In log10 C: own 3 - 0.1 x, next 4 - 0.6 x cross at x = 2."""
    compute = np.array([1.0, 10.0, 1e3, 1e4])
    own, following = curve(compute, 3 - 0.1 * np.log10(compute)), curve(compute, 4 - 0.6 * np.log10(compute))
    assert switch_point(own, following, 1e4) == pytest.approx(100.0)
    # the early end reads own's high and the other's low: 3.1 - 0.1 x = 3.9 - 0.6 x at x = 1.6
    assert switch_point(own, following, 1e4, ("high", "low")) == pytest.approx(10**1.6)
    assert switch_point(own, following, 99.0) == np.inf
    assert switch_point(following, own, 1e4) == np.inf


def test_the_last_crossing_counts_and_ahead_from_the_start_is_the_first_compute():
    compute = np.array([1.0, 10.0, 100.0, 1000.0])
    own = curve(compute, [2, 2, 2, 2])
    assert switch_point(own, curve(compute, [1, 3, 3, 1]), 1000.0) == pytest.approx(10**2.5)
    assert switch_point(own, curve(compute, [1, 1, 1, 1]), 1000.0) == 1.0
    assert switch_point(own, curve(compute * 5, [1, 1, 1, 1]), 1000.0) == 5.0


def test_curves_that_do_not_reach_the_budget_have_no_switch_point():
    own = curve([1, 10, 100], [3, 2, 1])
    assert np.isnan(switch_point(own, curve([1, 10], [2, 1]), 100.0))
    assert np.isnan(switch_point(own, curve([200, 300], [2, 1]), 100.0))
    assert np.isnan(switch_point(own, curve([], []), 100.0))


@settings(deadline=None, max_examples=50)
@given(
    own=st.lists(st.floats(0.5, 5), min_size=3, max_size=8),
    following=st.lists(st.floats(0.5, 5), min_size=3, max_size=8),
)
def test_below_from_the_switch_on_and_never_below_at_the_budget_without_one(own, following):
    one = curve(np.geomspace(1, 100, len(own)), own)
    other = curve(np.geomspace(2, 200, len(following)), following)
    switch = switch_point(one, other, 100.0)
    if np.isinf(switch):
        assert other.at(100.0) >= one.at(100.0)
    else:
        for compute in np.geomspace(switch * (1 + 1e-9), 100.0, 200):
            assert other.at(compute) <= one.at(compute) + 1e-9


def test_the_decision_on_two_crossing_curves_by_hand():
    table = decision_table([SMALL, LARGE], fractions=[0.2], methods=["power_law"])
    assert list(table["model"].unique()) == ["small"]
    rows = table.set_index("policy")
    law = rows.loc["power_law"]
    # between checkpoints of 2 steps the curves are not quite straight
    assert law["true_switch"] == pytest.approx(CROSSING, rel=1e-3)
    assert law["forecast_switch"] == pytest.approx(CROSSING, rel=1e-3)
    assert law["spent"] == pytest.approx(0.2 * END)
    assert law["budget"] == pytest.approx(END)
    assert not law["true_is_bound"]
    # the crossing, at 53.5 steps, lies before the 200 that are spent: all the rest of the run is saved
    assert law["advice"] == "scale_up"
    assert law["right"]
    assert law["regret"] == 0
    assert law["compute_saved"] == pytest.approx(0.8 * END)
    assert law["compute_saved_percent"] == pytest.approx(80.0)

    finish = rows.loc["always_finish"]
    assert finish["advice"] == "train_on"
    assert not finish["right"]
    assert finish["compute_saved"] == 0
    small_end, large_there = 4 * 1000**-0.5 + 2, 8 * 500**-0.5 + 1
    assert finish["regret"] == pytest.approx(small_end - large_there, abs=1e-9)
    # from 200 steps on, the large model has 800 of the small one's steps left: 400 of its own
    assert finish["regret_sunk"] == pytest.approx(small_end - (8 * 400**-0.5 + 1), abs=1e-3)


def test_a_budget_before_the_crossing_turns_the_advice_round():
    table = decision_table([SMALL, LARGE], fractions=[0.004], methods=["power_law"], budget=0.75 * CROSSING)
    rows = table.set_index("policy")
    budget_steps = 0.75 * CROSSING / 6000
    finish = rows.loc["always_finish"]
    assert finish["budget"] == pytest.approx(0.75 * CROSSING)
    assert finish["true_switch"] == np.inf
    assert finish["right"]
    assert finish["regret"] == 0
    plateau = rows.loc["plateau"]
    assert plateau["reason"]  # two checkpoints are no power law
    assert np.isnan(plateau["regret"])
    assert observed_curve(SMALL).at(finish["budget"]) == pytest.approx(4 * budget_steps**-0.5 + 2, abs=1e-3)


def test_the_plateau_is_where_the_law_is_within_one_percent_of_its_end():
    flat = planted("flat", 10, 3.0, 1.0, 2.0)
    rows = decision_table([flat, planted("next", 20, 3.0, 1.0, 2.5)], fractions=[0.12], methods=[]).set_index(
        "policy"
    )
    # 3 / t = 0.01 * 2.003 + 0.003: t = 130.3; the next size is never better, so the advice is wrong
    expected = 3 / (0.01 * 2.003 + 0.003)
    assert rows.loc["plateau", "forecast_switch"] == pytest.approx(6000 * expected, rel=0.01)
    assert rows.loc["plateau", "compute_saved_percent"] == pytest.approx(100 - expected / 10, abs=0.2)
    assert not rows.loc["plateau", "right"]
    # the loss of 2.5 + 3 / 500 against 2 + 3 / 1000
    assert rows.loc["plateau", "regret"] == pytest.approx(0.503, abs=1e-6)


def test_a_switch_that_is_still_ahead_is_forecast_and_the_rest_of_the_run_is_saved():
    """After 2% the small model has done 20 steps, the large one 40 of the small one's; they cross at 53.5."""
    row = (
        decision_table([SMALL, LARGE], fractions=[0.02], methods=["power_law"])
        .set_index("policy")
        .loc["power_law"]
    )
    assert row["spent"] < row["forecast_switch"] == pytest.approx(CROSSING, rel=0.01)
    assert row["advice"] == "scale_up"
    assert row["compute_saved"] == pytest.approx(END - CROSSING, rel=1e-3)
    assert row["log10_error"] == pytest.approx(0, abs=0.005)


def test_a_forecast_that_is_wrong_by_a_factor_is_reported_as_its_logarithm():
    """From step 30 on the small model is 0.3 better than its first 20 steps say.

    1 in the equation of the crossing becomes 0.7, so it comes later by a factor of 1 / 0.49.
    """
    losses = SMALL.checkpoint_losses - np.where(SMALL.checkpoint_steps >= 30, 0.3, 0.0)
    better = replace(SMALL, checkpoint_losses=losses)
    row = (
        decision_table([better, LARGE], fractions=[0.02], methods=["power_law"])
        .set_index("policy")
        .loc["power_law"]
    )
    assert row["true_switch"] == pytest.approx(CROSSING / 0.49, rel=1e-3)
    assert row["forecast_switch"] == pytest.approx(CROSSING, rel=0.01)
    assert row["log10_error"] == pytest.approx(-np.log10(0.49), abs=0.005)


def test_later_rows_do_not_move_the_forecast_switch():
    def spoiled(history):
        losses = np.where(history.checkpoint_steps > 300, 7.0, history.checkpoint_losses)
        return replace(history, checkpoint_losses=losses)

    columns = ["policy", "forecast_switch", "forecast_low", "forecast_high", "advice"]
    one = decision_table([SMALL, LARGE], fractions=[0.3], methods=["power_law"])[columns]
    other = decision_table([spoiled(SMALL), spoiled(LARGE)], fractions=[0.3], methods=["power_law"])[columns]
    assert one.equals(other)


def test_a_forecast_curve_is_what_was_seen_and_then_the_forecast():
    found = forecast_curve(SMALL.first(0.3), PowerLaw())
    seen = found.compute <= 0.3 * END * (1 + 1e-9)
    np.testing.assert_allclose(found.loss[seen], SMALL.checkpoint_losses[1:151])
    np.testing.assert_allclose(found.loss[~seen], 4 * (found.compute[~seen] / 6000) ** -0.5 + 2, rtol=1e-6)
    assert found.compute[-1] == END


def test_the_next_size_is_of_the_same_family_and_seed():
    other_seed = planted("large.seed1", 15, 8.0, 0.5, 1.0, seed=1)
    found = next_sizes([SMALL, LARGE, other_seed])
    assert {name: history.model for name, history in found.items()} == {"small": "large"}


def test_means_over_models_and_their_intervals():
    histories = [planted(f"m{i}", 10 * 2**i, 4.0 + 2 * i, 0.5, 2.0 - 0.3 * i) for i in range(4)]
    table = decision_table(histories, fractions=[0.2], methods=["power_law"])
    means = evaluate_decisions(table).set_index("policy")
    group = table[table["policy"] == "power_law"]
    assert means.loc["power_law", "regret"] == pytest.approx(group["regret"].mean())
    assert means.loc["power_law", "share_right"] == pytest.approx(group["right"].astype(float).mean())
    low, high = means.loc["power_law", ["compute_saved_percent_low", "compute_saved_percent_high"]]
    assert low <= means.loc["power_law", "compute_saved_percent"] <= high


def test_a_single_model_has_empty_tables_with_all_their_columns():
    table = decision_table([SMALL], methods=["power_law"])
    assert table.empty
    assert "true_switch" in table.columns
    assert "regret_low" in evaluate_decisions(table).columns
