"""The losses that the watch page draws: not those of single batches."""

import numpy as np
import pandas as pd

from toposcale.pages.watch import smoothed


def metric_rows(values, name="training_loss", model="one"):
    rows = [{"model": model, "step": step, "metric": name, "value": value} for step, value in values.items()]
    return pd.DataFrame(rows)


def test_smoothed_loss_is_the_median_since_a_snapshot():
    log = pd.DataFrame({"model": "one", "step": range(1, 7), "loss": [5.0, 4.0, 9.0, 3.0, 1.0, 2.0]})
    log = pd.concat([log, log.assign(model="other", loss=100.0)])
    metrics = pd.concat(
        [
            metric_rows({3: 9.0, 6: 2.0}),
            metric_rows({6: 7.0}, "validation_loss"),
            metric_rows({3: 1.5}, model="no log"),
        ],
        ignore_index=True,
    )
    found = smoothed(metrics, log).set_index(["model", "metric", "step"])["value"].to_dict()
    assert found == {
        ("one", "training_loss", 3): 5.0,
        ("one", "training_loss", 6): 2.0,
        ("one", "validation_loss", 6): 7.0,
        ("no log", "training_loss", 3): 1.5,
    }
    assert metrics["value"].tolist() == [9.0, 2.0, 7.0, 1.5]


def test_a_loss_that_is_no_number_stays():
    log = pd.DataFrame({"model": "one", "step": [1, 2], "loss": [5.0, np.nan]})
    found = smoothed(metric_rows({1: 4.0, 2: np.nan}), log)["value"]
    assert found.iloc[0] == 5.0
    assert np.isnan(found.iloc[1])
