"""What scripts do with files that a user has, without a run around it."""

import json

import pyarrow as pa
import pytest

import _models
import advice
import metrics_table
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.io import loss_curves, schemas, tables
from toposcale.io.errors import UserError


def metric_rows(*values):
    rows = [{"model": "m", "step": 100, "metric": "validation_loss", "value": value} for value in values]
    return tables.from_rows(schemas.TABLES["metrics"], rows)


def test_a_metric_from_two_sources_counts_once_and_may_not_contradict_itself():
    assert metrics_table.each_once(metric_rows(2.5, 2.5)).to_pylist() == metric_rows(2.5).to_pylist()
    nan = metrics_table.each_once(pa.concat_tables([metric_rows(float("nan")), metric_rows(float("nan"))]))
    assert len(nan) == 1
    with pytest.raises(UserError, match="m: validation_loss has two values at step 100"):
        metrics_table.each_once(metric_rows(2.5, 2.9))


def test_advice_on_a_published_model_reads_its_size_and_not_its_weights(tmp_path):
    """Its weights were removed after they had been measured."""
    path = tmp_path / "pythia" / "step-00000008.size.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"n_parameters": 70, "largest_matrix": 9, "n_matrices": 3}))
    missing = tmp_path / "pythia" / "step-00000016.size.json"
    files = advice.Files("pythia", {"sizes": [str(path), str(missing)]}, None, [])
    row, knots = advice.plan_of("pythia", files, {"family": "pythia", "final_step": 8}, None)
    assert (row["n_parameters"], row["final_step"]) == (70, 8)
    assert knots == []


def test_warm_up_and_end_that_nobody_stated_are_those_of_the_training_log():
    steps, rates = [1, 2, 3, 4], [0.1, 0.2, 0.1, 0.05]
    row, _ = _models.row_and_plan("m", {"last_checkpoint": 3}, steps=steps, rates=rates)
    assert (row["final_step"], row["warmup_steps"]) == (4, 2)
    stated = {"last_checkpoint": 3, "final_step": 9, "warmup_steps": 1}
    row, _ = _models.row_and_plan("m", stated, steps=steps, rates=rates)
    assert (row["final_step"], row["warmup_steps"]) == (9, 1)


def test_steps_that_were_logged_again_are_a_fact_of_the_model_and_a_note_on_its_training():
    """The log keeps the last row alone, so nothing else tells of them."""
    curve = loss_curves.of_columns({"step": [1, 2, 3, 2, 3, 4], "loss": [5.0, 4.4, 9.0, 4.0, 3.0, 2.5]})
    files = advice.Files("m", {}, curve, [])
    row, _ = advice.plan_of("m", files, {"n_parameters": 9, "final_step": 8, "seed": 1}, None)
    assert row["repeated_steps"] == 2
    features, models = schemas.TABLES["features"].frame([]), schemas.TABLES["models"].frame([row])
    log = files.log.assign(model="m")
    [training] = trainings_from_tables(features, files.metrics, log, models)
    assert training.notes == ("of 2 steps that were logged again, as after a restart, the last value counts",)
