"""Loss curves as tables: what is read, what stands for a checkpoint, and one line for what is wrong."""

import numpy as np
import pandas as pd
import pytest

from toposcale.io import loss_curves
from toposcale.io.errors import UserError


def written(tmp_path, columns, name="losses.csv"):
    frame = pd.DataFrame(columns)
    path = tmp_path / name
    frame.to_csv(path, index=False) if name.endswith(".csv") else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("name", ["losses.csv", "losses.parquet"])
def test_rows_are_sorted_and_what_is_missing_is_nan(tmp_path, name):
    path = written(
        tmp_path, {"loss": [2.0, 3.0], "step": [10, 5], "lr": [0.1, 0.2], "mine": ["a", "b"]}, name
    )
    log, metrics = loss_curves.read(path, "m")
    assert log.column_names == ["step", "loss", "gradient_norm", "learning_rate"]
    assert log["step"].to_pylist() == [5, 10]
    assert log["loss"].to_pylist() == [3.0, 2.0]
    assert log["learning_rate"].to_pylist() == [0.2, 0.1]
    assert np.isnan(log["gradient_norm"].to_pylist()).all()
    assert [(row["step"], row["metric"], row["value"]) for row in metrics.to_pylist()] == [
        (5, "training_loss", 3.0),
        (10, "training_loss", 2.0),
    ]


def test_checkpoints_are_where_the_validation_loss_is(tmp_path):
    path = written(
        tmp_path, {"step": [0, 1, 2, 3], "loss": [4.0, 3, 2, 1], "val_loss": [4.5, None, None, 1.5]}
    )
    log, metrics = loss_curves.read(path, "m")
    assert len(log) == 4
    rows = metrics.to_pandas()
    assert rows[rows["metric"] == "validation_loss"]["value"].tolist() == [4.5, 1.5]
    assert rows[rows["metric"] == "training_loss"]["step"].tolist() == [0, 3]


def test_a_long_log_is_thinned_and_keeps_its_ends(tmp_path):
    steps = np.arange(5000)
    _, metrics = loss_curves.read(written(tmp_path, {"step": steps, "loss": 1 / (1 + steps)}), "m")
    kept = metrics["step"].to_numpy()
    assert len(kept) == loss_curves.MOST_CHECKPOINTS
    assert (kept[0], kept[-1]) == (0, 4999)
    assert np.ptp(np.diff(kept)) <= 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"step": [1], "perplexity": [2.0]}, "no column loss; it needs step, loss"),
        ({"step": [], "loss": []}, "no rows"),
        ({"step": [1, 2, 2], "loss": [1, 2, 3]}, "step 2 stands there 2 times"),
        ({"step": [1.5], "loss": [1]}, "step holds 1.5"),
        ({"step": [-1], "loss": [1]}, "step holds -1"),
        ({"step": [1, None], "loss": [1, 2]}, "step is missing in 1 rows"),
        ({"step": [1], "loss": ["low"]}, "column loss is not all numbers"),
        (
            {"step": [1], "loss": [1], "lr": [0.1], "learning_rate": [0.1]},
            "more than one column learning_rate",
        ),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path, columns, said):
    path = written(tmp_path, columns)
    with pytest.raises(UserError) as caught:
        loss_curves.read(path, "m")
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.csv: not a readable Parquet or CSV table"):
        loss_curves.read(tmp_path / "gone.csv", "m")
