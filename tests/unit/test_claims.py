"""Each claim has an answer, and the answer is what the tables say."""

import numpy as np
import pandas as pd
import pytest

import config_reading
from paths import ROOT
from toposcale.io import schemas
from toposcale.reproduction import ANALYSES
from toposcale.reproduction.claims import CLAIMS, ClaimAnswer, claims_tables

SIZES = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}
PUBLISHED = pd.read_csv(ROOT / "src/toposcale/reproduction/published_values.csv", dtype={"value": str})
SOURCES = {claim.source for claim in CLAIMS}
EMPTY = {name: schemas.TABLES[name].frame([]) for name in ANALYSES["claims"].reads if name != "published"}


def answers(sizes=SIZES, **tables):
    """The rows of the claims by source and name."""
    models = pd.DataFrame({"model": list(sizes), "n_parameters": list(sizes.values()), "final_step": 1000})
    made = claims_tables(
        published=PUBLISHED, reproduces=SOURCES, **(EMPTY | {"models": schemas.TABLES["models"].frame(models)} | tables)
    )
    return made["claims"].set_index(["source", "claim"])


def correlations(values, feature="h1_total", source="weights", metric="training_loss", p=0.01):
    rows = [
        {"model": model, "source": source, "layer": "all", "feature": feature, "metric": metric}
        | {"control": "nothing", "spearman": value, "spearman_p": p}
        for model, value in zip(SIZES, values, strict=False)
    ]
    return schemas.TABLES["correlations"].frame(rows)


def course(values, feature="neural_persistence", source="weights", model="tiny-3k"):
    rows = [
        {"model": model, "step": 100 * k, "source": source, "layer": "all", "feature": feature, "value": value}
        for k, value in enumerate(values)
    ]
    return schemas.TABLES["features"].frame(rows)


def test_without_data_every_claim_is_not_tested_with_a_reason():
    rows = answers()
    assert len(rows) == len(CLAIMS) == len(set(rows.index))
    assert set(rows["answer"]) == {ClaimAnswer.NOT_TESTED}
    assert (rows["reason"] != "").all()


def test_a_run_is_held_against_the_sources_that_it_repeats_and_a_source_is_a_word_of_the_configuration():
    made = claims_tables(published=PUBLISHED, reproduces=["paper"], **EMPTY)["claims"]
    assert set(made["source"]) == {"paper"}
    assert set(config_reading.schema()["properties"]["reproduces"]["items"]["enum"]) == SOURCES


def test_the_published_values_stand_beside_the_claim():
    assert answers().loc[("paper", "table 4"), "statement"].endswith("Published: -0.641 to 0.053.")
    quantities = {claim.published for claim in CLAIMS} - {""}
    assert quantities <= set(PUBLISHED["quantity"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((-0.9, -0.8, -0.7, -0.6, -0.5), "reproduced"),
        ((-0.5, -0.6, -0.7, -0.8, -0.9), "opposite"),
        ((-0.9, -0.5, -0.8, -0.6, -0.7), "not reproduced"),
        ((-0.9, -0.8, -0.7, -0.6), "not tested"),
    ],
)
def test_whether_a_correlation_weakens_with_size(values, expected):
    row = answers(correlations=correlations(values)).loc[("paper", "table 4")]
    assert row["answer"] == expected
    assert (expected == "not tested") == ("5 sizes are needed" in row["reason"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((-0.9, -0.8, -0.7, -0.6, -0.5), "reproduced"),
        ((0.9, 0.8, 0.7, 0.6, 0.5), "opposite"),
        ((-0.9, -0.8, -0.7, -0.6, -0.4), "not reproduced"),
    ],
)
def test_whether_a_feature_follows_the_loss(values, expected):
    rows = answers(correlations=correlations(values, "h0_total"))
    assert rows.loc[("paper", "table 2"), "answer"] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 2, 3, 4, 5), "reproduced"), ((1, 2, 3, 2.9, 5), "not reproduced"), ((5, 4, 3, 2, 1), "opposite")],
)
def test_whether_neural_persistence_is_monotonic(values, expected):
    rows = answers({"tiny-3k": 2936}, features=course(values))
    assert rows.loc[("research plan", "H1"), "answer"] == expected


