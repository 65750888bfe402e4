"""Many runs in one figure: medians and bands by configuration, and nothing changed where the runs are few."""

import numpy as np
import pandas as pd
import pytest

import figure_tables
from toposcale import figures
from toposcale.figures.configurations import by_configuration, note

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


@pytest.mark.parametrize("name", ["neural_persistence", "loss_curves", "loss_against_compute"])
def test_figures_of_many_runs_have_a_line_a_configuration(tables, name):
    drawn = by_configuration({table: tables[table] for table in figures.FIGURES[name].tables})
    figure = figures.load(name)(**drawn)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text for text in legend if "×" in text] == [f"{name} ×{SEEDS}" for name in figure_tables.SIZES]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len(lines) <= 2 * len(figure_tables.SIZES)
    if name != "loss_curves":
        assert len(figure.axes[0].collections) == len(figure_tables.SIZES)  # the bands
