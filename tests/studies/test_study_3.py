"""The third study on tables in which effects are planted, and in which there are none; and its plan."""

import numpy as np
import pandas as pd
import pytest
import yaml

import plan
from config_reading import read, rebased, resolve
from paths import ROOT
from studies.study3 import configurations, measures, prediction
from studies.study3 import questions as study
from toposcale.io.errors import UserError
from toposcale.statistics.multiple_testing import holm

STEPS = np.array([0, 120, 180, 300, 600])
CONFIGURATIONS = {
    "tiny-3k-third.lr0.003": (0.003, 1.0),
    "small-7k-third.lr0.01": (0.01, 30.0),
    "tiny-3k-wikitext-third.lr0.003": (0.003, 1.0),
    "xl-97k-third.lr0.003": (0.003, 3.0),
}
"""Configurations with their rate, and how far their final losses and gaps spread."""
SEEDS = 24
LOSS_EFFECT, GAP_EFFECT = 0.02, 0.005


def tables(*, spectrum=0.0, topology=0.0, shape=0.0, shape_by_rank=0.0, seed=1):
    """Small tables of four configurations.

    spectrum, topology: how much of the final loss the nuclear norm, and what is H0's own, told at 30%; H0 follows the
    nuclear norm in any case. shape: how much of the final gap `h0_total_scaled` told; shape_by_rank: how much of both the
    effective rank tells.
    """
    random = np.random.default_rng(seed)
    models, series, early, gaps = [], [], [], []
    for configuration, (rate, spread) in CONFIGURATIONS.items():
        for number in range(SEEDS):
            name = f"{configuration}.seed{number}"
            nuclear, of_h0, cloud, rank, others = random.normal(size=5)
            size = random.normal(size=3)
            noise = random.normal(size=(2, len(STEPS)))
            later = np.clip((STEPS - 180) / 420, 0, 1)
            loss_told = spectrum * nuclear + topology * of_h0 + others
            loss = 2 + 4 * np.exp(-STEPS / 200) + 0.002 * noise[0]
            loss = loss + LOSS_EFFECT * spread * later * loss_told
            cloud = cloud + shape_by_rank * rank
            told = shape * cloud + shape_by_rank * rank + random.normal()
            values = {
                "frobenius_norm": 5 + 0.1 * size[0],
                "mean_layer_norm": 4 + 0.1 * size[1],
                "mean_row_norm": 1 + 0.1 * size[2],
                "nuclear_norm": 30 + nuclear + size[0],
                "nearest_neighbour_mean": 0.5 + 0.1 * nuclear + 0.05 * random.normal(),
                "h0_total": 20 + 2 * nuclear + of_h0,
                "h0_mean": 0.1 + 0.01 * nuclear + 0.01 * random.normal(),
                "h0_total_scaled": 100 + cloud,
                "h0_total_l2_scaled": 7 + cloud + 0.1 * random.normal(),
                "effective_rank_plain": 6 + rank,
                "effective_rank_centred": 5 + rank + 0.1 * random.normal(),
                "stable_rank": 2 + random.normal(),
                "spectral_norm": 3 + random.normal(),
                "neural_persistence": 0.3 + random.normal(),
            }
            where = {"model": name, "step": STEPS}
            series.append(pd.DataFrame(where | {"validation_loss": loss, "generalisation_gap": 0.01 * noise[1]}))
            early.append({"model": name, "step": 180} | values | {"nuclear_norm/a.weight": 1.0})
            for step in (120, 180, 300, 600):
                gap = 0.01 + GAP_EFFECT * spread * max(0, (step - 180) / 420) * told
                gap = gap + 0.0005 * spread * random.normal()
                gaps += [
                    {
                        "model": name,
                        "step": step,
                        "part": part,
                        "sequences": 350,
                        "validation_loss": loss[step == STEPS][0],
                        "training_loss": loss[step == STEPS][0] - gap - shift,
                    }
                    for part, shift in enumerate((0.1, -0.2, 0.05, 0.05))
                ]
            facts = {"final_step": 600, "warmup_steps": 60, "seed": number, "learning_rate": rate}
            models.append(
                {"model": name, "configuration": configuration, "entry": configuration.partition(".")[0], **facts}
            )
    return pd.DataFrame(models), pd.concat(series), pd.DataFrame(early), pd.DataFrame(gaps)


def results(**effects):
    gathered = study.tables_of(*tables(**effects))
    return gathered, study.primary_table(gathered, 2000, 1).set_index("question")


def found_in(primary):
    return {name for name, row in primary.iterrows() if row["q"] <= 0.05}


