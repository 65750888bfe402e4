"""Loss curves without weights: only forecasts, decisions and advice."""

import numpy as np
import pandas as pd
import pytest

import toposcale

pytestmark = pytest.mark.workflow

END = 2000
SIZES = {"curve-1m": 1_000_000, "curve-10m": 10_000_000}


def loss(steps, size):
    """A power law in the step towards a floor that falls with size."""
    return 1.5 + 40 * size**-0.25 + 8 * steps**-0.6


@pytest.fixture
def curves(workspace):
    """Two whole curves and one that has come to 40% of its way."""
    steps = np.arange(10, END + 1, 10)
    for name, size in SIZES.items():
        pd.DataFrame({"step": steps, "loss": loss(steps, size)}).to_csv(workspace.path / f"{name}.csv", index=False)
    live = steps[steps <= 0.4 * END]
    pd.DataFrame({"step": live, "loss": loss(live, 1_000_000)}).to_csv(workspace.path / "live.csv", index=False)
    entry = {"kind": "table", "tokens_per_step": 1000}
    workspace.config["models"] = {
        **{
            name: {**entry, "path": f"{name}.csv", "n_parameters": size, "family": "whole"}
            for name, size in SIZES.items()
        },
        "live": {**entry, "path": "live.csv", "n_parameters": 1_000_000, "final_step": END},
    }
    return workspace


def test_forecasts_and_decisions_need_no_weights(curves):
    curves.snakemake()
    tables = curves.results / "tables"
    forecasts = pd.read_parquet(tables / "forecasts.parquet")
    found = forecasts[(forecasts["method"] == "power_law") & (forecasts["fraction"] == 0.5)].set_index("model")
    for name, size in SIZES.items():
        assert found.loc[name, "forecast"] == pytest.approx(loss(END, size), abs=0.01)
    live = forecasts[(forecasts["model"] == "live") & (forecasts["method"] == "power_law")]
    assert len(live)
    assert live["actual"].isna().all()
    decisions = pd.read_parquet(tables / "decisions.parquet")
    assert set(decisions["model"]) == {"curve-1m"}
    assert len(pd.read_parquet(tables / "verdicts.parquet")) == 0
    models = pd.read_parquet(tables / "models.parquet").set_index("model")
    assert models["final_step"].to_dict() == {"curve-1m": END, "curve-10m": END, "live": END}
    drawn = {path.stem for path in (curves.results / "figures").glob("*.svg")}
    assert {"loss_curves", "forecast_comparison", "forecast_fans"} <= drawn
    assert "overview" not in drawn
    assert not (curves.results / "corpus").exists()

    of_run = toposcale.advise_run(curves.results)
    assert "live: step 800 of 2,000 (40%)" in of_run.text()
    # The same as the call from Python: tests/unit/test_doors.py compares the other doors with that.
    facts = {"n_parameters": 1_000_000, "tokens_per_step": 1000, "steps": END}
    advice = toposcale.advise(curves.path / "live.csv", **facts, name="live")
    assert of_run.as_json()["models"] == [dict(advice)]
    assert str(advice) in of_run.text()
    assert pd.read_parquet(tables / "advice.parquet").set_index("model").loc["live", "sentence"] == advice.sentence


def test_a_wrong_loss_table_is_named_in_one_line_while_planning(curves):
    (curves.path / "live.csv").write_text("step,perplexity\n1,2\n")
    done = curves.snakemake("--dry-run", "tables", check=False)
    assert done.returncode
    [line] = [line for line in done.stderr.splitlines() if line.startswith("toposcale: ")]
    assert line.startswith('toposcale: config key models.live.path holds "')
    assert 'live.csv", but must be a table with a step and a loss in each row' in line
    assert "live.csv: no column for loss; its columns are step, perplexity" in line


def test_steps_that_were_logged_again_count_as_logged_last_and_are_told(curves):
    steps = np.array([10, 20, 30, 20, 30, 40])
    pd.DataFrame({"step": steps, "loss": [5, 4.4, 9, 4, 3, 2.5]}).to_csv(curves.path / "live.csv", index=False)
    targets = ("tables/warnings.parquet", "tables/models.parquet", "training/live.parquet")
    curves.snakemake(*(f"results/small/{target}" for target in targets))
    log = pd.read_parquet(curves.results / "training/live.parquet")
    assert log["loss"].tolist() == [5, 4, 3, 2.5]
    table = pd.read_parquet(curves.results / "tables/warnings.parquet").set_index("model")
    again = "the log goes back to step 20, as after a restart: 2 rows before that were left out"
    assert again in table.loc["live", "warning"]
    models = pd.read_parquet(curves.results / "tables/models.parquet").set_index("model")
    assert models["log_notes"].to_dict() == {"curve-1m": "", "curve-10m": "", "live": again}
    # Advice needs more rows, and says what the call from Python says.
    steps = np.array([*range(10, 801, 10), 700, 800])
    losses = loss(steps, 1_000_000) + 0.01 * (np.arange(len(steps)) >= 80)
    pd.DataFrame({"step": steps, "loss": losses}).to_csv(curves.path / "live.csv", index=False)
    again = "the log goes back to step 700, as after a restart: 11 rows before that were left out"
    curves.snakemake("--nolock", "resolved_configuration")
    of_run = toposcale.advise_run(curves.results)
    assert again in of_run.text()
    [written] = of_run.as_json()["models"]
    facts = {"n_parameters": 1_000_000, "tokens_per_step": 1000, "steps": END}
    assert written == dict(toposcale.advise(curves.path / "live.csv", **facts, name="live"))
    assert again in written["assumed"]
