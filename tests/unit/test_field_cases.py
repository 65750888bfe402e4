"""What is read of logs as people have them, which lie outside the repository, as recorded in `field_answers.csv`."""

import csv
import json
import os
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toposcale.forecasting.logs import loss_curves
from toposcale.io.errors import UserError

DATA = Path(os.environ.get("TOPOSCALE_SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
with (Path(__file__).parent / "field_answers.csv").open(newline="") as stream:
    ANSWERS = [*csv.DictReader(stream)]


def answer(path, tmp_path):
    """Number of losses and of validation losses, first and last step, and the facts; or the words of the question."""
    try:
        curve = loss_curves.read(path)
    except UserError as error:
        if "with a loss: --pattern" in str(error):
            option = shlex.split(str(error).partition("with a loss: ")[2])
            assert len(loss_curves.read(path, pattern=option[1]).columns["step"]) > 1
        if "choose one with --run" in str(error):
            assert len(loss_curves.read(path, run=1).columns["step"]) > 1
        if "agrees with it: --loss-column" in str(error):
            named = str(error).partition("agrees with it: --loss-column ")[2].split()[0]
            assert len(loss_curves.read(path, loss_column=named).columns["step"]) > 1
        if "give one: jq ." in str(error):
            rows = json.loads(path.read_text())[str(error).partition("jq .")[2].split()[0]]
            assert loss_curves.of_columns(pd.DataFrame(rows)).columns["step"].size == len(rows)
        if "holds a text log" in str(error):
            text = "\n".join(json.loads(line)["log"].strip() for line in path.read_text().splitlines())
            (tmp_path / "text.log").write_text(text + "\n")
            assert len(loss_curves.read(tmp_path / "text.log").columns["step"]) > 1
        return {"question": " ".join(str(error).removeprefix(f"{path}: ").split()[:6])}
    n, n_validation = (
        int(np.sum(~np.isnan(curve.columns.get(name, np.empty(0))))) for name in ("loss", "validation_loss")
    )
    steps = curve.columns["step"]
    facts = {name: getattr(curve.facts, name) for name in ("final_step", "tokens_per_step", "n_parameters")}
    known = {name: int(value) for name, value in facts.items() if value is not None and value == value}
    return {"losses": n, "validation": n_validation, "first": int(steps[0]), "last": int(steps[-1])} | known


@pytest.mark.parametrize("row", ANSWERS, ids=[row["file"] for row in ANSWERS])
def test_field_case_is_read_as_recorded(row, tmp_path):
    path = DATA / row["file"]
    if not path.exists():
        pytest.skip(f"the shared data is not here: {row['file']}")
    recorded = {name: value for name, value in row.items() if name != "file" and value}
    assert {name: str(value) for name, value in answer(path, tmp_path).items()} == recorded
