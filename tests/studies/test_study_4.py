"""The fourth study on simulated tables with planted effects and with none; its verdict, and its plan."""

import itertools
from functools import cache

import numpy as np
import pandas as pd
import pytest
import yaml

import config_reading
import plan
from paths import ROOT
from studies.decisions import OWN_TABLES
from studies.nulls.__main__ import FOLDERS
from studies.nulls.configurations import table_of
from studies.study4 import __main__ as program
from studies.study4 import questions as study
from studies.study4.configurations import NUMBERS, complete, file_of, planned
from studies.study4.power import Effects, of_h0_alone, simulated
from studies.study4.questions import (
    BEYOND_H0,
    BEYOND_NUCLEAR,
    BEYOND_SURROGATES,
    HIGH_RATE,
    LOW_RATE,
    MEAN,
    PRIMARY,
    SQUARES,
    Answer,
    Verdict,
)
from toposcale.io.errors import UserError
from toposcale.statistics.multiple_testing import holm

DRAWS = 199
RUNS = 1000
"""Of each configuration, so that what is planted is found, and what is not lies within .035 of 0, in nearly all tables."""
NOTHING, SPECTRUM, OWN = Effects(), Effects(nuclear=-0.3), Effects(own=-0.25)


def tables(low, high, seed=1, runs=RUNS):
    """Return a simulated table of runs with these effects at the two rates."""
    return simulated({LOW_RATE: low, HIGH_RATE: high}, np.random.default_rng(seed), runs)


@cache
def primary(low, high):
    """Return the primary tests of a simulated table."""
    return study.primary_table(tables(low, high), DRAWS, 1)


def found(table, rate):
    """Return the questions and statistics that are found at a rate."""
    rows = table[(table["rate"] == rate) & (table["q"] <= study.LEVEL)]
    return set(zip(rows["question"], rows["statistic"], strict=True))


def test_a_planted_spectrum_is_told_as_a_spectrum():
    table = primary(SPECTRUM, SPECTRUM)
    for rate in (LOW_RATE, HIGH_RATE):
        assert found(table, rate) == {(BEYOND_H0.name, MEAN), (BEYOND_H0.name, SQUARES)}
    assert study.verdict(study.answers_of(table)) is Verdict.SPECTRUM


def test_a_planted_topology_at_the_high_rate_is_told_as_a_topology():
    table = primary(SPECTRUM, OWN)
    beyond = {(one.name, statistic) for one in (BEYOND_SURROGATES, BEYOND_NUCLEAR) for statistic in (MEAN, SQUARES)}
    assert beyond <= found(table, HIGH_RATE)
    assert found(table, LOW_RATE) == {(BEYOND_H0.name, MEAN), (BEYOND_H0.name, SQUARES)}
    assert study.verdict(study.answers_of(table)) is Verdict.TOPOLOGY


def test_where_nothing_is_planted_nothing_is_told():
    table = primary(NOTHING, NOTHING)
    assert not found(table, LOW_RATE) | found(table, HIGH_RATE)
    assert study.verdict(study.answers_of(table)) is Verdict.NEITHER


def test_effects_of_opposite_signs_are_found_by_the_sum_of_squares_alone():
    opposite = Effects(own=0.3, opposite=True)
    table = primary(opposite, opposite)
    for rate in (LOW_RATE, HIGH_RATE):
        assert (BEYOND_SURROGATES.name, SQUARES) in found(table, rate)
        assert (BEYOND_SURROGATES.name, MEAN) not in found(table, rate)
    assert study.verdict(study.answers_of(table)) is Verdict.NEITHER


def test_the_planted_correlations_come_out():
    table = study.primary_table(tables(of_h0_alone(-0.3), OWN, runs=2000), 1, 1)
    rows = table[table["statistic"] == MEAN].set_index(["rate", "question"])["estimate"]
    # Standard error 1 / sqrt(8,000) = .011; noise of the surrogates' mean takes a little.
    assert rows[HIGH_RATE, BEYOND_SURROGATES.name] == pytest.approx(-0.25, abs=0.04)
    assert rows[HIGH_RATE, BEYOND_NUCLEAR.name] == pytest.approx(-0.25 * np.sqrt(0.27 / 0.55), abs=0.04)
    assert rows[LOW_RATE, BEYOND_NUCLEAR.name] == pytest.approx(-0.3 * np.sqrt(0.55), abs=0.04)


