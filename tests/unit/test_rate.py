"""Forecasts from the rate at which a feature changes."""

import numpy as np
import pytest

from made_runs import training_run
from planted_runs import family, forecast, run
from toposcale.analysis.methods import RateForecaster
from toposcale.forecasting import NoForecast


def test_a_rate_forecast_by_hand():
    """x = log u and L = 15 - x with u = step + 10: the loss at the end is 15 - log(u at the end), exactly."""
    steps = np.array([0, 10, 30, 70, 150])
    history = training_run(
        "hand",
        1,
        1,
        990,
        learning_rates=np.minimum(np.arange(991), 10.0),
        checkpoint_steps=steps,
        checkpoint_losses=15 - np.log(steps + 10),
        features={"weights/neural_persistence": np.log(steps + 10)},
    )
    [prediction] = RateForecaster().fit(history).predict([history.target(990)])
    assert prediction.value == pytest.approx(15 - np.log(1000))
    assert prediction.low == pytest.approx(prediction.high)


def test_rate_forecaster_refuses_few_checkpoints():
    """Through three points any series gives nearly the same forecast, noise too: it is refused."""
    with pytest.raises(NoForecast, match="fewer than 4 points"):
        RateForecaster().fit(run(0).first(0.19))
    [found] = RateForecaster().fit(run(0).first(0.2)).predict([run(0).target()])
    assert np.isfinite(found.value)


def test_combined_is_the_mean_of_its_two_parts():
    parts = [forecast(method, family(1), 0.3) for method in ("power_law", "topology_rate")]
    both = forecast("combined", family(1), 0.3)
    assert both.value == pytest.approx(np.mean([part.value for part in parts]))
    assert both.low == pytest.approx(np.mean([part.low for part in parts]))
