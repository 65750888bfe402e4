"""The second study on tables in which an effect is planted, and in which there is none; and its plan."""

import numpy as np
import pandas as pd
import pytest
import yaml

import plan
from config_reading import resolve
from paths import ROOT
from studies import small_tables
from studies.study2 import __main__ as study_2
from studies.study2 import questions as study
from toposcale.io import tensor_files
from toposcale.io.errors import UserError
from toposcale.statistics.multiple_testing import holm

STEPS = np.arange(0, 601, 12)
SIZES = {"tiny-3k-again.a": 1.0, "small-7k-again.b": 30.0, "med-21k-wikitext.c": 1.0}
"""Configurations, and how far the final losses of each spread."""
SEEDS = 16


def tables(*, between=0.0, within=0.0, slopes=0.0, seed=1):
    """Features of two layers and of the model, metrics and models of three configurations.

    between: share of what a loss loses after 30% of the training that h0_total told before. within: how much of the loss
    moves with h0_total from checkpoint to checkpoint. slopes: how much of feature and final loss follows the norm of the
    rows, with a slope of the configuration's own that goes the same way in both.
    """
    random = np.random.default_rng(seed)
    features, metrics, models = [], [], []
    for place, (configuration, spread) in enumerate(SIZES.items()):
        for number in range(SEEDS):
            name = f"{configuration}.seed{number}"
            noise, level = random.normal(size=(5, len(STEPS))), random.normal(size=3)
            later = np.clip((STEPS - 180) / 420, 0, 1)
            surprise = between * level[0] + np.sqrt(1 - between**2) * level[1]
            surprise = surprise + slopes * (-1) ** place * level[2]
            told = level[0] + slopes * (-1) ** place * level[2]
            loss = 2 + 4 * np.exp(-STEPS / 200) + 0.002 * (within * noise[0] + noise[1])
            loss = loss + 0.02 * spread * later * surprise
            norms = 5 + STEPS / 200 + 0.1 * noise[2], 4 + STEPS / 300 + 0.1 * noise[3]
            values = {
                ("all", "h0_total"): 9 + STEPS / 600 + 0.05 * told + 0.002 * noise[0],
                ("all", "h0_mean"): 3 + random.normal(size=len(STEPS)),
                ("all", "neural_persistence"): 0.3 + random.normal(size=len(STEPS)),
                ("all", "h0_total_scaled"): 7 + random.normal(size=len(STEPS)),
                ("all", "weight_variance"): 2 + random.normal(size=len(STEPS)),
                ("all", "stable_rank"): 3 + random.normal(size=len(STEPS)),
                ("all", "frobenius_norm"): np.hypot(*norms),
                ("one", "frobenius_norm"): norms[0],
                ("two", "frobenius_norm"): norms[1],
                ("all", "mean_row_norm"): 1 + 0.1 * level[2] + 0.001 * noise[4],
            }
            where = {"model": name, "step": STEPS}
            features += [
                pd.DataFrame({**where, "source": "weights", "layer": layer, "feature": feature, "value": value})
                for (layer, feature), value in values.items()
            ]
            gap = random.normal(size=len(STEPS))
            metrics += [
                pd.DataFrame({**where, "metric": metric, "value": value})
                for metric, value in (("validation_loss", loss), ("generalisation_gap", gap))
            ]
            facts = {"final_step": 600, "warmup_steps": 60, "seed": number}
            models.append({"model": name, "configuration": configuration, "entry": configuration[:-2], **facts})
    return pd.concat(features), pd.concat(metrics), pd.DataFrame(models)


def gathered(tmp_path, **effects):
    """The small tables of finished runs, as they are committed."""
    features, metrics, models = tables(**effects)
    rows = features[features["feature"] == "mean_row_norm"]
    study_2.gather(tmp_path, features[features["feature"] != "mean_row_norm"], metrics, models, rows)


def results(tmp_path, **effects):
    """The tables of results, through the small tables."""
    gathered(tmp_path, **effects)
    parts = [
        pd.concat([pd.read_csv(path) for path in sorted((tmp_path / name).glob("*.csv.gz"))])
        for name in ("models", "series", "early")
    ]
    assert sorted(path.name for path in (tmp_path / "series").iterdir()) == sorted(
        f"{configuration}.csv.gz" for configuration in SIZES
    )
    found = study.study_tables(*small_tables.long_tables(*parts[1:]), parts[0], draws=1000)
    return found, found["primary"].set_index(["question", "feature"])


def test_there_are_six_primary_tests_and_without_an_effect_none_is_found(tmp_path):
    found, primary = results(tmp_path)
    assert list(primary.index) == [(q, f) for q in ("between", "within") for f in study.PRIMARY]
    assert (primary["q"] > 0.05).all()
    np.testing.assert_array_equal(primary["q"], holm(primary["p"].to_numpy()))
    assert (primary["n_models"] == 3 * SEEDS).all()
    # What must be found is found, in the same runs.
    control = found["control"].set_index("feature")
    assert control.loc["loss_at_50%", "p"] <= 0.01
    assert control.loc["loss_with_noise", "question"] == "within"
    exploratory = found["exploratory"]
    assert not exploratory.duplicated(["question", "feature"]).any()
    assert {"between", "within", "gap", "between, WikiText-2", "within, tiny-3k"} <= set(exploratory["question"])
    assert "stable_rank" in set(exploratory.query("question == 'between'")["feature"])
    assert not set(exploratory["feature"]) & set(study.NORMS)


