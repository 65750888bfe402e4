"""Alignment of tables to arrays: pairs, gaps, refusals."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.aligned import aligned_series
from toposcale.analysis.controls import CONTROLS, PLAIN
from toposcale.analysis.series import configurations_of, final_values


def feature_rows(model, feature, values, *, steps=None, layer="all", source="weights"):
    steps = np.arange(len(values)) * 10 if steps is None else steps
    return pd.DataFrame(
        {"model": model, "step": steps, "source": source, "layer": layer, "feature": feature, "value": values}
    )


def metric_rows(model, metric, values, *, steps=None):
    steps = np.arange(len(values)) * 10 if steps is None else steps
    return pd.DataFrame({"model": model, "step": steps, "metric": metric, "value": values})


def test_every_pair_comes_once_with_its_own_common_checkpoints():
    features = pd.concat(
        [
            feature_rows("a", "full", np.arange(6.0)),
            feature_rows("a", "gap", [0.0, np.nan, 2.0, 3.0, 4.0, 5.0]),
            feature_rows("a", "late", [1.0, 2.0, 3.0, 4.0], steps=[20, 30, 40, 50]),
        ]
    )
    metrics = pd.concat(
        [metric_rows("a", "loss", np.arange(6.0) + 100), metric_rows("a", "sparse", [7.0, 8.0, 9.0], steps=[0, 20, 40])]
    ).sample(frac=1, random_state=0)
    pairs = {}
    for group in aligned_series(features.sample(frac=1, random_state=1), metrics):
        for s, feature in enumerate(group.keys["feature"]):
            for m, metric in enumerate(group.metrics):
                assert (feature, metric) not in pairs
                pairs[feature, metric] = (group.steps.tolist(), group.values[s].tolist(), group.left_out[s])
                expected = group.steps / 10 + 100 if metric == "loss" else 7 + group.steps / 20
                np.testing.assert_array_equal(group.targets[m], expected)
    assert pairs == {
        ("full", "loss"): ([0, 10, 20, 30, 40, 50], [0, 1, 2, 3, 4, 5], 0),
        ("full", "sparse"): ([0, 20, 40], [0, 2, 4], 3),
        ("gap", "loss"): ([0, 20, 30, 40, 50], [0, 2, 3, 4, 5], 1),
        ("gap", "sparse"): ([0, 20, 40], [0, 2, 4], 3),
        ("late", "loss"): ([20, 30, 40, 50], [1, 2, 3, 4], 0),
        ("late", "sparse"): ([20, 40], [1, 3], 2),
    }


def test_layers_are_apart_only_where_what_is_held_fixed_differs():
    rows = [feature_rows("a", "f", np.arange(5.0)).assign(layer=layer) for layer in ("all", "one", "two")]
    metrics = metric_rows("a", "loss", np.arange(5.0))
    for control, n_groups in ((PLAIN, 1), (CONTROLS["step"], 1), (CONTROLS["weight_norm"], 3)):
        groups = list(aligned_series(pd.concat(rows), metrics, control))
        assert len(groups) == n_groups
        assert [layer for group in groups for layer in group.keys["layer"]] == ["all", "one", "two"]


def test_a_repeated_row_and_a_model_without_metrics_are_told():
    features = feature_rows("a", "f", np.arange(5.0))
    metrics = metric_rows("a", "loss", np.arange(5.0))
    with pytest.raises(ValueError, match="two rows"):
        list(aligned_series(pd.concat([features, features]), metrics))
    with pytest.warns(UserWarning, match="no metrics for b"):
        groups = list(aligned_series(pd.concat([features, feature_rows("b", "f", np.arange(5.0))]), metrics))
    assert [group.model for group in groups] == ["a"]


def test_final_values_are_those_of_each_models_last_step():
    features = pd.concat([feature_rows("a", "f", [1.0, 2.0]), feature_rows("b", "f", [3.0, 4.0, 5.0])])
    found = final_values(features, metric_rows("a", "loss", [9.0, 8.0]))
    assert found[["model", "source", "feature", "step", "value"]].to_numpy().tolist() == [
        ["a", "metric", "loss", 10, 8.0],
        ["a", "weights", "f", 10, 2.0],
        ["b", "weights", "f", 20, 5.0],
    ]


def test_configurations_of_models_by_table_entry_or_name():
    models = pd.DataFrame({"model": ["a", "b", "c"], "entry": ["small", "small", ""], "configuration": ["one", "", ""]})
    assert configurations_of(models) == {"a": "one", "b": "small", "c": "c"}
