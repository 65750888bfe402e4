"""One training, told through every door: the same forecast, the same choice, and as confident.

The doors: columns and files from Python, the command, the folder of a Trainer, the tables of a run, and the watch page on
the folder of a monitor. tests/workflow/test_curves.py holds `make advice` against them.
"""

import json

import numpy as np
import pandas as pd
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.analysis.decisions import decision_tables
from toposcale.analysis.model_rows import rows_of_model
from toposcale.analysis.user_tables import log_columns, metric_table
from toposcale.forecasting.logs import loss_curves
from toposcale.io import schemas
from toposcale.monitor.folder import Folder
from toposcale.monitor.records import add
from toposcale.pages.watch import Follower

FINAL, SIZE, TOKENS = 1600, 60_000_000, 500_000
SMALLER = 15_000_000
SCHEDULE = {"shape": "cosine", "warmup_steps": 100, "peak": 1e-3, "final": 1e-4, "steps": FINAL}
SAME = (
    *("step", "final_step", "loss", "forecast", "forecast_low", "forecast_high", "models_read", "choice", "confident"),
    *("probability", "scale_up_probability", "gain", "gain_low", "gain_high", "expected_regret"),
    *("low_confidence_reasons", "best_size"),
)


def curve(size, until):
    steps = np.arange(10, int(until * FINAL) + 1, 10)
    rates = np.where(
        steps < 100, 1e-3 * (steps + 1) / 100, 1e-4 + 9e-4 * 0.5 * (1 + np.cos(np.pi * (steps - 100) / 1500))
    )
    noise = 0.004 * np.random.default_rng(size).normal(size=len(steps))
    loss = 1.9 + 30 * size**-0.25 + 6 * steps**-0.5 - 0.15 * (1 - rates / 1e-3) * (steps > 100) + noise
    return pd.DataFrame({"step": steps, "loss": loss, "learning_rate": rates})


LIVE, DONE = curve(SIZE, 0.5), curve(SMALLER, 1.0)
OPTIONS = {"n_parameters": SIZE, "tokens_per_step": TOKENS, "schedule": SCHEDULE, "steps": FINAL}


@pytest.fixture(scope="module", params=["alone", "beside a smaller run"])
def known(request):
    return request.param != "alone"


@pytest.fixture(scope="module")
def advice(known):
    """What the call from Python says of columns."""
    others = [{"curve": DONE, "n_parameters": SMALLER, "name": "done"}] if known else []
    return toposcale.advise(LIVE, **OPTIONS, known=others, name="live")


def assert_same(other, advice):
    for key in SAME:
        assert other[key] == (pytest.approx(advice[key], rel=1e-9) if advice[key] else advice[key]), key


def test_it_has_an_answer(advice, known):
    assert advice["choice"]
    assert advice["models_read"] == 1 + known


def test_what_is_not_stated_of_a_known_run_is_as_in_this_run(advice, known):
    if known:
        blind = DONE.drop(columns="learning_rate")
        others = [{"curve": blind, "n_parameters": SMALLER}]
        assert_same(toposcale.advise(LIVE, **OPTIONS, known=others), advice)


def test_the_command_says_the_same(advice, known, tmp_path, capsys):
    LIVE.to_csv(tmp_path / "live.csv", index=False)
    DONE.to_csv(tmp_path / "done.csv", index=False)
    plan = ("--schedule", "cosine", "--warmup-steps", 100, "--peak", 1e-3, "--final", 1e-4, "--steps", FINAL)
    arguments = [tmp_path / "live.csv", "--n-parameters", SIZE, "--tokens-per-step", TOKENS, *plan]
    arguments += ["--known", f"{tmp_path / 'done.csv'}:{SMALLER}"] if known else []
    assert main(["advise", "--json", *map(str, arguments)]) == 0
    assert_same(json.loads(capsys.readouterr().out), advice)