def test_true_nulls_are_rejected_at_the_level():
    own = study.tables_of(simulated({LOW_RATE: NOTHING}, np.random.default_rng(1), runs=40))
    read, random, p = study.read_of(BEYOND_NUCLEAR, own), np.random.default_rng(2), []
    spread = np.array(
        [
            {name: 10.0**place for place, name in enumerate(dict.fromkeys(read.configurations))}[c]
            for c in read.configurations
        ]
    )
    for seed in range(300):
        # Skewed, of another spread in each configuration, and told by the controls.
        outcome = read.controls.sum(axis=0) + spread * random.exponential(size=len(spread))
        rows = study.both_tests(BEYOND_NUCLEAR, read._replace(outcome=outcome), 199, seed)
        p.append([row["p"] for row in rows])
    # 15 of 300 are expected; fewer than 5 or more than 26 of a test with the right level happen in 0.3% of cases.
    found = (np.array(p) <= 0.05).sum(axis=0)
    assert ((found >= 5) & (found <= 26)).all()


def test_the_mean_is_that_of_the_test_between_runs_and_the_squares_are_by_hand():
    own = study.at_rate(tables(SPECTRUM, OWN), HIGH_RATE)
    mean, squares = study.both_tests(BEYOND_NUCLEAR, study.read_of(BEYOND_NUCLEAR, own), DRAWS, 7)
    row = study.answer(BEYOND_NUCLEAR, own, DRAWS, 7)
    for column in ("estimate", "low", "high", "p", "detectable", "n_models", "n_configurations"):
        assert mean[column] == pytest.approx(row[column], rel=1e-12), column
    correlations = study.by_configuration(own, [BEYOND_NUCLEAR])[BEYOND_NUCLEAR.name]
    # 1,000 runs less a mean, three controls of the loss, three norms, the nuclear norm and one.
    assert squares["estimate"] == pytest.approx((RUNS - 9) * (correlations**2).sum(), rel=1e-9)


def test_large_sums_of_squares_alone_are_extreme():
    assert study.share_as_large(np.array([4.0, 1.0, 2.0, 4.0 - 1e-12, 9.0])) == 3 / 5


def test_holm_goes_over_the_six_of_a_rate():
    table = primary(SPECTRUM, OWN)
    assert len(table) == 12
    for _, own in table.groupby("rate"):
        np.testing.assert_array_equal(own["q"], holm(own["p"].to_numpy()))


ABSENT = Answer(-0.04, -0.09, found=False, found_by_squares=False)
NEGATIVE = Answer(-0.12, -0.17, found=True, found_by_squares=True)
POSITIVE = Answer(0.12, 0.07, found=True, found_by_squares=True)
UNCLEAR = Answer(-0.06, -0.11, found=False, found_by_squares=False)
BY_SQUARES = Answer(0.0, -0.05, found=False, found_by_squares=True)
UNTESTED = Answer(np.nan, np.nan, found=False, found_by_squares=False)


def verdict(low, high):
    """Return the verdict from the answers to the three questions at each rate."""
    return study.verdict(
        {LOW_RATE: dict(zip(PRIMARY, low, strict=True)), HIGH_RATE: dict(zip(PRIMARY, high, strict=True))}
    )


SPECTRAL = (ABSENT, ABSENT, NEGATIVE)


def test_spectrum_needs_all_three_answers_at_both_rates():
    assert verdict(SPECTRAL, SPECTRAL) is Verdict.SPECTRUM
    for place, other in itertools.product(range(3), (UNCLEAR, BY_SQUARES, POSITIVE, UNTESTED)):
        changed = list(SPECTRAL)
        changed[place] = other
        assert verdict(changed, SPECTRAL) is Verdict.NEITHER
        assert verdict(SPECTRAL, changed) is Verdict.NEITHER


def test_topology_needs_both_negative_answers_at_the_high_rate():
    for third_answer in (ABSENT, NEGATIVE, POSITIVE, UNTESTED):
        assert verdict(SPECTRAL, (NEGATIVE, NEGATIVE, third_answer)) is Verdict.TOPOLOGY
    for pair in itertools.product((NEGATIVE, POSITIVE, UNCLEAR, BY_SQUARES, UNTESTED), repeat=2):
        if pair != (NEGATIVE, NEGATIVE):
            assert verdict(SPECTRAL, (*pair, ABSENT)) is Verdict.NEITHER
    assert verdict((NEGATIVE, NEGATIVE, ABSENT), SPECTRAL) is Verdict.NEITHER


def test_the_bound_must_lie_above_the_yardstick():
    at = ABSENT._replace(low=study.YARDSTICK)
    assert verdict((at, ABSENT, NEGATIVE), SPECTRAL) is Verdict.NEITHER


