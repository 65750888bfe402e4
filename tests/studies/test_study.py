"""The study on tables in which an effect is planted, and in which there is none."""

import numpy as np
import pandas as pd
import pytest

from studies import small_tables
from studies.over_seeds import own_surplus
from studies.study import questions as study
from studies.study.forecasts import forecast_table
from toposcale.io.errors import UserError
from toposcale.statistics.multiple_testing import holm

STEPS = np.arange(0, 601, 12)
CONFIGURATIONS, SEEDS = 2, 12


def tables(*, between=0.0, within=0.0, seed=1):
    """A features, a metrics and a models table of CONFIGURATIONS x SEEDS runs.

    between: share of what a loss loses after 30% of the training that neural persistence told before. within: how much
    of the loss moves with neural persistence from checkpoint to checkpoint.
    """
    random = np.random.default_rng(seed)
    features, metrics, models = [], [], []
    for number in range(CONFIGURATIONS * SEEDS):
        configuration, name = f"configuration{number // SEEDS}", f"run{number}"
        noise, level = random.normal(size=(4, len(STEPS))), random.normal(size=2)
        later = np.clip((STEPS - 180) / 420, 0, 1)
        persistence = 0.3 + STEPS / 6000 + 0.05 * level[0] + 0.002 * noise[0]
        surprise = between * level[0] + np.sqrt(1 - between**2) * level[1]
        loss = 2 + 4 * np.exp(-STEPS / 200) + 0.002 * (within * noise[0] + noise[1]) + 0.05 * later * surprise
        norm = 5 + STEPS / 200 + 0.1 * noise[2]
        values = {"neural_persistence": persistence, "frobenius_norm": norm, "h0_total_scaled": 9 + noise[3]}
        values["stable_rank"] = 3 + random.normal(size=len(STEPS))
        where = {"model": name, "step": STEPS}
        features += [
            pd.DataFrame({**where, "source": "weights", "layer": "all", "feature": feature, "value": value})
            for feature, value in values.items()
        ]
        for metric, value in (("validation_loss", loss), ("generalisation_gap", random.normal(size=len(STEPS)))):
            metrics.append(pd.DataFrame({**where, "metric": metric, "value": value}))
        facts = {"final_step": 600, "warmup_steps": 60, "n_parameters": 1000 * (1 + number // SEEDS)}
        models.append(
            {
                "model": name,
                "configuration": configuration,
                "entry": configuration,
                "seed": number,
                "learning_rate": 0.01,
                **facts,
            }
        )
    return pd.concat(features), pd.concat(metrics), pd.DataFrame(models)


def results(**effects):
    features, metrics, models = tables(**effects)
    small = small_tables.gathered(features, metrics, models, study.FOLLOWED)
    found = study.study_tables(*small_tables.long_tables(small["series"], small["early"]), models)
    return found["primary"].set_index(["question", "feature"]), found["exploratory"]


def test_the_loss_at_half_of_the_training_is_found_where_topology_is_not():
    features, metrics, models = tables()
    control = study.study_tables(features, metrics, models)["control"].iloc[0]
    assert control["feature"] == "loss_at_50%"
    assert control["estimate"] > 0
    assert control["p"] <= 0.01
    # Of a loss that is shuffled among the runs of a configuration after that, it tells nothing.
    dealt = metrics.copy()
    end = (dealt["step"] > 300) & (dealt["metric"] == "validation_loss")
    turned = dealt[end].assign(
        model=[f"run{(int(name[3:]) + 5) % 12 + int(name[3:]) // 12 * 12}" for name in dealt[end]["model"]]
    )
    dealt = pd.concat([dealt[~end], turned])
    assert study.study_tables(features, dealt, models)["control"]["p"].iloc[0] > 0.05


def test_there_are_four_primary_tests_and_without_an_effect_none_is_found():
    primary, exploratory = results()
    assert list(primary.index) == [(q, f) for q in "AB" for f in sorted(study.PRIMARY)]
    assert (primary["q"] > 0.05).all()
    assert np.array_equal(primary["q"], holm(primary["p"].to_numpy()))
    assert (primary["n_models"] == CONFIGURATIONS * SEEDS).all()
    assert "stable_rank" in set(exploratory.query("question == 'A'")["feature"])


def test_an_effect_between_runs_is_found_by_A_and_in_its_feature_alone():
    primary, _ = results(between=0.95)
    assert primary.loc[("A", "neural_persistence"), "q"] < 0.01
    assert primary.loc[("A", "neural_persistence"), "low"] > 0.5
    assert (primary.drop(index=("A", "neural_persistence"))["q"] > 0.05).all()


def test_an_effect_within_runs_is_found_by_B_and_in_its_feature_alone():
    primary, _ = results(within=1.0)
    assert primary.loc[("B", "neural_persistence"), "q"] < 0.01
    assert primary.loc[("B", "neural_persistence"), "low"] > 0.2
    assert (primary.drop(index=("B", "neural_persistence"))["q"] > 0.05).all()


def test_a_study_of_which_a_run_is_missing_is_not_analysed():
    features, metrics, models = tables()
    part = metrics[(metrics["model"] != "run3") | (metrics["step"] < 600)]
    with pytest.raises(UserError, match="1 of 24 runs are not finished"):
        small_tables.gathered(features, part, models, study.FOLLOWED)


def test_the_surplus_of_a_run_by_hand():
    correlations = np.array([[0.5, 0.1, 9.0], [0.3, 0.4, 9.0], [9.0, 9.0, 0.2]])
    with np.errstate(invalid="ignore"):
        surplus = own_surplus(correlations, ["a", "a", "b"])
    assert surplus[:2] == pytest.approx([0.5 - 0.2, 0.4 - 0.2])


def test_topology_that_tells_the_end_improves_the_forecast_and_topology_that_does_not_does_not():
    gains = {}
    for effect in (0.0, 0.95):
        features, metrics, models = tables(between=effect)
        small = small_tables.gathered(features, metrics, models, study.FOLLOWED)
        table = forecast_table(small["series"], small["early"], models, permutations=19)
        gains[effect] = table.query("left_out == 'configurations' and method == 'ridge'").iloc[0]
        assert set(table["left_out"]) == {"configurations", "sizes"}
        assert table.query("left_out == 'sizes'")["gain_low"].isna().all()
    assert gains[0.95]["gain"] > 0.005
    assert gains[0.95]["p"] == pytest.approx(0.05)
    assert gains[0.0]["gain"] < 0.003


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, np.nan]) == pytest.approx([0.03, 0.06, 0.06, np.nan], nan_ok=True)
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])


