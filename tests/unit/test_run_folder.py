"""The folder of a run of the workflow as a door to the advice, whatever the run has written so far."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

SIZE, TOKENS, FINAL = 60_000_000, 500_000, 1600
FACTS = {"n_parameters": SIZE, "tokens_per_step": TOKENS, "final_step": FINAL}


def log(until):
    steps = np.arange(10, until + 1, 10)
    losses = 1.9 + 6 * steps**-0.5 + 0.004 * np.random.default_rng(0).normal(size=len(steps))
    return pd.DataFrame({"step": steps, "loss": losses, "gradient_norm": np.nan, "learning_rate": 1e-3})


@pytest.fixture
def run(tmp_path):
    """A run whose model writes its log in two parts, of which the second is not there yet; and one without a loss."""
    folder = tmp_path / "results" / "mine"
    parts = [f"results/mine/training/m/step-{step:08d}.parquet" for step in (800, FINAL)]
    stored = {"facts": FACTS | {"family": "f", "seed": 1}, "curve": None, "is_planned": False}
    models = {"m": stored | {"files": {"training": parts}}, "later": stored | {"files": {}}}
    decision = {"remaining": None, "multiples": [2, 4], "target_loss": None}
    schema = schemas.TABLES["training"].schema
    rows = log(800)
    tables.write(pa.Table.from_pandas(rows, schema, preserve_index=False), tmp_path / parts[0], {})
    (folder / "progress.json").write_text(json.dumps({"models": models, "tables": [], "decision": decision}))
    return folder


def test_a_run_under_way_is_advised_as_its_losses_are(run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path / "results")  # not where the run was made
    monkeypatch.setenv("COLUMNS", "10000")  # no line is broken
    of_run = toposcale.advise_run(run)
    columns = log(800)[["step", "loss", "learning_rate"]]
    expected = toposcale.advise(columns, n_parameters=SIZE, tokens_per_step=TOKENS, steps=FINAL, name="m")
    assert [dict(advice) for advice in of_run.advices] == [dict(expected)]
    assert of_run.notes == ["later: no loss of it is known yet, so there is nothing to forecast"]
    assert main(["advise", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == of_run.as_json()
    assert main(["advise", "mine"]) == 0
    assert capsys.readouterr().out.rstrip() == of_run.text()


def test_advise_run_leaves_the_folder_of_the_process(run, capsys, monkeypatch, tmp_path):
    curve = log(800)[["step", "loss"]]
    curve.to_csv(tmp_path / "losses.csv", index=False)
    file = run / "progress.json"
    stored = json.loads(file.read_text())
    stored["models"]["m"] |= {"curve": "losses.csv", "files": {}}
    file.write_text(json.dumps(stored))
    expected = toposcale.advise(curve, n_parameters=SIZE, tokens_per_step=TOKENS, steps=FINAL, name="m")
    monkeypatch.chdir(run)
    monkeypatch.setattr(os, "chdir", None)
    assert [dict(advice) for advice in toposcale.advise_run(".").advices] == [dict(expected)]
    (tmp_path / "losses.csv").unlink()
    with pytest.raises(UserError, match=r"\.\./\.\./losses\.csv: no such file"):
        toposcale.advise_run(run)


def test_advise_run_reads_a_log_by_its_pattern(run, tmp_path):
    rows = log(800)[["step", "loss"]].itertuples(index=False)
    (tmp_path / "main.log").write_text("".join(f"at {step} we are at {loss}\n" for step, loss in rows))
    file = run / "progress.json"
    stored = json.loads(file.read_text())
    pattern = r"at (?P<step>\d+) we are at (?P<loss>[\d.]+)"
    stored["models"]["m"] |= {"curve": "main.log", "pattern": pattern, "files": {}}
    file.write_text(json.dumps(stored))
    assert [dict(advice)["step"] for advice in toposcale.advise_run(run).advices] == [800]


def test_advise_command_refuses_options_with_a_run(run, capsys):
    assert main(["advise", str(run), "--n-parameters", "25M", "--sizes", "100M"]) == 1
    assert "--n-parameters and --sizes: not used with the folder of a run" in capsys.readouterr().err
    assert main(["advise", str(run), "--latex"]) == 1
    assert "--latex: not used with the folder of a run" in capsys.readouterr().err


def test_a_run_that_has_not_begun_is_said(run):
    (run / "training/m/step-00000800.parquet").unlink()
    assert toposcale.advise_run(run).notes == [
        f"Nothing is known of any model in {run}: start the run, and ask again after some checkpoints."
    ]
    (run / "progress.json").write_text("{")
    with pytest.raises(UserError, match=r"not the folder of a run: it has no readable progress\.json"):
        toposcale.advise_run(run)


def test_a_curve_is_advised_without_what_reads_tables(tmp_path):
    log(800)[["step", "loss"]].to_csv(tmp_path / "losses.csv", index=False)
    code = (
        "import sys; from toposcale.__main__ import main; main(sys.argv[1:]);"
        "readers = {'toposcale.analysis.run_folder', 'toposcale.io.tables', 'pyarrow.parquet'};"
        "print(readers & {*sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "advise", str(tmp_path / "losses.csv"), "--n-parameters", "60M"]
    command += ["--tokens-per-step", "500000", "--steps", "1600"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "set()\n"
