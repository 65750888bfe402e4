"""Many runs in one figure: medians and bands by configuration, and nothing changed where the runs are few."""

import numpy as np
import pandas as pd
import pytest

import figure_tables
from toposcale import figures
from toposcale.figures.configurations import by_configuration, note
from toposcale.io import schemas

SEEDS = 8


def many(table, seeds=SEEDS):
    """The rows of each model once a seed, each a little higher than the last."""
    numeric = [name for name in ("value", "loss", "spearman") if name in table]
    copies = []
    for seed in range(seeds):
        copy = table.assign(model=table["model"] + f".seed{seed}")
        copies.append(copy.assign(**{name: copy[name] * (1 + 0.01 * seed) for name in numeric}))
    return pd.concat(copies, ignore_index=True)


@pytest.fixture(scope="module")
def tables():
    models = figure_tables.models_table()
    models = pd.concat(
        [
            models.assign(model=models["model"] + f".seed{seed}", configuration=models["model"], seed=seed)
            for seed in range(SEEDS)
        ]
    )
    over_training = {
        "features": many(figure_tables.features_table()),
        "metrics": many(figure_tables.metrics_table()),
        "training": many(figure_tables.training_table()),
    }
    return {**over_training, "models": models}


def test_the_runs_of_a_configuration_become_their_median_and_band(tables):
    drawn = by_configuration(tables)
    assert sorted(drawn["models"]["model"]) == sorted(f"{name} ×{SEEDS}" for name in figure_tables.SIZES)
    medians = drawn["features"].query("model == 'med-21k ×8' and feature == 'h0_total' and layer == 'all'")
    runs = tables["features"].query("model.str.startswith('med-21k.') and feature == 'h0_total' and layer == 'all'")
    by_step = runs.groupby("step")["value"]
    medians = medians.set_index("step")
    np.testing.assert_allclose(medians["value"], by_step.median())
    np.testing.assert_allclose(medians["low"], by_step.quantile(0.1))
    np.testing.assert_allclose(medians["high"], by_step.quantile(0.9))
    assert len(drawn["training"]) == len(tables["training"]) / SEEDS


def test_few_runs_or_runs_that_are_no_copies_stay_as_they_are(tables):
    few = {name: table[table["model"].str.endswith(("seed0", "seed1"))] for name, table in tables.items()}
    assert all(by_configuration(few)[name] is few[name] for name in few)
    alone = {**tables, "models": tables["models"].assign(configuration=tables["models"]["model"])}
    assert by_configuration(alone)["features"] is tables["features"]
    assert note(few, by_configuration(few)) == ""


def test_a_value_that_is_not_finite_is_told(tables):
    features = tables["features"].copy()
    features.loc[features.index[0], "value"] = np.nan
    changed = {**tables, "features": features}
    drawn = by_configuration(changed)
    assert note(changed, drawn).endswith("1 value not finite (NaN or infinite), left out of the lines.")
    assert np.isfinite(drawn["features"]["value"]).all()


def planted_forecasts(models, forecasts):
    """Forecasts at half of training, one a run, each with an interval of 0.2."""
    rows = {"model": models, "fraction": 0.5, "method": "joint", "forecast": forecasts}
    return schemas.TABLES["forecasts"].frame(pd.DataFrame(rows).assign(low=forecasts - 0.1, high=forecasts + 0.1))


def test_forecasts_of_many_runs_are_medians_and_runs_without_one_are_counted(tables):
    """Every seed but the first forecasts 2: a figure of only the first seed would show 1."""
    forecasts = np.where(tables["models"]["seed"] == 0, 1.0, 2.0)
    forecasts[tables["models"]["model"] == "tiny-3k.seed3"] = np.nan
    schedules = pd.concat(
        figure_tables.schedules_table().assign(model=lambda rows, seed=seed: rows["model"] + f".seed{seed}")
        for seed in range(SEEDS)
    )
    whole = {"forecasts": planted_forecasts(tables["models"]["model"], forecasts), "schedules": schedules}
    whole |= {name: tables[name] for name in ("metrics", "models")}
    drawn = by_configuration(whole)
    assert drawn["forecasts"][["forecast", "low", "high"]].to_numpy().tolist() == [[2.0, 1.9, 2.1]] * 5
    figure = figures.load("forecast_fans")(**drawn)
    fans = [axes for axes in figure.axes if axes.patches]
    assert [axes.get_title(loc="left") for axes in fans] == [f"{name} ×{SEEDS}" for name in figure_tables.SIZES]
    assert all(axes.patches[0].get_xy()[1:3, 1].tolist() == [2.1, 1.9] for axes in fans)
    assert all(axes.lines[1].get_ydata()[-1] == 2.0 for axes in fans)
    assert figure.get_supxlabel() == "Forecasts of single runs that are missing, left out of the medians: 1."
    assert "Forecasts and the ends of their intervals are medians, too." in note(whole, drawn)


def test_a_decision_is_of_one_run_and_the_runs_drawn_are_named(tables):
    """Of forty runs twelve have room: one of each configuration, and then their second seeds."""
    models = tables["models"]
    candidates = pd.DataFrame({"model": models["model"], "candidate": "continue", "loss": 2.0 + models["seed"]})
    candidates = candidates.assign(loss_low=candidates["loss"] - 0.1, loss_high=candidates["loss"] + 0.1, compute=1.0)
    candidates = candidates.assign(fraction=0.2, expected_regret=0.0, probability=1.0, is_live=False)
    drawn = by_configuration({"candidates": candidates, "models": models})
    assert drawn["candidates"] is candidates
    assert note({"candidates": candidates, "models": models}, drawn) == ""
    figure = figures.load("decision_candidates")(**drawn)
    named = [axes.get_title(loc="left").split(" at ")[0] for axes in figure.axes]
    seeds = dict(zip(figure_tables.SIZES, (3, 3, 2, 2, 2), strict=True))
    assert named == [f"{name}.seed{seed}" for name, count in seeds.items() for seed in range(count)]
    points = [axes.collections[1].get_offsets()[0, 0] for axes in figure.axes]
    assert points == [2.0 + int(name[-1]) for name in named]
    assert figure.get_supxlabel() == "28 more models are in the table candidates."


@pytest.mark.parametrize("name", ["embeddings_over_training", "loss_curves"])
def test_figures_of_many_runs_have_a_line_a_configuration(tables, name):
    features = {"features": tables["features"].assign(source="embeddings")}
    drawn = by_configuration({table: (tables | features)[table] for table in figures.FIGURES[name].tables})
    figure = figures.load(name)(**drawn)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text for text in legend if "×" in text] == [f"{name} ×{SEEDS}" for name in figure_tables.SIZES]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len(lines) <= 2 * len(figure_tables.SIZES)
    if name != "loss_curves":
        assert len(figure.axes[0].collections) == len(figure_tables.SIZES)  # the bands