def test_without_an_effect_none_of_the_six_is_found_but_what_must_be():
    gathered, primary = results()
    assert list(primary.index) == ["1", "2", "3", "4", "5", "6"]
    assert found_in(primary) == set()
    np.testing.assert_array_equal(primary["q"], holm(primary["p"].to_numpy()))
    assert (primary["n_models"] == len(CONFIGURATIONS) * SEEDS).all()
    assert (primary["low"] < 0).all()
    assert (primary["high"] > 0).all()
    control = study.control_table(gathered, 500, 1).set_index("feature")
    assert (control.loc[["loss_at_50%", "gap_at_50%"], "p"] <= 0.01).all()


def test_what_the_spectrum_tells_is_not_told_by_h0_given_the_spectrum():
    _, primary = results(spectrum=2.0)
    assert found_in(primary) == {"1", "4"}
    assert primary.loc["1", "low"] > 0.4


def test_what_h0_tells_beyond_the_spectrum_is_found_without_the_first():
    _, primary = results(topology=2.0)
    # Given H0, the nuclear norm tells which part of it is not its own: the fourth test, in the other direction.
    assert found_in(primary) == {"2", "4"}
    assert primary.loc["2", "low"] > 0.4
    assert primary.loc["4", "high"] < 0


def test_what_the_shape_tells_of_the_gap_is_found_with_and_without_the_spectrum():
    gathered, primary = results(shape=2.0)
    assert found_in(primary) == {"5", "6"}
    losses = {
        one.name: study.answer(one, gathered, 500, 1)["estimate"]
        for one in study.variants()
        if one.name in ("5, training loss", "5, validation loss")
    }
    # In these tables the validation loss knows nothing of the shape, the training loss all.
    assert losses["5, training loss"] < losses["5, validation loss"] - 0.1
    assert study.prediction(study.PRIMARY[4], gathered, 1, resamples=200)["high"] < 0


def test_what_the_rank_tells_of_the_gap_is_not_told_by_the_shape_given_the_rank():
    _, primary = results(shape_by_rank=3.0)
    assert found_in(primary) == {"5"}


def test_the_configurations_weigh_alike_and_the_estimate_is_their_mean():
    gathered, primary = results(topology=2.0)
    by_configuration = study.by_configuration(gathered).set_index("configuration")
    assert set(by_configuration.index) == set(CONFIGURATIONS)
    assert (by_configuration["2"] > 0.4).all()
    for name in primary.index:
        assert primary.loc[name, "estimate"] == pytest.approx(by_configuration[name].mean(), rel=1e-9)


def test_every_secondary_question_of_the_plan_is_asked():
    rows = study.secondary_table(study.tables_of(*tables()), 50, 1).set_index("question")
    asked = set(rows.index)
    names = ("tiny-3k", "small-7k", "xl-97k", "rate 0.003", "rate 0.01", "python-docs", "WikiText-2")
    for question in "123456":
        assert {f"{question}, {name}" for name in names} <= asked
    for question in "1234":
        assert f"{question}, nearest distance for nuclear norm" in asked
    for question in "56":
        assert {f"{question}, {name}" for name in ("L2", "training loss", "validation loss")} <= asked
    assert {"2, without the nuclear norm", "3, without the nuclear norm"} <= asked
    assert rows["p"].notna().all()
    assert rows.loc["2, tiny-3k", "n_models"] == 2 * SEEDS
    assert rows.loc["2, WikiText-2", "n_configurations"] == 1
    assert rows.loc["4, nearest distance for nuclear norm", "feature"] == "nearest_neighbour_mean"


def test_the_gap_is_the_mean_over_the_sequences_and_its_noise_is_what_the_parts_differ_by():
    models, _, _, gaps = tables()
    rows = study.with_gaps(gaps, pd.DataFrame(columns=["model", "step", "metric", "value"]))
    values = rows.pivot(index=["model", "step"], columns="metric", values="value")
    first = gaps.query("model == @models.model[0] and step == 600")
    expected = (first["validation_loss"] - first["training_loss"]).mean()
    assert values.loc[(models["model"][0], 600), study.GAP] == pytest.approx(expected)
    # What the parts of all runs share is not noise.
    assert (study.gap_noise(gaps, models)["noise"] < 1e-12).all()
    random = np.random.default_rng(0)
    noisy = gaps.assign(training_loss=gaps["training_loss"] + 0.004 * random.normal(size=len(gaps)))
    noise = study.gap_noise(noisy, models)
    assert noise["noise"].mean() == pytest.approx(0.002, rel=0.1)
    assert (noise["sequences"] == 1400).all()


def test_a_run_that_is_left_out_is_told_by_the_others_of_its_configuration():
    random = np.random.default_rng(3)
    controls, outcome = random.normal(size=(3, 15)), random.normal(size=15)
    errors = prediction.left_out_errors(controls, outcome)
    for run in range(15):
        others = np.arange(15) != run
        design = np.vstack([np.ones(15), controls])
        fit, *_ = np.linalg.lstsq(design[:, others].T, outcome[others], rcond=None)
        assert errors[run] == pytest.approx(outcome[run] - fit @ design[:, run], rel=1e-9)


