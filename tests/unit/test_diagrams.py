"""Summaries and vectors of diagrams, by hand and against gudhi's representations."""

import math

import numpy as np
import pytest
from gudhi.representations import BettiCurve
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.homology import betti_curve, crocker, neural_persistence, spanning_tree_weights, summarize_diagram

EMPTY = np.empty((0, 2))


def random_diagram(seed, n_bars):
    rng = np.random.default_rng(seed)
    births = rng.random(n_bars)
    return np.column_stack([births, births + rng.exponential(0.3, n_bars)])


def test_summarize_diagram_summary_by_hand():
    summary = summarize_diagram([[0.0, 3.0], [1.0, 2.0]])
    assert summary == {
        "count": 2,
        "total": 4.0,
        "total_l2": pytest.approx(math.sqrt(10), rel=1e-15),
        "max": 3.0,
        "mean": 2.0,
        "entropy": pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-15),
    }


def test_summarize_diagram_summary_of_no_bars_is_zero():
    assert set(summarize_diagram(EMPTY).values()) == {0}
    assert set(summarize_diagram([]).values()) == {0}
    assert set(summarize_diagram([[0.0, math.inf], [2.0, 2.0]]).values()) == {0}


def test_summarize_diagram_counts_no_bar_of_rounding():
    assert summarize_diagram([[0.0, 4.0], [1.0, 1.0 + 3.9e-9]])["count"] == 1
    assert summarize_diagram([[0.0, 4.0], [1.0, 1.0 + 4.1e-9]])["count"] == 2


def test_summarize_diagram_entropy_of_one_and_of_equal_bars():
    assert math.copysign(1.0, summarize_diagram([[0.0, 3.0]])["entropy"]) == 1.0
    assert summarize_diagram([[0.0, 3.0]])["entropy"] == 0.0
    assert summarize_diagram([[0.0, 3.0]] * 7)["entropy"] == pytest.approx(math.log(7), rel=1e-14)


def test_summarize_diagram_descending_is_neural_persistence():
    weight = np.random.default_rng(0).standard_normal((20, 10))
    relative = spanning_tree_weights(weight) / np.abs(weight).max()
    total = summarize_diagram(np.column_stack([np.ones(29), relative]))["total"]
    assert total / 29 == pytest.approx(neural_persistence(weight), rel=1e-13)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(1e-3, 1e3))
def test_summarize_diagram_summary_scales(seed, n_bars, factor):
    diagram = random_diagram(seed, n_bars)
    before, after = summarize_diagram(diagram), summarize_diagram(factor * diagram[::-1])
    for name in ("total", "total_l2", "max", "mean"):
        assert after[name] == pytest.approx(factor * before[name], rel=1e-12)
    assert after["count"] == before["count"]
    assert after["entropy"] == pytest.approx(before["entropy"], rel=1e-12, abs=1e-12)


def test_betti_curve_by_hand():
    diagram = [[0.0, 1.0], [0.0, 2.0], [1.5, 3.0]]
    # A class is alive at its birth and no longer at its death.
    np.testing.assert_array_equal(betti_curve(diagram, [-1, 0, 1, 1.5, 2, 3]), [0, 2, 1, 2, 1, 0])
    np.testing.assert_array_equal(betti_curve(EMPTY, [0, 1]), [0, 0])


def test_betti_curve_equals_gudhi():
    diagram, radii = random_diagram(1, 50), np.linspace(0.0, 2.0, 31)
    expected = BettiCurve(predefined_grid=radii).fit_transform([diagram])[0]
    np.testing.assert_array_equal(betti_curve(diagram, radii), expected)


def test_crocker_stacks_betti_curves():
    diagrams, radii = [random_diagram(2, 10), EMPTY], [0.2, 0.8, 1.4]
    matrix = crocker(diagrams, radii)
    np.testing.assert_array_equal(matrix, [betti_curve(one, radii) for one in diagrams])
    assert crocker([], radii).shape == (0, 3)


def test_summarize_diagram_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^diagram must have shape"):
        summarize_diagram([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"^diagram must not hold NaN"):
        summarize_diagram([[1.0, math.nan]])
    with pytest.raises(ValueError, match=r"^diagram must have death >= birth"):
        betti_curve([[1.0, 0.5]], [0.0])
    with pytest.raises(ValueError, match=r"^radii must be"):
        betti_curve(EMPTY, [1.0, 0.0])