def test_an_effect_between_runs_is_found_also_where_one_configuration_spreads_thirty_times_as_far(tmp_path):
    found, primary = results(tmp_path, between=0.9)
    assert primary.loc[("between", "h0_total"), "q"] < 0.01
    assert primary.loc[("between", "h0_total"), "low"] > 0.4
    assert (primary.drop(index=("between", "h0_total"))["q"] > 0.05).all()
    assert (found["configurations"].set_index("configuration")["h0_total"] > 0.4).all()
    mean = found["configurations"]["h0_total"].mean()
    assert primary.loc[("between", "h0_total"), "estimate"] == pytest.approx(mean, rel=1e-6)


def test_an_effect_within_runs_is_found_in_its_feature_alone(tmp_path):
    _, primary = results(tmp_path, within=2.0)
    assert primary.loc[("within", "h0_total"), "q"] < 0.01
    assert primary.loc[("within", "h0_total"), "low"] > 0.2
    assert (primary.drop(index=("within", "h0_total"))["q"] > 0.05).all()


def test_what_the_norm_of_the_rows_tells_with_slopes_of_each_configuration_is_no_discovery(tmp_path):
    _, primary = results(tmp_path, slopes=3.0)
    assert (primary["q"] > 0.05).all()


def test_a_study_of_which_a_configuration_is_missing_is_not_analysed(tmp_path):
    with pytest.raises(UserError, match="no tables of finished runs"):
        study_2.read(tmp_path)
    gathered(tmp_path)
    with pytest.raises(UserError, match="48 runs in 3 configurations; the plan has 15 configurations of 40"):
        study_2.read(tmp_path)


def test_the_more_noise_the_loss_has_the_less_it_correlates_with_itself():
    features, metrics, models = tables()
    features = pd.concat([features, study_2.mean_layer_norms(features)])
    norms = features[features["feature"].isin(study.WITHIN.of_model)]
    estimates = []
    for planted in (0.1, 0.5, 0.9):
        noisy = pd.concat([norms, study.noisy_loss(metrics, planted, seed=3)])
        rows = study.within_rows("w", noisy, metrics, models, 3, control=study.WITHIN)
        estimates.append(rows.set_index("feature").loc["loss_with_noise", "estimate"])
    assert estimates == sorted(estimates)
    # The controls take some of it: see docs/study-2.md.
    assert 0.02 < estimates[0] < 0.12
    assert 0.6 < estimates[2] < 0.9


def test_the_norms_by_hand(tmp_path):
    features = tables()[0].query("model == 'tiny-3k-again.a.seed0' and step == 12")
    by_layer = features[features["feature"] == "frobenius_norm"].set_index("layer")["value"]
    [mean] = study_2.mean_layer_norms(features).to_dict("records")
    assert mean["value"] == pytest.approx((by_layer["one"] + by_layer["two"]) / 2)
    assert (mean["layer"], mean["feature"]) == ("all", "mean_layer_norm")
    matrices = {"a.weight": np.array([[3.0, 4.0], [0.0, 1.0]]), "b.weight": np.array([[2.0]])}
    folder = tmp_path / "checkpoints/m"
    folder.mkdir(parents=True)
    for step, scale in ((12, 7.0), (24, 1.0), (36, 5.0)):
        scaled = {name: scale * value for name, value in matrices.items()}
        tensor_files.write(folder / f"step-{step:08d}.safetensors", scaled, {})
    models = pd.DataFrame({"model": ["m"], "final_step": [100]})
    [row] = study_2.row_norms(tmp_path, models).to_dict("records")
    assert (row["step"], row["value"]) == (24, pytest.approx((5 + 1 + 2) / 3))


def planned(path, tmp_path):
    config = yaml.safe_load(path.read_text())
    if config["corpus"]["source"] == "files":
        (tmp_path / "text.txt").write_text("text")
        config["corpus"] |= {"train": [str(tmp_path / "text.txt")], "validation": [str(tmp_path / "text.txt")]}
    return resolve(config), plan.models(resolve(config))


def test_the_plan_has_fifteen_configurations_of_forty_fresh_seeds_and_the_twelve_are_those_of_the_first_study(tmp_path):
    first, first_runs = planned(ROOT / "config/study.yaml", tmp_path)
    again, again_runs = planned(ROOT / "config/study-2.yaml", tmp_path)
    wikitext, wikitext_runs = planned(ROOT / "studies/study2/wikitext.yaml", tmp_path)
    runs = [*again_runs.values(), *wikitext_runs.values()]
    configurations = pd.Series([run.configuration for run in runs]).value_counts()
    assert (len(configurations), set(configurations)) == (study.CONFIGURATIONS, {study.SEEDS})
    seeds = {run.seed for run in runs}
    assert len(seeds) == 600
    _, data_runs = planned(ROOT / "config/study-data.yaml", tmp_path)
    assert not seeds & {run.seed for run in [*first_runs.values(), *data_runs.values()]}
    for config in (again, wikitext):
        assert config["training"] == first["training"]
        assert [list(config["models"][name].values()) for name in config["models"]] == [
            list(first["models"][name].values()) for name in first["models"]
        ]
    swept = ("learning_rate", "weight_decay", "seeds")
    assert [again["sweep"][key] for key in swept] == [first["sweep"][key] for key in swept]
