"""The workflow as a user runs it: complete, repeatable to the byte, and doing no more than it has to."""

import json
import re

import pandas as pd
import pytest

from workspace import with_landscapes

# One worker for all of them: they share the finished run.
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
    dependence = pd.read_parquet(finished.results / "tables" / "graph_dependence.parquet")
    assert set(dependence["n_graphs"]) == {2}
    features = features[features["source"] == "weights"]
    whole = features[features["layer"] == "all"].set_index(["model", "step", "feature"])["value"]
    layers = features[features["layer"] != "all"].groupby(["model", "step", "feature"])["value"]
    total = layers.sum().loc[("two", 40, "h0_total")]
    assert whole.loc[("two", 40, "h0_total")] == pytest.approx(total)
    squares = layers.agg(lambda norms: (norms**2).sum() ** 0.5)
    assert whole.loc[("two", 40, "frobenius_norm")] == pytest.approx(
        squares.loc[("two", 40, "frobenius_norm")]
    )
    log = pd.read_parquet(finished.results / "training" / "two.parquet")
    assert list(log["step"]) == list(range(41))


@pytest.mark.parametrize("name", ["report", "explorer"])
def test_a_page_is_one_file_without_the_network(finished, name):
    page = (finished.results / f"{name}.html").read_text()
    assert not re.search(r"""<(script|link|img)[^>]+(src|href)=["']https?://""", page)
    assert not re.search(r"@import|url\(['\"]?https?:", page)
    assert len(page) < 15_000_000


def test_a_second_run_does_nothing_and_says_so(finished):
    done = finished.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_targets_have_the_names_a_user_expects(finished):
    done = finished.snakemake("--dry-run", "--", "tables", "figures", "report", "explorer", "landscape")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_the_same_bytes_whatever_the_cores_and_jobs(finished, workspace):
    """What is measured of one model, all at once; test_determinism.py takes cores and jobs apart, on a smaller run."""
    del with_landscapes(workspace).config["models"]["two"]
    for section in ("training", "weights", "embeddings", "landscape"):
        workspace.config[section]["jobs"] = "checkpoint"
    workspace.snakemake("measured", "landscape", cores=4)  # analyses do not know how their tables were made
    own = [path for path in workspace.results.rglob("[!.]*") if "one" in path.parts or path.stem == "one"]
    made = {
        path.relative_to(workspace.results)
        for path in own
        if path.is_file() and "logs" not in path.parts and not path.name.startswith("state-")
    }
    kinds = {
        "checkpoints",
        "training",
        "features",
        "diagrams",
        "metrics",
        "clouds",
        "landscape",
        "divergences",
    }
    assert kinds <= {path.parts[0] for path in made}
    differing = [
        path
        for path in made
        if (workspace.results / path).read_bytes() != (finished.results / path).read_bytes()
    ]
    assert differing == []
    ours, theirs = (
        {path.stem: pd.read_parquet(path) for path in (run.results / "tables").glob("*.parquet")}
        for run in (workspace, finished)
    )
    assert {"features", "metrics", "models", "surfaces"} <= set(ours)
    for name, table in ours.items():
        of_one = theirs[name].query("model == 'one'").reset_index(drop=True)
        pd.testing.assert_frame_equal(table, of_one, obj=name)


def test_a_seed_more_trains_its_models_only(finished):
    finished.config["seeds"] = [42, 43]
    try:
        planned = finished.planned()
    finally:
        finished.config["seeds"] = [42]
    assert planned["train"] == 2
    assert planned["weight_features"] == 2
    assert "corpus" not in planned


def test_a_model_more_runs_that_model_only(finished):
    finished.config["models"]["three"] = {"d_model": 4, "n_layers": 1, "n_heads": 1}
    try:
        planned = finished.planned()
    finally:
        del finished.config["models"]["three"]
    assert planned["train"] == 1
    assert planned["weight_features"] == 1
    assert planned["correlations"] == 1


FEATURES_ON = {
    "weight_features",
    "diagram_distances",
    "features_table",
    "correlations",
    "scaling",
    "transitions",
    "forecasts",
    "comparison",
}


@pytest.mark.parametrize(
    ("section", "key", "value", "reruns", "stays"),
    [
        ("figures", "dpi", 100, {"figures_overview", "figures_weights"}, {"train", *FEATURES_ON}),
        ("weights", "max_points", 5, FEATURES_ON, {"train", "corpus", "metrics_table"}),
        (
            "statistics",
            "resamples",
            60,
            {"correlations", "scaling"},
            {"train", "weight_features", "transitions"},
        ),
        ("forecasts", "fractions", [0.4], {"forecasts", "comparison"}, {"train", "correlations", "scaling"}),
        ("training", "learning_rate", 1e-3, {"train", *FEATURES_ON}, {"corpus"}),
        ("training", "context", 8, {"corpus", "train"}, set()),
    ],
)
def test_a_changed_key_reruns_what_depends_on_it(finished, section, key, value, reruns, stays):
    settings = finished.config.setdefault(section, {})
    before = dict(settings)
    settings[key] = value
    try:
        planned = set(finished.planned())
    finally:
        finished.config[section] = before
    assert reruns <= planned
    assert not stays & planned


def test_advice_on_finished_trainings_says_that_nothing_is_left_to_decide(finished):
    said = " ".join(finished.snakemake("advice").stdout.split())
    assert "Every training of results/small is finished; nothing is left to decide." in said
    assert json.loads((finished.results / "advice.json").read_text()) == {"models": []}
