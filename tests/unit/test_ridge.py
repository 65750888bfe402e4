"""Ridge regression on other runs: the normal equations, and no leak."""

from dataclasses import replace

import numpy as np
import pytest

from planted_runs import family, forecast
from toposcale.analysis.forecasts import evaluate, forecast_table
from toposcale.analysis.ridge import PENALTIES, nested, ridge_weights


def test_ridge_is_the_normal_equations_of_standardised_columns():
    rng = np.random.default_rng(0)
    design, targets, rows = rng.normal(size=(9, 4)), rng.normal(size=9), rng.normal(size=(3, 4))
    standard = (design - design.mean(axis=0)) / design.std(axis=0)
    for penalty in (0.01, 1.0, 100.0):
        weights = np.linalg.solve(
            standard.T @ standard + penalty * 9 * np.eye(4), standard.T @ (targets - targets.mean())
        )
        expected = targets.mean() + (rows - design.mean(axis=0)) / design.std(axis=0) @ weights
        found = ridge_weights(design, rows, np.array([penalty]))[0] @ targets
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_penalty_is_chosen_without_the_row_that_is_predicted():
    """Brute force: the same choice by explicit loops."""
    rng = np.random.default_rng(3)
    design, groups = rng.normal(size=(8, 20)), np.repeat(np.arange(4), 2)
    targets = design[:, 0] + 0.1 * rng.normal(size=8)
    rows = rng.normal(size=(1, 20))
    mean_errors = []
    for penalty in PENALTIES:
        errors = []
        for group in range(4):
            held = groups == group
            fitted = ridge_weights(design[~held], design[held], np.array([penalty]))[0] @ targets[~held]
            errors.extend(fitted - targets[held])
        mean_errors.append(np.mean(np.square(errors)))
    best = PENALTIES[[int(np.argmin(mean_errors))]]
    found, _ = nested(design, groups, rows).solve(targets)
    assert found[0] == pytest.approx((ridge_weights(design, rows, best) @ targets)[0, 0], rel=1e-12)


def test_a_feature_that_holds_the_answer_gives_it():
    histories = [
        replace(history, features={"weights/h0_total": np.full(21, history.progress.loss) + 1e-6 * np.arange(21)})
        for history in family(8)
    ]
    forecasts = forecast_table(histories, fractions=[0.3], methods=["power_law", "ridge_topology"])
    assert evaluate(forecasts).set_index("method").loc["ridge_topology", "mae"] < 0.05


def test_vectorised_diagrams_are_features_of_their_own():
    histories = [
        replace(h, features={"weights/persistence_image": h.progress.loss * np.ones((21, 6)) * np.arange(6)})
        for h in family(6)
    ]
    assert forecast("ridge_topology", histories, 0.3).value == pytest.approx(histories[0].progress.loss, abs=0.05)
