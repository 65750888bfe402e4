"""The tables of a run: what is gathered, analysed and drawn follows from what the configuration measures."""

import pytest

import config_reading
import inputs
import plan
import run_tables

SIZES = {"d_model": 8, "n_layers": 1, "n_heads": 1}
LANDSCAPE_TABLES = {"surfaces", "densities", "profiles", "path_surfaces", "trajectories"}


def plan_of(**keys):
    return plan.Plan(config_reading.resolve({"run": "mine", "models": {"a": SIZES}, **keys}))


@pytest.fixture
def tables_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(**keys):
        training = {"steps": 20, "checkpoint_every": 10, "warmup_steps": 1}
        return run_tables.RunTables(inputs.Inputs(plan_of(**{"training": training} | keys)))

    return of


def test_a_table_is_gathered_where_there_is_something_to_gather(tables_of):
    planned = {"kind": "planned", "n_parameters": 9, "schedule": {"shape": "linear", "peak": 1, "steps": 9}}
    nothing = tables_of(models={"p": planned})
    assert nothing.gathered == {"features": []}
    small = tables_of(embeddings={"enabled": False}, trajectory={"enabled": False}, weights={"distances": False})
    assert set(small.gathered) == {"features"}
    assert [part.file for part in small.gathered["features"]] == [
        f"results/mine/features/weights/a/step-000000{step}.parquet" for step in ("00", "10", "20")
    ]
    assert LANDSCAPE_TABLES.isdisjoint(tables_of().gathered)
    assert set(tables_of(landscape={"enabled": True}).gathered) >= LANDSCAPE_TABLES


def test_features_come_from_every_source(tables_of):
    parts = tables_of(landscape={"enabled": True}).gathered["features"]
    folders = {tuple(part.file.split("/")[2:4]) for part in parts}
    sources = {"weights", "embeddings", "landscape", "gradients"}
    assert folders == {
        *(("features", source) for source in [*sources, "trajectory"]),
        *(("distances", source) for source in sources),
        ("divergences", "a.parquet"),
    }


def test_an_analysis_is_made_where_its_subject_is(tables_of):
    without, whole = tables_of(), tables_of(landscape={"enabled": True}, forecasts={"metrics": ["acc"]})
    assert set(whole.analyses) - set(without.analyses) == {"scores"}
    for found in (without, whole):
        assert set(found.made) <= set(found.files)
        for analysis in found.analyses.values():
            assert set(analysis.reads) <= set(found.files)
            assert set(analysis.settings) <= set(run_tables.analysis_settings(plan_of()))


def test_a_figure_is_drawn_where_its_tables_and_features_are(tables_of):
    without, whole = tables_of(embeddings={"enabled": False}), tables_of(landscape={"enabled": True})
    assert set(without.figures) < set(whole.figures)
    assert {figure.source for figure in without.figures.values()} <= {"metrics", "weights"}
    assert sorted(name for names in whole.subjects.values() for name in names) == sorted(whole.figures)