def test_a_primary_test_that_could_not_be_made_counts_as_one_of_four():
    features, metrics, models = tables(between=0.95)
    without = features[features["feature"] != "h0_total_scaled"]
    found = study.study_tables(without, metrics, models)["primary"].set_index(["question", "feature"])
    assert len(found) == 4
    assert found.loc[("A", "h0_total_scaled"), "p"] != found.loc[("A", "h0_total_scaled"), "p"]
    expected = 4 * found.loc[("A", "neural_persistence"), "p"]
    assert found.loc[("A", "neural_persistence"), "q"] == pytest.approx(expected)


def test_what_is_not_confirmatory_has_no_primary_tests():
    found = study.study_tables(*tables(), confirmatory=False)
    assert list(found) == ["control", "exploratory"]
    assert set(study.PRIMARY) < set(found["exploratory"].query("question == 'A'")["feature"])


def test_slopes_that_differ_between_configurations_are_no_discovery_once_each_configuration_has_its_own():
    """Feature and final loss both follow the loss at 30%, with a slope of the configuration's own that goes the same
    way in both."""
    features, metrics, models = tables()
    slope = models.set_index("model")["configuration"].map({"configuration0": 1.0, "configuration1": -1.0})
    losses = metrics[metrics["metric"] == "validation_loss"]
    now = losses[losses["step"] == 180].set_index("model")["value"]
    now = now - now.groupby(models.set_index("model")["configuration"]).transform("mean")
    moved = 300 * slope * now
    at = features["feature"].eq("neural_persistence") & features["step"].eq(180)
    features.loc[at, "value"] = features.loc[at, "model"].map(moved) + 0.1 * features.loc[at, "value"]
    end = metrics["metric"].eq("validation_loss") & metrics["step"].eq(600)
    metrics.loc[end, "value"] += metrics.loc[end, "model"].map(moved)
    found = study.study_tables(features.reset_index(drop=True), metrics.reset_index(drop=True), models)
    assert found["primary"].set_index(["question", "feature"]).loc[("A", "neural_persistence"), "p"] < 0.01
    own = found["exploratory"].query("question == 'A, own slopes' and feature == 'neural_persistence'")
    assert own["p"].item() > 0.05


def test_topology_that_repeats_the_norm_does_not_seem_to_help():
    features, metrics, models = tables()
    norm = features[features["feature"] == "frobenius_norm"]
    copied = norm.assign(feature="neural_persistence", value=norm["value"] ** 1.01)
    others = features[features["feature"] == "frobenius_norm"]
    small = small_tables.gathered(pd.concat([others, copied]), metrics, models, study.FOLLOWED)
    table = forecast_table(small["series"], small["early"], models, permutations=19)
    assert (table.query("method == 'ridge'")["p"] > 0.05).all()