def test_the_folder_of_a_trainer_says_the_same(advice, known, tmp_path):
    state = {"log_history": LIVE.to_dict("records"), "max_steps": FINAL, "global_step": FINAL // 2}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    others = [{"curve": DONE, "n_parameters": SMALLER}] if known else []
    assert_same(toposcale.advise(tmp_path, **OPTIONS, known=others), advice)


def test_rows_of_model_have_the_facts_that_check_reads_in_a_log():
    columns = {"step": np.arange(10, 601, 10), "loss": np.full(60, 3.0), "total_steps": np.full(60, 600)}
    lines = list(toposcale.check_curve(columns | {"tokens_per_step": np.full(60, 5e5)}, "run"))
    assert "  known           tokens per step 500,000 (from the log), last step 600 (from the log)" in lines
    curve = loss_curves.of_columns(columns | {"tokens_per_step": np.full(60, 5e5)})
    row = rows_of_model(
        "m", {}, steps=columns["step"], rates=np.full(60, np.nan), columns_of_log=log_columns(curve)
    ).model
    assert (row["final_step"], row["tokens_per_step"], row["is_end_known"]) == (600, 500_000, True)
    stated = {"final_step": 900, "tokens_per_step": 1000}
    stated_row = rows_of_model("m", stated, rates=(), columns_of_log=log_columns(curve)).model
    assert (stated_row["final_step"], stated_row["tokens_per_step"]) == (900, 1000)
    assert set(row) >= {"log_notes", "log_low_confidence_reasons"}
    assert not {"log_final_step", "log_tokens_per_step"} & set(row)


def test_the_tables_of_a_run_say_the_same(advice, known):
    models, schedules, logs, metrics = [], [], [], []
    for name, size, columns in (("live", SIZE, LIVE), ("done", SMALLER, DONE))[: 1 + known]:
        facts = {"family": "one", "seed": 0, "n_parameters": size, "tokens_per_step": TOKENS, "final_step": FINAL}
        facts["schedule"] = SCHEDULE
        rows = rows_of_model(name, facts, steps=columns["step"], rates=columns["learning_rate"])
        losses = loss_curves.of_columns(columns)
        logs.append(pd.DataFrame(losses.log()).assign(model=name))
        metrics.append(metric_table(losses, name).to_pandas())
        models.append(rows.model)
        schedules += rows.schedule
    tables = decision_tables(
        features=schemas.TABLES["features"].frame([]),
        metrics=pd.concat(metrics),
        models=schemas.TABLES["models"].frame(models).assign(configuration="one"),
        training=pd.concat(logs),
        schedules=schemas.TABLES["schedules"].frame(schedules),
        fractions=[0.3],
        decision={"remaining": None, "multiples": [2, 4]},
        seed=1,
        resamples=20,
    )
    row = tables["advice"].set_index("model").loc["live"]
    for key in ("choice", "confident", *(key for key in SAME if key in row.index and key != "choice")):
        expected = advice[key]
        assert row[key] == (pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected) or (
            key == "low_confidence_reasons"
        )
    assert row["sentence"] == advice.sentence
    options = tables["candidates"][tables["candidates"]["model"] == "live"].set_index("candidate")
    for option in advice["candidates"]:
        assert options.loc[option["candidate"], "loss"] == pytest.approx(option["loss"], rel=1e-9)
        assert options.loc[option["candidate"], "is_confident"] == (
            advice["confident"] and option["candidate"] == advice["choice"]
        )


def test_the_watch_page_says_the_same(advice, known, tmp_path):
    for name, size, columns in (("live", SIZE, LIVE), ("done", SMALLER, DONE))[: 1 + known]:
        folder = Folder(tmp_path, name)
        (tmp_path / "models").mkdir(exist_ok=True)
        folder.write_facts(n_parameters=size, tokens_per_step=TOKENS, final_step=FINAL, schedule=SCHEDULE)
        last = int(columns["step"].max())
        add(folder, "training", last, columns.assign(gradient_norm=np.nan).to_dict("records"))
        rows = [{"model": name, "step": last, "metric": "training_loss", "value": columns["loss"].iloc[-1]}]
        add(folder, "metrics/monitor", last, rows)
    follower = Follower(tmp_path)
    follower.refresh()
    # Alerts and the answers about the run stand before the advice.
    texts = [part["advice"] for part in follower.parts.values() if "advice" in part]
    assert any(text == str(advice) or text.endswith(f"\n{advice}") for text in texts)
