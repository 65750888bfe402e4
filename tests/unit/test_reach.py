"""What a rule must never depend on: a changed line of it would train or measure again for nothing."""

import re

import pytest

import digests
from paths import ROOT
from toposcale import analysis, reproduction
from toposcale.figures import FIGURES

ANALYSES = analysis.ANALYSES | reproduction.ANALYSES

DOORS = {"loss_table", "schedule_file", "user_metrics"}
"""Scripts that read files of the user's, and so depend on how these are read."""

# Packages and modules that a script must not reach, by what it does.
CURVES = "forecasting/(logs|laws|decision|evaluation)"
BRIDGE = "analysis|statistics|reproduction|monitor|figures|pages"
NEVER = {
    "corpus": f"{CURVES}|{BRIDGE}|homology|landscape|features|checkpoints|training/(gpt|trainer)",
    "train": f"{CURVES}|{BRIDGE}|homology|landscape|features|checkpoints",
    **dict.fromkeys(["weight_features", "vectors"], f"{CURVES}|{BRIDGE}|landscape|training"),
    "diagram_distances": f"{CURVES}|{BRIDGE}|landscape|training",
    "trajectory": f"{CURVES}|{BRIDGE}|landscape|training|checkpoints",
    "embeddings": f"{CURVES}|{BRIDGE}|landscape",
    **dict.fromkeys(["loss_landscape", "training_path"], f"{CURVES}|{BRIDGE}|homology/neural_persistence"),
    **dict.fromkeys(["gather", "table_csv"], f"{CURVES}|{BRIDGE}|homology|landscape|features|checkpoints|training"),
    "metrics_table": f"{CURVES}|statistics|monitor|figures|pages|homology|landscape|training",
    # Of a folder of transformers' Trainer, the facts of a model stand in its state.
    "models_table": "forecasting/(logs/(?!trainer_states)|laws|decision)|statistics|figures|pages|landscape|training",
    "warnings_table": f"{CURVES}|figures|pages|landscape|training|checkpoints",
    "figures": "forecasting/logs|pages|training|checkpoints",
    "report": "forecasting/logs|training|monitor",
    "explorer": "forecasting/(logs|laws|decision)|training|checkpoints|monitor",
    "fetch": f"{CURVES}|{BRIDGE}|homology|landscape|training",
}


def reached(script, *names):
    """Modules of the library that a rule depends on, as paths in it."""
    library = ROOT / "src/toposcale"
    files = digests.reached(f"{script}.py", *names)
    return {file.relative_to(library).with_suffix("").as_posix() for file in files if file.is_relative_to(library)}


def test_reach_has_a_line_for_every_script_that_is_no_door():
    scripts = {path.stem for path in (ROOT / "scripts").glob("[a-z]*.py")}
    # These depend on no code, or on that of the analysis.
    assert scripts - DOORS - {"compared", "resolved_configuration", "analyse"} == NEVER.keys()


@pytest.mark.parametrize("script", NEVER)
def test_reach_of_a_script_ends_where_its_numbers_do(script):
    assert [module for module in sorted(reached(script)) if re.match(NEVER[script], module)] == []


@pytest.mark.parametrize("name", ANALYSES)
def test_reach_of_an_analysis_ends_at_files_and_pages(name):
    never = "forecasting/logs|figures|pages|monitor|training|checkpoints|landscape/(?!plane_names)"
    assert [module for module in sorted(reached("analyse", ANALYSES[name].module)) if re.match(never, module)] == []


@pytest.mark.parametrize("module", sorted({figure.module for figure in FIGURES.values()}))
def test_reach_of_a_figure_ends_at_its_own_module(module):
    modules = reached("figures", f"toposcale.figures.{module}")
    others = {f"figures/{figure.module}" for figure in FIGURES.values()} - {f"figures/{module}"}
    assert not modules & others
    assert [name for name in sorted(modules) if re.match("forecasting/logs|pages|training/|checkpoints", name)] == []


def test_reach_follows_what_the_numbers_of_a_script_depend_on():
    assert {"homology/rips", "features/weights", "io/weight_files"} <= reached("weight_features")
    assert {"training/trainer", "training/gpt", "forecasting/runs/schedules"} <= reached("train")
    assert "forecasting/laws/joint" in reached("analyse", ANALYSES["forecasts"].module)
