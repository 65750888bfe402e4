"""What scripts do with files that a user has, without a run around it."""

import json
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest

import advice
import metrics_table
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
    """The manifest names a folder that is not there: its weights were removed after they had been measured."""
    folder = tmp_path / "checkpoints/pythia"
    folder.mkdir(parents=True)
    (folder / "step-00000008.json").write_text(json.dumps({"folder": str(tmp_path / "gone")}))
    sizes = {"n_parameters": 70, "largest_matrix": 9, "n_matrices": 3}
    (folder / "step-00000008.size.json").write_text(json.dumps(sizes))
    log = pd.DataFrame({"step": [], "learning_rate": []})
    params = SimpleNamespace(models={"pythia": {"family": "pythia", "final_step": 8}}, weights={}, curves={})
    row, knots = advice.plan_of("pythia", SimpleNamespace(log=log), tmp_path, params)
    assert (row["n_parameters"], row["final_step"]) == (70, 8)
    assert knots == []