def test_the_smallest_correlation_that_can_be_found_follows_the_interval():
    # With 400 degrees of freedom: z = (2.638 + 0.842) / 20.
    half = 1.959964 / 20
    assert study.detectable(np.tanh(0.1 - half), np.tanh(0.1 + half)) == pytest.approx(np.tanh(3.4799 / 20), rel=1e-4)


def test_the_measures_of_the_spectrum_by_hand():
    matrices = {"b": np.diag([3.0, 3.0, 3.0]), "a": np.array([[0.0, 4.0], [0.0, 0.0]])}
    norms = {"a": {"frobenius_norm": 4.0}, "b": {"frobenius_norm": np.sqrt(27)}}
    values = measures.of_model(matrices, norms)
    assert values["effective_rank_plain"] == pytest.approx((3 + 1) / 2)
    # Three points at equal distances span two dimensions, two points one.
    assert values["effective_rank_centred"] == pytest.approx((2 + 1) / 2)
    assert values["spectral_norm"] == pytest.approx((3 + 4) / 2)
    assert values["mean_layer_norm"] == pytest.approx((4 + np.sqrt(27)) / 2)
    assert values["mean_row_norm"] == pytest.approx((4 + 0 + 3 + 3 + 3) / 5)


@pytest.fixture
def with_wikitext(tmp_path):
    """A copy of the configurations, in which some text stands for WikiText-2."""
    for file in configurations.CONFIG_FILES:
        config = yaml.safe_load((ROOT / file).read_text())
        if config["corpus"]["source"] == "files":
            (tmp_path / "text.txt").write_text("text")
            config["corpus"] |= {"train": ["text.txt"], "validation": ["text.txt"]}
            (tmp_path / "studies/study3/text.txt").parent.mkdir(parents=True)
            (tmp_path / "studies/study3/text.txt").write_text("text")
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(yaml.safe_dump(config))
    return tmp_path


def test_the_plan_has_seventeen_configurations_of_fresh_seeds_of_the_sizes_that_it_names(with_wikitext):
    planned = configurations.planned(with_wikitext)
    assert len(planned) == 17
    assert [len(configuration.runs) for configuration in planned] == [40] * 16 + [24]
    runs = [run for configuration in planned for run in configuration.runs.values()]
    seeds = {run.seed for run in runs}
    assert len(runs) == len(seeds) == 664
    for path in sorted(ROOT.glob("config/*.yaml")):
        if not path.name.startswith("study-3"):
            config = yaml.safe_load(path.read_text())
            if "sweep" in config:
                resolved = resolve(rebased(read(path), [path]))
                assert not seeds & {run.seed for run in plan.models(resolved).values()}, path
    second = pd.concat([pd.read_csv(path) for path in (ROOT / "studies/study2/tables/models").iterdir()])
    assert not seeds & set(second["seed"])
    # As in the second study but for the seeds.
    for configuration in planned[:15]:
        run = next(iter(configuration.runs.values()))
        earlier = configuration.name.replace("-third", "" if "wikitext" in configuration.name else "-again")
        [row] = second[second["configuration"] == earlier].head(1).to_dict("records")
        training = run.training | {"final_step": run.steps[-1], **run.settings}
        for key in ("d_model", "n_layers", "n_heads", "learning_rate", "weight_decay", "batch_size"):
            assert training[key] == row[key], (configuration.name, key)
        assert (training["final_step"], training["warmup_steps"]) == (600, 60)
    for configuration in planned[15:]:
        training = next(iter(configuration.runs.values())).training
        assert (training["learning_rate"], training["weight_decay"]) == (0.003, 0.1)


def test_a_study_of_which_a_configuration_is_missing_is_not_analysed(with_wikitext, tmp_path):
    with pytest.raises(UserError, match="0 of 17 configurations are trained; the study is analysed once"):
        configurations.read_all(tmp_path / "tables", configurations.planned(with_wikitext))


def test_the_page_says_how_many_configurations_are_trained_and_has_no_result_before_all_are(with_wikitext):
    folder = ROOT / "studies/study3/tables"
    done = [
        configuration
        for configuration in configurations.planned(with_wikitext)
        if configurations.complete(folder, configuration)
    ]
    for table in configurations.TABLES:
        assert {path.name for path in (folder / table).glob("*")} == {
            f"{configuration.name}.csv.gz" for configuration in done
        }
    if len(done) < 17:
        assert f"running, {len(done)} of 17 configurations" in (ROOT / "docs/study-3.md").read_text()
        assert not list(folder.glob("*.csv")), "results of a part of the study"
    assert all(path.stat().st_size < 1 << 20 for path in folder.glob("*/*"))
