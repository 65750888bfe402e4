"""The data set of published runs: what is loaded, chosen, written and refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from toposcale.datasets import load_published_runs, published_runs
from toposcale.forecasting import TrainingRun
from toposcale.io.errors import UserError


@pytest.fixture(scope="module")
def runs():
    return load_published_runs()


def test_load_published_runs_gives_finished_runs_of_every_source(runs):
    assert set(runs.sources) == set(published_runs.SOURCES)
    assert all(isinstance(run, TrainingRun) and len(run.steps) == len(run.losses) > 0 for run in runs)
    assert len({run.model for run in runs}) == len(runs)
    first = runs[:3]
    assert first[0] is runs[0]
    assert (len(first), list(first)) == (3, [runs[0], runs[1], runs[2]])


def test_load_published_runs_is_the_rows_of_its_tables(runs):
    """An oracle: pandas reads the same files."""
    for folder in (published_runs.PACKAGED, published_runs.CLONED):
        rows = pd.read_csv(folder / "runs.csv").set_index("run")
        curves = pd.read_csv(folder / "curves.csv.gz")
        ends = curves.sort_values("step").groupby("run")["loss"].last()
        table = runs.table.loc[rows.index]
        assert table["end"].to_numpy() == pytest.approx(ends[rows.index].to_numpy())
        assert (table["n_parameters"] == rows["n_parameters"]).all()
        assert (table["steps"] == rows["steps"]).all()
        assert sum(len(run.steps) for run in runs if run.model in rows.index) == len(curves)


def test_load_published_runs_chooses_by_source_and_tags():
    chosen = load_published_runs(["lr-scheduling", "modded-nanogpt"], tags={"wsd", "muon"})
    assert {(run.source, run.shape, run.facts.optimizer) for run in chosen} == {("modded-nanogpt", "wsd", "muon")}
    with pytest.raises(UserError, match=r"wsdd: no run has this tag; the tags are .*wsd"):
        load_published_runs("modded-nanogpt", tags="wsdd")
    with pytest.raises(UserError, match=r"lr-schedule: no such source; the sources are .*lr-scheduling"):
        load_published_runs("lr-schedule")


def test_load_published_runs_says_where_the_rest_is(monkeypatch, tmp_path, runs):
    """As the package alone has it: every licence is stated, and a source without one is refused by name."""
    monkeypatch.setattr(published_runs, "CLONED", tmp_path)
    packaged = load_published_runs()
    licensed = {name for name, source in published_runs.SOURCES.items() if source.licence}
    assert set(packaged.sources) == licensed
    assert sum(run.source in licensed for run in runs) == len(packaged)
    with pytest.raises(UserError, match=r"NX-AI/xlstm_scaling_laws states no licence.*clone the repository"):
        load_published_runs(["xlstm", "lr-scheduling"])


def test_load_published_runs_has_each_run_once():
    packaged, cloned = (pd.read_csv(folder / "runs.csv") for folder in (published_runs.PACKAGED, published_runs.CLONED))
    assert not set(packaged["run"]) & set(cloned["run"])
    assert all(published_runs.SOURCES[name].licence for name in packaged["source"])
    assert not any(published_runs.SOURCES[name].licence for name in cloned["source"])
    assert sum(path.stat().st_size for path in published_runs.PACKAGED.iterdir()) < 750_000


def test_to_csv_is_read_again_as_the_same_runs(tmp_path):
    chosen = load_published_runs(["olmo-ladder", "lr-scheduling"])[40:70]
    chosen.to_csv(tmp_path / "some")
    again = load_published_runs(folder=tmp_path / "some")
    assert again.digest == chosen.digest
    assert [run.schedule.rates.tolist() for run in again] == [run.schedule.rates.tolist() for run in chosen]


def test_load_published_runs_reads_the_facts_of_a_recipe(tmp_path):
    load_published_runs("modded-nanogpt").to_csv(tmp_path)
    table = pd.read_csv(tmp_path / "runs.csv")
    table.assign(size="1536x12", weight_decay=0.1, weight_average="ema").to_csv(tmp_path / "runs.csv", index=False)
    run = load_published_runs(folder=tmp_path)[0]
    assert (run.facts.weight_decay, run.facts.weight_average, run.facts.aspect_ratio) == (0.1, "ema", 128.0)
    assert not run.is_usual


def test_digest_changes_with_one_loss(runs):
    some = runs[:2]
    losses = some[1].losses + np.where(some[1].steps == some[1].steps[-1], 1e-9, 0)
    moved = replace(some, runs=(some[0], replace(some[1], losses=losses)))
    assert moved.digest != some.digest == runs[:2].digest


def test_load_published_runs_refuses_a_broken_folder(tmp_path):
    with pytest.raises(UserError, match=r"runs.csv: no such file; a folder of published runs has runs.csv"):
        load_published_runs(folder=tmp_path)
    load_published_runs("lr-scheduling").to_csv(tmp_path)
    (tmp_path / "schedules.csv.gz").unlink()
    with pytest.raises(UserError, match=r"its schedule is `given`, but schedules.csv.gz has no row of it"):
        load_published_runs(folder=tmp_path)


def test_published_run_until_a_share_holds_nothing_later(runs):
    run = next(run for run in runs if run.source == "multi-power-law")
    now = run.first(0.3)
    assert (now.source, now.size, now.split) == (run.source, run.size, run.split)
    for steps in (now.steps, now.checkpoint_steps):
        assert steps[-1] <= 0.3 * run.final_step
        assert steps.base is None or len(steps.base) == len(steps)


def test_published_runs_page_states_version_checksum_and_sources(runs):
    page = (ROOT / "docs/published-runs.md").read_text()
    assert f"version {published_runs.VERSION}" in page
    assert load_published_runs(tags="seen").digest[:16] in page
    for name, source in published_runs.SOURCES.items():
        counts = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert len(counts) == 1, name
        assert f"| {sum(run.source == name for run in runs)} |" in counts[0]
        assert f"| {source.licence or 'none stated'} |" in counts[0]
