"""The forecast of a monitored training: that of the advice, or none where a fact is not known."""

import numpy as np
import pandas as pd
import pytest

import toposcale
from toposcale.io import tables
from toposcale.monitor.alerts import AlertKind
from toposcale.monitor.folder import Folder
from toposcale.monitor.outlook import outlook
from toposcale.monitor.records import add

FINAL, SIZE, TOKENS = 1600, 60_000_000, 500_000
SCHEDULE = {"shape": "cosine", "warmup_steps": 100, "peak": 1e-3, "final": 1e-4, "steps": FINAL}
FACTS = {"n_parameters": SIZE, "tokens_per_step": TOKENS, "final_step": FINAL, "schedule": SCHEDULE}


def curve(size, until, shift=0.0):
    steps = np.arange(10, int(until * FINAL) + 1, 10)
    rates = 1e-4 + 9e-4 * 0.5 * (1 + np.cos(np.pi * (steps - 100) / 1500))
    rates = np.where(steps < 100, 1e-3 * (steps + 1) / 100, rates)
    noise = 0.004 * np.random.default_rng(size).normal(size=len(steps))
    loss = 1.9 + 30 * size**-0.25 + 6 * steps**-0.5 - 0.15 * (1 - rates / 1e-3) * (steps > 100) + noise
    return pd.DataFrame({"step": steps, "loss": loss + shift, "learning_rate": rates})


def written(path, name, columns, **facts):
    folder = Folder(path, name)
    (path / "models").mkdir(exist_ok=True)
    folder.write_facts(**FACTS | facts)
    add(folder, "training", int(columns["step"].max()), columns.assign(gradient_norm=np.nan).to_dict("records"))
    return folder


def test_the_forecast_is_that_of_the_advice(tmp_path):
    live = curve(SIZE, 0.5)
    curves, alerts = outlook(written(tmp_path, "live", live))
    advice = toposcale.advise(live, **{key: FACTS[key] for key in ("n_parameters", "tokens_per_step", "schedule")})
    expected = {"": advice["forecast"], "_low": advice["forecast_low"], "_high": advice["forecast_high"]}
    assert curves == pytest.approx({f"estimated_final_loss{end}": value for end, value in expected.items()}, rel=1e-9)
    assert alerts == ()


@pytest.mark.parametrize("unknown", ["n_parameters", "tokens_per_step", "final_step", "schedule"])
def test_without_a_fact_there_is_no_forecast(tmp_path, unknown):
    columns = curve(SIZE, 0.5).assign(learning_rate=np.nan)
    assert outlook(written(tmp_path, "live", columns)).curves
    (tmp_path / "models" / "live.json").unlink()
    assert outlook(written(tmp_path, "live", columns, **{unknown: None})) == ({}, ())


def test_a_finished_training_and_a_rising_one_have_no_forecast(tmp_path):
    assert outlook(written(tmp_path, "done", curve(SIZE, 1.0))) == ({}, ())
    rising = curve(SIZE, 0.5)
    rising.loc[60:, "loss"] += 1
    assert outlook(written(tmp_path, "rising", rising)).curves == {}


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_outlook_of_a_loss_off_track_of_three_sizes(tmp_path, shift):
    for size in (5_000_000, 12_000_000, 25_000_000):
        written(tmp_path, f"of-{size}", curve(size, 1.0), n_parameters=size)
    found = outlook(written(tmp_path, "live", curve(SIZE, 0.5, shift))).alerts
    assert [alert.kind for alert in found] == ([AlertKind.OFF_TRACK] if shift else [])
    (tmp_path / "models" / "of-5000000.json").write_text("{}")
    assert outlook(Folder(tmp_path, "live")).alerts == ()


def test_outlook_reads_a_file_again_only_if_it_changed(tmp_path, monkeypatch):
    live, files = curve(SIZE, 0.5), []
    read = tables.read
    monkeypatch.setattr(tables, "read", lambda table, path: files.append(path.name) or read(table, path))
    for until in (400, 800):
        folder = written(tmp_path, "live", live[(live["step"] > until - 400) & (live["step"] <= until)])
    whole = outlook(folder)
    assert files == ["step-00000400.parquet", "step-00000800.parquet"]
    assert outlook(folder) == whole
    assert len(files) == 2
    written(tmp_path, "live", live[live["step"].between(300, 400)].assign(loss=3.5))
    files.clear()
    assert outlook(folder) != whole
    assert files == ["step-00000400.parquet"]
