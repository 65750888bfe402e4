"""What the charts of power and of the decision draw: numbers of the tables, and what is not known as nothing."""

import numpy as np
import pandas as pd

from toposcale import pages
from toposcale.pages.judged import decision_charts, power_charts

CANDIDATE = {
    "model": "m",
    "fraction": 0.5,
    "candidate": "finish",
    "compute": 1e9,
    "loss": 2.0,
    "is_live": True,
}
CANDIDATE |= {"loss_low": 1.9, "loss_high": 2.2, "probability": 0.9, "at_stake": 0.0}


def test_candidates_of_live_runs_come_alone_and_the_best_last():
    rows = [
        CANDIDATE,
        CANDIDATE | {"candidate": "start big", "loss": 2.5, "at_stake": 0.5, "probability": np.nan},
        CANDIDATE | {"candidate": "unknown", "loss": np.nan},
        CANDIDATE | {"model": "finished", "is_live": False},
    ]
    [chart] = decision_charts(pd.DataFrame(rows))
    assert chart["title"] == "m at 50%"
    assert [one["candidate"] for one in chart["candidates"]] == ["start big", "finish"]
    assert chart["candidates"][0]["probability"] is None
    assert pages.to_json(chart)


def test_without_a_live_run_the_finished_ones_are_told_as_such():
    rows = [CANDIDATE | {"is_live": False, "candidate": name} for name in ("finish", "start big")]
    [chart] = decision_charts(pd.DataFrame(rows))
    assert chart["title"] == "m at 50% (finished since)"
    assert decision_charts(pd.DataFrame(rows[:1])) == []


def verdict(feature, p, answer, **more):
    row = {
        "model": "pooled",
        "layer": "all",
        "source": "weights",
        "metric": "validation_loss",
        "feature": feature,
    }
    for question in ("beyond_the_norm", "beyond_the_step"):
        row |= {f"{question}_p": p, question: answer, f"{question}_innovation": -0.4}
    return row | more


def test_a_chart_of_power_holds_the_curve_the_features_and_the_control():
    verdicts = pd.DataFrame(
        [
            verdict("h0_total", 0.01, "yes"),
            verdict("h1_total", 0.6, "no", beyond_the_norm_innovation=0.1),
            verdict("h1_count", np.nan, "not tested"),
            verdict("h0_total", 0.01, "yes", metric="training_loss"),
        ]
    )
    power = pd.DataFrame(
        {"question": "beyond_the_norm", "planted": [0.1, 0.5], "measured": [0.5, 0.1], "found": [0.9, 0.05]}
    )
    known = {"n_tested": 2, "n_runs": 3, "control_correlation": 0.9, "detectable": np.nan}
    sensitivity = pd.DataFrame(
        [
            {"question": "beyond_the_norm", "found": "yes"} | known,
            {"question": "beyond_the_step", "found": "not tested"} | known,
        ]
    )
    [chart] = power_charts(power, sensitivity, verdicts)
    assert chart["title"] == "Beyond the norm of the weights: 2 features, 3 runs"
    assert (chart["strength"], chart["found"]) == ([0.1, 0.5], [5.0, 90.0])
    assert [(one["at"], one["found"]) for one in chart["features"]] == [(0.1, False), (0.4, True)]
    assert (chart["control"], chart["detectable"]) == (0.9, None)
    assert pages.to_json(chart)
