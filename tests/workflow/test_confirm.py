"""What a search found, fresh runs of the same models, and what the report says of both: as `make confirm` does it."""

import json
import os
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from paths import ROOT
from toposcale.io import schemas, tables
from workspace import new_workspace

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("confirm")]
FINDING = {
    **{"question": "beyond_the_norm", "source": "weights", "layer": "all", "feature": "h0_total_scaled"},
    **{"metric": "validation_loss", "control": "weight_norm", "estimate": 0.5, "direction": "positive"},
    **{"p": 1e-4, "q": 0.01, "n_searched": 80, "n_seeds": 1},
}


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """A run that was searched: weights of one tiny model, with checkpoints enough for the tests."""
    run = new_workspace(tmp_path_factory.mktemp("search") / "work")
    run.config["models"] = {"one": run.config["models"]["one"]}
    run.config["training"] |= {"checkpoint_every": 2, "warmup_steps": 2}
    run.config["embeddings"] = run.config["trajectory"] = {"enabled": False}
    run.snakemake("--", "findings_file")
    return run


@pytest.fixture
def searched(search, tmp_path):
    return search.copied(tmp_path / "copy")


def fresh(run):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "workflow/fresh.py"), "config.yaml"]
    return subprocess.run(command, cwd=run.path, env=environment, capture_output=True, text=True, check=True)


def test_a_finding_is_tested_again_on_fresh_runs_and_the_report_tells_both(searched):
    record = json.loads((searched.results / "confirm.json").read_text())
    assert (record["run"], record["seeds"], record["fresh_run"]) == ("small", {"one": 42}, "small-confirm")
    # What is not there by chance is planted: the search has one finding, which knows nothing of the loss.
    table = schemas.TABLES["findings"]
    planted = pa.Table.from_pandas(table.frame([FINDING]), table.schema, preserve_index=False)
    tables.write(planted, searched.results / "tables/findings.parquet", {})
    searched.snakemake("--", "findings_file")
    [finding] = json.loads((searched.results / "confirm.json").read_text())["findings"]
    assert (finding["feature"], finding["direction"]) == ("h0_total_scaled", "positive")

    made = fresh(searched).stdout.strip()
    assert made == "results/small/confirm.yaml"
    searched.snakemake("--configfile", str(searched.path / made), "--", "measured")
    models = pd.read_parquet(searched.path / "results/small-confirm/tables/models.parquet")
    assert list(models["seed"]) == [43]

    searched.snakemake("--", "summary")
    [row] = pd.read_parquet(searched.results / "tables/confirmation.parquet").to_dict("records")
    assert (row["fresh_run"], row["answer"]) == ("small-confirm", "not confirmed")
    assert 0.05 < row["p"] <= 1
    said = pd.read_parquet(searched.results / "tables/summary.parquet").set_index("question")
    again = said.loc["Are the findings confirmed with fresh seeds?"]
    assert again["verdict"] == "Not confirmed"
    assert "had an estimate of 0.50 in the search and" in again["numbers"]
    # Nothing is trained a second time.
    assert "train" not in searched.planned("summary")


def test_a_search_that_found_nothing_trains_nothing(searched):
    record = searched.results / "confirm.json"
    if json.loads(record.read_text())["findings"]:
        record.write_text(json.dumps({"findings": [], "obstacle": ""}))
    done = fresh(searched)
    assert (done.stdout, "nothing to confirm" in done.stderr) == ("", True)