def test_saddles_on_the_most_informative_plane():
    flat = course([0, 0, 0], "n_saddles_random_1_grid8", "landscape")
    informative = course([3, 2, 1], "n_saddles_negative_0.3_grid8", "landscape")
    spread = course([1, 2, 3], "n_saddles_negative_0.3_grid8_spread", "landscape")
    rows = answers({"tiny-3k": 2936}, features=pd.concat([flat, informative, spread]))
    assert rows.loc[("landscape review", "H1"), ["answer", "numbers"]].tolist() == ["reproduced", "tiny-3k -2"]
    without = answers({"tiny-3k": 2936}, features=flat).loc[("landscape review", "H1")]
    assert (without["answer"], without["reason"]) == ("not tested", "no surface has a saddle")


@pytest.mark.parametrize(("regret", "expected"), [(0.0, "reproduced"), (1.31, "opposite")])
def test_early_stopping_reports_its_regret(regret, expected):
    row = {"model": "tiny-3k", "source": "weights", "layer": "all", "feature": "neural_persistence", "patience": 2}
    table = schemas.TABLES["early_stopping"].frame([row | {"steps_saved": 370, "regret": regret}])
    row = answers(early_stopping=table).loc[("embedding report", "stopping")]
    assert row["answer"] == expected
    assert row["numbers"] == f"steps saved: tiny-3k 370; nats lost: tiny-3k {regret:.3g}"


def test_a_test_without_power_is_no_answer():
    key = {"source": "weights", "layer": "all", "feature": "neural_persistence", "metric": "validation_loss"}
    verdict = key | {"model": "pooled", "question": "beyond_the_norm", "estimate": -0.3, "p": 0.4}
    verdicts = schemas.TABLES["verdicts"].frame([verdict])
    for found, expected in (("no", "not tested"), ("yes", "not reproduced")):
        power = schemas.TABLES["sensitivity"].frame(
            [{"question": "beyond_the_norm", "found": found, "detectable": np.nan}]
        )
        rows = answers(verdicts=verdicts, sensitivity=power)
        assert rows.loc[("research plan", "H1, efficiency"), "answer"] == expected


def subspaces(*, loss, quadratic, models=("tiny-3k",)):
    """Features at two checkpoints: saddles of the loss and of its quadratic model by dimension."""
    counts = {"subspace": loss, "quadratic": quadratic}
    parts = [
        course([value] * 2, f"n_saddles_{kind}_{k}_aknn8", "landscape", model)
        for model in models
        for kind, by_dimension in counts.items()
        for k, value in by_dimension.items()
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("loss", "quadratic", "expected"),
    [
        ({2: 0, 3: 0, 10: 0}, {2: 0, 3: 0, 10: 0}, "not reproduced"),
        ({2: 0, 3: 0, 10: 4}, {2: 0, 3: 0, 10: 1}, "reproduced"),
        ({2: 0, 3: 1, 10: 3}, {2: 0, 3: 1, 10: 3}, "not reproduced"),  # what the quadratic model has is nothing new
        ({2: 2, 3: 2, 10: 2}, {2: 0, 3: 0, 10: 0}, "not reproduced"),  # a plane shows as many
        ({2: 0, 3: 0, 10: 0}, {2: 0, 3: 0, 10: 1}, "not reproduced"),  # fewer is not the contrary claim
        ({3: 5, 10: 5}, {3: 0, 10: 0}, "not tested"),  # no plane to compare with
        ({2: 5}, {2: 0}, "not tested"),
    ],
)
def test_subspaces_are_compared_with_their_quadratic_model_and_with_a_plane(loss, quadratic, expected):
    row = answers(features=subspaces(loss=loss, quadratic=quadratic)).loc[("landscape review", "H4")]
    assert row["answer"] == expected
    assert (row["reason"] != "") == (expected == "not tested")


def test_every_model_must_have_the_saddles_of_more_dimensions():
    more, none = ({2: 0, 3: count} for count in (3, 0))
    features = [subspaces(loss=more, quadratic=none, models=["tiny-3k"])]
    features.append(subspaces(loss=none, quadratic=none, models=["xl-97k"]))
    row = answers(features=pd.concat(features, ignore_index=True)).loc[("landscape review", "H4")]
    assert row["answer"] == "not reproduced"
    assert row["numbers"] == ("tiny-3k 3, xl-97k 0; saddles (of the quadratic model) by dimension 2: 0 (0), 3: 1.5 (0)")
