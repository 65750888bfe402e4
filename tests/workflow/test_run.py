"""The workflow as a user runs it: complete, repeatable to the byte, and doing no more than it has to."""

import re
import shutil

import pandas as pd
import pytest

import toposcale
from toposcale.figures import FIGURES

# One worker for all of them: each runs Snakemake in the folder of the finished run.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("finished")]


def test_a_run_makes_every_table_and_figure(finished):
    features = pd.read_parquet(finished.results / "tables" / "features.parquet")
    metrics = pd.read_parquet(finished.results / "tables" / "metrics.parquet")
    models = pd.read_parquet(finished.results / "tables" / "models.parquet")
    assert list(models["model"]) == ["one", "two"]
    checkpoints = {(model, step) for model in ("one", "two") for step in range(0, 41, 8)}
    for table in (features, metrics):
        assert set(zip(table["model"], table["step"], strict=True)) == checkpoints
    assert set(features["source"]) == {"weights", "embeddings", "landscape", "gradients", "trajectory"}
    figures = {path.stem for path in (finished.results / "figures").glob("*.svg")}
    assert {"overview", "crocker", "surface_and_merge_tree", "contour_with_path"} <= figures
    features = features[features["source"] == "weights"]
    whole = features[features["layer"] == "all"].set_index(["model", "step", "feature"])["value"]
    layers = features[features["layer"] != "all"].groupby(["model", "step", "feature"])["value"]
    total = layers.sum().loc[("two", 40, "h0_total")]
    assert whole.loc[("two", 40, "h0_total")] == pytest.approx(total)
    squares = layers.agg(lambda norms: (norms**2).sum() ** 0.5)
    assert whole.loc[("two", 40, "frobenius_norm")] == pytest.approx(squares.loc[("two", 40, "frobenius_norm")])
    log = pd.read_parquet(finished.results / "training" / "two.parquet")
    assert list(log["step"]) == list(range(41))


@pytest.mark.parametrize("name", ["report", "explorer"])
def test_a_page_is_one_file_without_the_network(finished, name):
    page = (finished.results / f"{name}.html").read_text()
    assert not re.search(r"""<(script|link|img)[^>]+(src|href)=["']https?://""", page)
    assert not re.search(r"@import|url\(['\"]?https?:", page)
    assert len(page) < 15_000_000


def test_the_report_of_snakemake_holds_every_figure_under_its_chapter(finished, tmp_path):
    finished.snakemake("--report", str(tmp_path / "snakemake.html"))
    page = (tmp_path / "snakemake.html").read_text()
    drawn = [FIGURES[path.stem] for path in (finished.results / "figures").glob("*.svg")]
    assert len(drawn) > 10
    assert [entry.title for entry in drawn if entry.title not in page or entry.subject not in page] == []
    # And the code of a rule that is one of a loop.
    assert "Run one analysis of `toposcale.analysis`" in page


def test_a_second_run_does_nothing_and_says_so(finished):
    done = finished.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_without_the_records_of_snakemake_the_same_run_is_done_and_another_one_is_refused(finished, tmp_path):
    run = finished.copied(tmp_path / "copy")
    shutil.rmtree(run.path / ".snakemake")
    done = run.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    run.config["statistics"]["resamples"] += 1
    done = run.snakemake(check=False)
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    tables = f"results/{run.config['run']}/tables"
    assert last.startswith(f"toposcale: compared: {tables}/")
    assert last.endswith(f"and Snakemake has no record of it; delete {tables}, or all of the run, and run again")


def test_with_the_records_of_snakemake_what_changes_is_made_again(finished, tmp_path):
    run = finished.copied(tmp_path / "copy")
    run.config["hub"] = {"cache": "elsewhere"}
    assert "compared" not in run.planned()
    run.config["decision"] = {"remaining": 1e9}
    assert run.planned()["compared"] == 1
    run.snakemake()
    done = run.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_targets_have_the_names_a_user_expects(finished):
    done = finished.snakemake("--dry-run", "--", "tables", "figures", "report", "explorer", "landscape")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_the_measurements_are_written_as_csv_where_that_is_asked_for(finished, tmp_path):
    run = finished.copied(tmp_path / "copy")
    assert run.planned("csv") == {"csv": 1, "table_csv": 3}
    run.snakemake("--", "csv", f"results/{run.config['run']}/tables/surfaces.csv")
    for name in ("features", "metrics", "models", "surfaces"):
        table = run.results / "tables" / f"{name}.parquet"
        written = pd.read_csv(table.with_suffix(".csv"))
        expected = pd.read_parquet(table).replace({"": None}).dropna(axis=1, how="all")
        pd.testing.assert_frame_equal(written[expected.columns], expected, check_dtype=False, rtol=1e-14)


def planned(run, *targets):
    """Jobs by rule that a dry run announces, of the rules that make or read checkpoints."""
    counts = run.planned(*targets)
    rules = ("train", "weight_features", "embeddings", "loss_landscape", "training_path")
    return {rule: counts[rule] for rule in rules if rule in counts}


def test_a_file_that_is_gone_or_changed_reruns_what_follows_from_it(finished, tmp_path):
    """One job trains or measures all checkpoints of a model; one checkpoint counts all the same."""
    weights, features = (finished.results / name for name in ("checkpoints/one", "features/weights/one"))
    checkpoint, measured = weights / "step-00000016.safetensors", features / "all.parquet"
    kept = {path: shutil.copy2(path, tmp_path) for path in (checkpoint, measured)}
    try:
        # Snakemake makes a file again where something needs it.
        target = str(measured.relative_to(finished.path))
        measured.unlink()
        assert planned(finished, target) == {"weight_features": 1}
        checkpoint.unlink()
        assert planned(finished, target) == {"train": 1, "weight_features": 1}
        shutil.copy2(kept[measured], measured)
        checkpoint.write_bytes(b"something else")
        assert planned(finished) == {"weight_features": 1, "training_path": 1}
    finally:
        for path, copy in kept.items():
            shutil.copy2(copy, path)
    assert planned(finished) == {}


def test_checkpoints_more_often_are_trained_and_measured(finished):
    finished.config["training"]["checkpoint_every"] = 4
    try:
        found = planned(finished)
    finally:
        finished.config["training"]["checkpoint_every"] = 8
    assert (found["train"], found["weight_features"]) == (2, 2)


def test_advice_on_finished_trainings_says_that_nothing_is_left_to_decide(finished):
    of_run = toposcale.advise_run(finished.results)
    assert of_run.text().endswith(f"Every training of {finished.results} is finished; nothing is left to decide.")
    assert of_run.as_json() == {"version": 2, "models": []}
