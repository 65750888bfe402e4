"""What scripts do with files that a user has, without a run around it."""

import json

import pyarrow as pa
import pytest

import metrics_table
import models_table
from toposcale.analysis.run_folder import Progress
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.io import schemas, tables
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
    facts, files = {"family": "pythia", "final_step": 8}, {"sizes": [str(path), str(missing)]}
    rows = Progress("pythia", {"facts": facts, "files": files, "curve": None}, [], tmp_path).rows()
    assert (rows.model["n_parameters"], rows.model["final_step"]) == (70, 8)
    assert rows.schedule == []


def test_warm_up_and_end_that_nobody_stated_are_those_of_the_training_log():
    steps, rates = [1, 2, 3, 4], [0.1, 0.2, 0.1, 0.05]
    row = models_table.rows_of_model("m", {"last_checkpoint": 3}, steps=steps, rates=rates).model
    assert (row["final_step"], row["warmup_steps"]) == (4, 2)
    stated = {"last_checkpoint": 3, "final_step": 9, "warmup_steps": 1}
    row = models_table.rows_of_model("m", stated, steps=steps, rates=rates).model
    assert (row["final_step"], row["warmup_steps"]) == (9, 1)


def test_steps_that_were_logged_again_are_a_fact_of_the_model_and_a_note_on_its_training(tmp_path):
    """The log keeps only the last row, so nothing else tells of them."""
    (tmp_path / "losses.csv").write_text("step,loss\n1,5\n2,4.4\n3,9\n2,4\n3,3\n4,2.5\n")
    facts = {"n_parameters": 9, "final_step": 8, "seed": 1}
    progress = Progress("m", {"facts": facts, "files": {}, "curve": str(tmp_path / "losses.csv")}, [], tmp_path)
    row = progress.rows().model
    again = "the log goes back to step 2, as after a restart: 2 rows before that were left out"
    assert (row["log_notes"], row["log_low_confidence_reasons"]) == (again, "")
    features, models = schemas.TABLES["features"].frame([]), schemas.TABLES["models"].frame([row])
    log = progress.log.assign(model="m")
    [training] = trainings_from_tables(features, progress.metrics, log, models)
    assert training.notes == (again,)