def test_all_tables_of_results_are_made_and_the_loss_at_half_is_found(monkeypatch):
    monkeypatch.setattr(study, "STUDY_DRAWS", 99)
    monkeypatch.setattr(study, "SECONDARY_DRAWS", 99)
    results = study.study_tables(tables(SPECTRUM, OWN, runs=30))
    assert (results["control"]["p"] == 0.01).all()
    assert list(results["control"]["rate"]) == [LOW_RATE, HIGH_RATE]
    assert len(results["configurations"]) == 8
    # At each rate: the secondary questions, and the primary ones for two numbers of parameters.
    assert len(results["secondary"]) == 2 * (len(study.SECONDARY) + 2 * len(PRIMARY))
    assert results["secondary"]["p"].notna().all()
    assert results["surrogates"].drop(columns="configuration").notna().all(axis=None)


def test_the_controls_leave_the_shares_that_were_planted():
    own = study.tables_of(simulated({LOW_RATE: NOTHING}, np.random.default_rng(4), runs=4000))
    left = study.shares_left(own, PRIMARY).drop(columns="configuration").mean()
    # A share of 4 x 4,000 runs has a standard error below .01; 3% of the surrogates' mean is noise.
    assert left[BEYOND_NUCLEAR.name] == pytest.approx(0.55, abs=0.02)
    assert left[BEYOND_SURROGATES.name] == pytest.approx(1 - 0.73 / 1.03, abs=0.02)


def test_the_difference_of_the_rates_follows_fisher():
    means = pd.DataFrame({"rate": [LOW_RATE, HIGH_RATE], "question": "a", "statistic": MEAN})
    z, error = np.array([0.1, -0.1]), 0.05
    bounds = {"estimate": np.tanh(z), "low": np.tanh(z - 1.959964 * error), "high": np.tanh(z + 1.959964 * error)}
    [row] = study.rate_differences(means.assign(**bounds)).to_dict("records")
    assert row["difference"] == pytest.approx(-0.2)
    # z = -.2 / (.05 sqrt 2) = -2.828
    assert row["p"] == pytest.approx(0.00468, rel=1e-2)


@pytest.fixture(scope="module")
def planned_configurations():
    """The configurations of the plan."""
    return planned(ROOT)


def test_the_plan_has_eight_configurations_of_fresh_seeds(planned_configurations):
    runs = [run for one in planned_configurations for run in one.runs.values()]
    assert [len(one.runs) for one in planned_configurations] == [400] * 8
    seeds = {run.seed for run in runs}
    assert len(seeds) == 3200
    for path in [*ROOT.glob("config/*.yaml"), *ROOT.glob("studies/*/wikitext.yaml")]:
        config = yaml.safe_load(path.read_text())
        if "sweep" in config and config.get("corpus", {}).get("source") != "files":
            resolved = config_reading.resolve(config_reading.read(path), [path])
            assert not seeds & {run.seed for run in plan.models(resolved).values()}, path
    for folder in (*FOLDERS, OWN_TABLES):
        assert not seeds & set(table_of(folder, "models")["seed"]), folder


def test_the_runs_are_trained_as_those_of_the_third_study(planned_configurations):
    third = table_of(FOLDERS[2], "models").drop_duplicates("configuration").set_index("configuration")
    for one in planned_configurations:
        row = third.loc[one.name.replace("fourth", "third")]
        run = next(iter(one.runs.values()))
        training = run.training | run.settings
        for key in ("d_model", "n_layers", "n_heads", "learning_rate", "weight_decay", "batch_size", "warmup_steps"):
            assert training[key] == row[key], (one.name, key)
        assert run.steps[-1] == row["final_step"] == 600
        assert one.config["weights"]["surrogate_draws"] == 20
        assert {120, 180, 300, 600} <= set(run.steps)


def test_a_study_of_which_a_configuration_is_missing_is_not_analysed(tmp_path):
    with pytest.raises(UserError, match="0 of 8 configurations are trained"):
        program.main(tmp_path, root=ROOT)


def test_a_table_without_a_run_or_a_number_is_not_complete(planned_configurations, tmp_path):
    one = planned_configurations[0]
    table = pd.DataFrame({"model": list(one.runs)} | dict.fromkeys(NUMBERS, 1.0))
    path = file_of(tmp_path, one)
    path.parent.mkdir()
    for wrong in (table.iloc[1:], table.assign(h0_mean=[np.nan, *table["h0_mean"][1:]]), table.iloc[::-1]):
        wrong.to_csv(path, index=False)
        assert not complete(tmp_path, one)
    table.to_csv(path, index=False)
    assert complete(tmp_path, one)


def test_the_page_has_no_result_before_all_configurations_are_there(planned_configurations):
    folder = ROOT / "studies/study4/tables"
    if not all(complete(folder, one) for one in planned_configurations):
        assert "**State: planned.**" in (ROOT / "studies/study4/README.md").read_text()
        assert not [*folder.glob("*.csv"), *folder.glob("*.md")], "results of a part of the study"
