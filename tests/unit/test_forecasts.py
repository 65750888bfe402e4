"""The tables of forecasts and their evaluation."""

import numpy as np
import pandas as pd
import pytest

from planted_runs import family, tables
from toposcale.analysis.forecasts import evaluate, forecast_table, trainings_from_tables


def test_trainings_from_tables_in_any_order_of_rows():
    histories = family(2)
    features, metrics, training, models = (table.sample(frac=1, random_state=0) for table in tables(histories))
    other_layer = features.assign(layer="blocks.0", value=-1.0)
    found = trainings_from_tables(pd.concat([features, other_layer]), metrics, training, models)
    for one, other in zip(found, histories, strict=True):
        assert one.model == other.model
        assert one.n_parameters == other.n_parameters
        for name in ("steps", "losses", "gradient_norms", "checkpoint_steps", "checkpoint_losses"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.schedule.rates[1:], other.schedule.rates[1:])
        np.testing.assert_array_equal(one.features["weights/h0_total"], other.features["weights/h0_total"])


def test_losses_alone_are_enough():
    _, metrics, _, models = tables(family(2))
    histories = trainings_from_tables(pd.DataFrame(), metrics, pd.DataFrame(), models)
    forecasts = forecast_table(histories, fractions=[0.5])
    made = forecasts.dropna(subset=["forecast"])
    assert set(made["method"]) == {"power_law"}
    assert (forecasts[forecasts["forecast"].isna()]["reason"] != "").all()


def test_a_stated_warmup_counts_where_no_rates_are_known():
    _, metrics, _, models = tables(family(2))
    stated = models.assign(warmup_steps=[20.0, np.nan])
    found = trainings_from_tables(pd.DataFrame(), metrics, pd.DataFrame(), stated)
    assert [history.schedule.warmup_steps for history in found] == [20, 0]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_trainings_from_tables_leave_missing_texts_unknown(missing):
    """A missing entry was read as the average of weights "nan", which made the decay 1.0 larger in the logarithm."""
    _, metrics, _, models = tables(family(2))
    unknown = models.assign(optimizer=missing, weight_average=missing, family=missing)
    found = trainings_from_tables(pd.DataFrame(), metrics, pd.DataFrame(), unknown)
    assert {(run.facts.optimizer, run.facts.weight_average, run.family) for run in found} == {("", "", "")}


def test_the_same_seed_gives_the_same_tables():
    histories = family(4)
    first, second = (forecast_table(histories, fractions=[0.3], seed=1) for _ in range(2))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    pd.testing.assert_frame_equal(evaluate(first), evaluate(second))


def test_an_evaluation_by_hand():
    rows = [
        (f"m{i}", 0.2, method, actual + error, actual - 1, actual + 1, actual, error, "")
        for method, errors in (("power_law", (0.2, -0.2, 0.4)), ("combined", (0.1, 0.1, -0.2)))
        for i, (actual, error) in enumerate(zip((2.0, 1.8, 1.6), errors, strict=True))
    ]
    names = ["model", "fraction", "method", "forecast", "own_low", "own_high", "actual", "error", "reason"]
    table = evaluate(pd.DataFrame(rows, columns=names)).set_index("method")
    assert set(table["baseline"]) == {"power_law"}
    assert table.loc["power_law", "mae"] == pytest.approx(0.8 / 3)
    assert table.loc["combined", "mae"] == pytest.approx(0.4 / 3)
    assert table.loc["combined", "improvement_percent"] == pytest.approx(50.0)
    assert table.loc["combined", "spearman"] == pytest.approx(1.0)
    assert table.loc["combined", "interval_coverage"] == 1.0
    # all three errors shrink: 2 of the 8 sign patterns are as extreme
    assert table.loc["combined", "improvement_p"] == pytest.approx(0.25)
    assert table.loc["combined", "improvement_low"] == pytest.approx(50.0)


def test_evaluate_compares_with_the_best_baseline():
    rows = [
        (f"m{i}", 0.2, method, actual + error, actual - 1, actual + 1, actual, error, "")
        for method, error in (("power_law", 0.4), ("ridge_size", 0.1), ("ridge_loss", 0.2), ("topology_rate", 0.2))
        for i, actual in enumerate((2.0, 1.8, 1.6))
    ]
    names = ["model", "fraction", "method", "forecast", "own_low", "own_high", "actual", "error", "reason"]
    table = evaluate(pd.DataFrame(rows, columns=names)).set_index("method")
    assert set(table["baseline"]) == {"ridge_size"}
    assert table.loc["topology_rate", "improvement_percent"] == pytest.approx(-100.0)
    assert table.loc["topology_rate", "over_power_law_percent"] == pytest.approx(50.0)


def test_a_method_whose_intervals_miss_has_no_coverage():
    rows = [(f"m{i}", 0.2, "power_law", 3.0, 2.9, 3.1, 3.5, -0.5, "") for i in range(4)]
    names = ["model", "fraction", "method", "forecast", "own_low", "own_high", "actual", "error", "reason"]
    table = evaluate(pd.DataFrame(rows, columns=names))
    assert table["interval_coverage"].item() == 0


def test_coverage_is_that_of_the_intervals_before_calibration():
    """Calibrated on the other runs, the worst one alone would miss, however narrow the method's intervals are."""
    forecasts = forecast_table(family(8), fractions=[0.3], methods=["power_law"])
    calibrated = forecasts["actual"].between(forecasts["low"], forecasts["high"])
    assert calibrated.sum() == 7
    own = forecasts["actual"].between(forecasts["own_low"], forecasts["own_high"])
    assert evaluate(forecasts)["interval_coverage"].item() == own.mean()
    narrow = forecasts.assign(own_low=forecasts["forecast"] - 1e-9, own_high=forecasts["forecast"] + 1e-9)
    assert evaluate(narrow)["interval_coverage"].item() == 0
