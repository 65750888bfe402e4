"""Published values find their counterparts in a run, and only those."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from toposcale import homology
from toposcale.io import schemas
from toposcale.reproduction import comparison

PUBLISHED = pd.read_csv(ROOT / "src/toposcale/reproduction/published_values.csv", dtype={"value": str, "table": str})
WEIGHTS = {"source": "weights", "layer": "all"}
LAW = {"law": "power_law", "exponent": -0.1, "r_squared": 0.9, "spearman": -1.0, "p": 0.01}
RUN = {
    "models": pd.DataFrame(
        [
            {"model": "tiny-3k", "n_parameters": 2936, "d_model": 8, "n_layers": 1, "n_heads": 1},
            # What is said of all models needs all five; of these nothing else is known.
            *({"model": name} for name in ("small-7k", "med-21k", "large-46k", "xl-97k")),
        ]
    ),
    "metrics": pd.DataFrame(
        [("tiny-3k", 0, "validation_loss", 4.8), ("tiny-3k", 300, "validation_loss", 2.5)],
        columns=["model", "step", "metric", "value"],
    ),
    "features": pd.DataFrame(columns=["model", "step", "source", "layer", "feature", "value"]),
    "correlations": pd.DataFrame(
        [
            {"model": "tiny-3k", **WEIGHTS, "feature": "h0_total", "metric": "training_loss", "spearman": -0.8}
            | {"control": "nothing", "spearman_p": 1e-3, "spearman_low": -0.9, "spearman_high": -0.5},
            # Neither that of a layer nor that given a control is the published one.
            {"model": "tiny-3k", **WEIGHTS, "layer": "one", "feature": "h0_total", "metric": "training_loss"},
            {"model": "tiny-3k", **WEIGHTS, "feature": "h0_total", "metric": "training_loss", "control": "step"},
        ]
    ),
    "scaling": pd.DataFrame(
        [
            {"source": "metric", "layer": "all", "feature": "validation_loss", **LAW},
            {**WEIGHTS, "feature": "h0_total", **LAW, "exponent": 0.3},
        ]
    ),
    "transitions": pd.DataFrame(
        [
            {"model": "tiny-3k", **WEIGHTS, "feature": "neural_persistence"}
            | {"transition_step": 40, "settled_step": 120}
        ]
    ),
    "forecast_evaluation": pd.DataFrame(
        [{"fraction": 0.2, "method": "combined", "mae": 0.2, "over_power_law_percent": -5.0}]
    ),
}


@pytest.fixture(scope="module")
def compared():
    table = comparison.compare(PUBLISHED, RUN, "steps 300 (published 5000)")
    return table.set_index(["table", "model", "quantity"])


@pytest.mark.parametrize(
    ("table", "model", "quantity", "published", "ours"),
    [
        ("1", "tiny-3k", "n_parameters", 2936, 2936),
        ("1", "tiny-3k", "validation_loss", 2.466, 2.5),
        ("2", "tiny-3k", "spearman h0_total training_loss", -0.59, -0.8),
        ("2", "tiny-3k", "bootstrap_high h0_total training_loss", -0.35, -0.5),
        ("5", "all", "mae combined at 20%", 0.1486, 0.2),
        ("5", "all", "improvement_percent combined at 20%", -39.7, -5.0),
        ("6", "tiny-3k", "step of max |delta neural_persistence|", 300, 40),
        ("6", "tiny-3k", "step of diminishing returns", 800, 120),
        ("7", "all", "exponent validation_loss in N", -0.144, -0.1),
        ("7", "all", "exponent h0_total in N", 0.204, 0.3),
    ],
)
def test_a_published_value_stands_beside_ours(compared, table, model, quantity, published, ours):
    row = compared.loc[(table, model, quantity)]
    assert row["published"] == published
    assert row["ours"] == ours
    assert row["difference"] == pytest.approx(ours - published)


def test_a_bound_is_kept_as_a_bound(compared):
    row = compared.loc[("7", "all", "p validation_loss in N")]
    assert row["published"] == 1e-24
    assert "published as <1e-24" in row["note"]


def test_what_the_run_lacks_is_left_out(compared):
    assert set(compared.index.get_level_values("model")) == {"tiny-3k", "all"}
    assert ("5", "all", "mae power_law at 20%") not in compared.index


def test_the_setting_is_said(compared):
    assert set(compared["setting"]) == {"steps 300 (published 5000)"}
    training = dict(comparison.PAPER_SETTING)
    wikitext = {"source": "wikitext-2", "tokenizer": "characters", "train": []}
    same = comparison.setting_differences(training, wikitext, [42])
    assert same == "corpus wikitext-2 (the published text is not stated)"
    differences = comparison.setting_differences(
        training | {"steps": 300}, {"source": "files", "tokenizer": "bpe", "train": ["a.txt"]}, [1]
    )
    for part in ("steps 300 (published 5000)", "corpus files a.txt", "tokenizer bpe", "seed 1"):
        assert part in differences


def test_every_published_value_names_where_it_stands_in_a_run():
    """But for the times, which no run can repeat; a wrong name would drop the value without a word."""
    placed = PUBLISHED.dropna(subset=["our_table"])
    assert all("seconds" in quantity for quantity in PUBLISHED.drop(placed.index)["quantity"])
    for row in placed.to_dict("records"):
        columns = schemas.TABLES[row["our_table"]].names
        chosen_by = [name.removeprefix("our_") for name in row if name.startswith("our_")]
        filters = [name for name in chosen_by if name not in ("table", "column") and pd.notna(row[f"our_{name}"])]
        assert {row["our_column"], *filters} <= set(columns), row["quantity"]


def test_published_checkpoints_are_compared_step_by_step():
    where = {"model": "pythia-70m", "step": 64}
    features = pd.DataFrame(
        [
            {**where, "source": "embeddings", "layer": "all", "feature": "h1_count", "value": 110.0},
            {**where, "step": 65, "source": "embeddings", "layer": "all", "feature": "h1_count", "value": 1.0},
        ]
        + [
            {
                "model": "pythia-14m",
                "step": 1000,
                "source": "weights",
                "layer": layer,
                "feature": feature,
                "value": value,
            }
            for layer, feature, value in [
                ("a", "neural_persistence", 0.3),
                ("b", "neural_persistence", 0.5),
                ("all", "neural_persistence", 9.0),
                ("a", "h0_total", 60.0),
                ("b", "h0_total", 80.0),
                ("a", "h0_count", 99.0),
                ("b", "h0_count", 9.0),
                ("all", "h0_total", 140.0),
            ]
        ]
    )
    run = RUN | {
        "models": pd.DataFrame({"model": ["pythia-70m", "pythia-14m", "pythia-160m", "pythia-410m"]}),
        "features": features,
        "metrics": pd.DataFrame([{**where, "metric": "perplexity", "value": 14000.0}]),
        "correlations": pd.DataFrame(
            [
                {"model": f"pythia-{size}m", "source": "embeddings", "layer": "all", "feature": "h1_max"}
                | {"metric": "perplexity", "control": control, "spearman": rho}
                for size, rho in [(70, -0.8), (160, 0.9), (410, -1.0)]
                for control in ("nothing", "step")
            ]
        ),
    }
    table = comparison.compare(PUBLISHED, run, "").set_index(["model", "step", "quantity"])
    assert table.loc[("pythia-70m", 64, "h1_count"), "ours"] == 110
    assert table.loc[("pythia-70m", 64, "h1_count"), "published"] == 116
    assert table.loc[("pythia-70m", 64, "perplexity"), "ours"] == 14000
    assert table.loc[("pythia-14m", 1000, "neural_persistence mean over layers"), "ours"] == pytest.approx(0.4)
    assert table.loc[("pythia-14m", 1000, "neural_persistence sd over layers"), "ours"] == pytest.approx(0.1)
    assert table.loc[("pythia-14m", 1000, "h0_total"), "ours"] == 70
    assert "mean over matrices" in table.loc[("pythia-14m", 1000, "h0_total"), "note"]
    # Of 200 points the totals are about twice as large: like is not compared with unlike.
    features.loc[features["feature"] == "h0_count", "value"] = 199.0
    unlike = comparison.compare(PUBLISHED, run | {"features": features}, "")
    assert "h0_total" not in set(unlike["quantity"])
    three = table.reset_index()
    three = three[three["quantity"] == "|spearman| h1_max perplexity"]
    assert three["ours"].tolist() == [pytest.approx(0.9)]
    assert three["published"].tolist() == [0.803]


def test_what_is_said_of_all_models_needs_all_of_them():
    five = ["tiny-3k", "small-7k", "med-21k", "large-46k", "xl-97k"]
    for names, expected in ((five, True), (five[1:], False), (["pythia-14m"], False)):
        models = pd.DataFrame({"model": names}, columns=RUN["models"].columns)
        run = RUN | {"models": models}
        table = comparison.compare(PUBLISHED, run, "")
        assert ("exponent h0_total in N" in set(table["quantity"])) == expected


def test_the_convention_of_table_8_is_that_of_random_weights():
    """Pythia 14M as it is initialised (small init, and Wang's for what writes to the residual stream) with fresh draws."""
    table8 = PUBLISHED[(PUBLISHED["table"] == "8") & (PUBLISHED["quantity"] == "h0_total")]
    at_start = float(table8[table8["step"] == 0]["value"].item())
    width, layers = 128, 6
    small, wang = np.sqrt(2 / (5 * width)), 2 / layers / np.sqrt(width)
    shapes = {"qkv": (3 * width, width, small), "dense": (width, width, wang)}
    shapes |= {"expansion": (4 * width, width, small), "projection": (width, 4 * width, wang)}
    rng = np.random.default_rng(0)
    totals = [
        homology.h0_lifetimes((deviation * rng.standard_normal((rows, columns)))[:100]).sum()
        for rows, columns, deviation in shapes.values()
        for _ in range(layers)
    ]
    assert np.mean(totals) == pytest.approx(at_start, rel=0.03)
    assert np.sum(totals) > 10 * at_start
