"""The decisions of published training runs: made by hand and in full, judged, and told on the page and in README."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import published_decisions
from paths import ROOT
from studies.decisions import PUBLISHED_RUNS
from studies.decisions.judge import EXPECTED_REGRET, decision_table, decisions_of, groups, policy_table
from studies.decisions.priors import NONE, WIDTHS, learnt, prior_table, priors
from studies.decisions.published import Run, moments, read
from toposcale.forecasting.priors import PUBLISHED
from toposcale.forecasting.training_run import TrainingRun

TOKENS = 1e6
KEYS = ["family", "shape", "setting", "usual"]


def a_run(name, size, steps, shape="constant", source="other"):
    at = np.unique(np.geomspace(10, steps, 400).round())
    losses = 2 + 30 * size**-0.2 + 5 * at**-0.5
    facts = {"steps": at, "losses": losses, "checkpoint_steps": at, "checkpoint_losses": losses}
    rates = np.ones(steps + 1) if shape == "constant" else np.linspace(1, 0.1, steps + 1)
    history = TrainingRun(name, size, TOKENS, steps, learning_rates=rates, family="f", plan="given", **facts)
    return Run(source=source, family="f", size=name, shape=shape, warmup_steps=0, history=history)


@pytest.fixture(scope="module")
def published():
    return read(PUBLISHED_RUNS)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder of the same form that holds two sizes of one source alone, and its decisions."""
    folder = tmp_path_factory.mktemp("runs")
    runs = pd.read_csv(PUBLISHED_RUNS / "runs.csv").query(
        "source == 'multi-power-law' and shape == 'constant'"
    )
    curves = pd.read_csv(PUBLISHED_RUNS / "curves.csv.gz")
    runs.to_csv(folder / "runs.csv", index=False)
    curves[curves["run"].isin(runs["run"])].to_csv(folder / "curves.csv.gz", index=False)
    return folder


def test_the_pairs_are_as_many_as_the_definition_counts(published):
    counts: dict[tuple[str, str], int] = {}
    for moment in moments(published):
        for start in moment.starts:
            if moment.base.is_usual and start.run.is_usual:
                key = moment.base.family, moment.base.shape
                counts[key] = counts.get(key, 0) + 1
    assert counts == {
        ("gemstones", "constant"): 543,
        ("gemstones", "wsd"): 217,
        ("misfitting-0.001", "cosine"): 75,
        ("misfitting-0.002", "cosine"): 97,
        ("multi-power-law", "constant"): 13,
    }


def test_a_constant_run_that_is_cut_is_a_run_of_so_many_steps():
    base, larger = a_run("small", 1_000_000, 100_000), a_run("large", 4_000_000, 100_000)
    found = [one for one in moments([base, larger]) if one.whole.final_step == 50_000]
    assert [one.now.last_step / 50_000 for one in found] == pytest.approx([0.2, 0.3, 0.5], abs=0.05)
    for moment, share in zip(found, (0.2, 0.3, 0.5), strict=True):
        [start] = moment.starts
        # What is left buys (1 - share) / 4 of the steps of a size four times as large.
        bought = (1 - share) * 50_000 / 4
        assert start.history.final_step == round(bought)
        assert start.loss == pytest.approx(larger.loss_at(bought))
        assert moment.loss == pytest.approx(base.loss_at(50_000))
        assert moment.now.steps.max() <= share * 50_000
        spent = 50_000 * 1e6 - start.history.final_step * 4e6
        assert spent == pytest.approx(share * 50_000 * 1e6, rel=1e-3)


def test_a_pair_of_runs_that_decay_gives_the_moment():
    base = a_run("small", 1_000_000, 10_000, "cosine")
    fitting, too_long = (a_run(f"large{steps}", 4_000_000, steps, "cosine") for steps in (1_500, 2_400))
    too_near = a_run("near", 1_200_000, 3_000, "cosine")
    [moment] = moments([base, fitting, too_long, too_near])
    assert moment.now.last_step <= 0.4 * 10_000 < moment.now.last_step * 1.3
    [start] = moment.starts
    assert start.history.model == "large1500"
    assert start.candidate.target.model == ""
    assert (moment.loss, start.loss) == (base.history.losses[-1], fitting.history.losses[-1])


def test_no_choice_reads_what_is_still_to_come():
    """The losses after the moment are changed, those of the larger size altogether: choices and probabilities stay."""
    base, larger = a_run("small", 1_000_000, 10_000, "cosine"), a_run("large", 4_000_000, 1_500, "cosine")

    def judged(shift):
        late = np.where(base.history.steps > 0.45 * 10_000, shift, 0.0)
        moved = replace(base, history=replace(base.history, losses=base.history.losses + late))
        other = replace(larger, history=replace(larger.history, losses=larger.history.losses + shift))
        return decision_table(moments([moved, other]), {NONE: PUBLISHED}).set_index("policy")

    one, two = judged(0.0), judged(0.5)
    named = ["multi_power_law", "power_law", EXPECTED_REGRET]
    pd.testing.assert_frame_equal(
        one.loc[named, ["choice", "probability"]], two.loc[named, ["choice", "probability"]]
    )
    errors = [table.loc[EXPECTED_REGRET, "finish"][0] for table in (one, two)]
    assert errors[1] == pytest.approx(errors[0] - 0.5)


def test_the_prior_of_the_program_is_the_one_that_is_learnt_here(published):
    table = prior_table(learnt(published))
    committed = pd.read_csv(PUBLISHED_RUNS / "priors.csv").set_index("left_out")
    pd.testing.assert_frame_equal(table, committed, rtol=1e-3)
    for name in WIDTHS:
        told = getattr(PUBLISHED, name)
        assert told.centre == pytest.approx(table.loc[NONE, name], abs=6e-4)
        assert told.width == pytest.approx(table.loc[NONE, f"{name}_width"], abs=6e-4)


def test_a_prior_that_leaves_a_source_out_does_not_know_it(published):
    constants = learnt([run for run in published if run.source != "misfitting"])
    full = prior_table(learnt(published))
    alone = prior_table(constants)
    pd.testing.assert_series_equal(full.loc["misfitting"], alone.loc[NONE], check_names=False)
    shifted = constants + 1
    assert (
        prior_table(shifted).loc[NONE, list(WIDTHS)] - alone.loc[NONE, list(WIDTHS)]
    ).to_numpy() == pytest.approx(1)


def test_the_command_for_any_folder_gives_the_committed_numbers(small, tmp_path, monkeypatch, capsys):
    file = tmp_path / "found.json"
    monkeypatch.setattr(
        sys, "argv", ["published_decisions", str(small), "--json", str(file), "--processes", "1"]
    )
    published_decisions.main()
    [group] = json.loads(file.read_text())["groups"]
    committed = pd.read_csv(PUBLISHED_RUNS / "groups.csv")
    row = committed[(committed["family"] == "multi-power-law") & (committed["shape"] == "constant")].iloc[0]
    for key in ("decisions", "near", "sure", "sure_right", "near_right", "coverage_finish", "coverage_start"):
        assert group[key] == pytest.approx(row[key], abs=1e-5), key
    for key in ("error_finish", "error_start"):
        assert group[key] == pytest.approx(row[key], rel=0.02), key
    policies = pd.read_csv(PUBLISHED_RUNS / "policies.csv").query("family == 'multi-power-law'")
    for policy, regret in policies.set_index("policy")["regret"].items():
        if policy in group["regret"]:
            assert group["regret"][policy] == pytest.approx(regret, abs=1e-3), policy
    assert {EXPECTED_REGRET, "always_finish", "stop_now", "power_law", "multi_power_law", "oracle"} <= set(
        group["regret"]
    )
    assert "multi-power-law" in capsys.readouterr().out


def test_groups_and_intervals_by_hand():
    """Two base sizes with regrets (0, 0.2) and (0.1): mean 0.1; half of the sure answers are right."""
    told = {"finish": (0.1, True), "starts": [(-0.3, False), (0.1, True)]}
    rows = [
        {"policy": EXPECTED_REGRET, "base_size": size, "regret": regret, "probability": sure, "near": near, "best": best}
        for size, regret, sure, near, best in (
            ("a", 0.0, 0.9, True, "finish"), ("a", 0.2, 0.95, False, "start b"), ("b", 0.1, 0.5, True, "start b"),
        )
    ]  # fmt: skip
    table = pd.DataFrame(
        [row | told | dict(zip(KEYS, ("f", "wsd", "alone", True), strict=True)) for row in rows]
    )
    [group] = groups(table)
    assert group["regret"] == {EXPECTED_REGRET: pytest.approx(0.1)}
    assert (group["sure"], group["sure_right"]) == (pytest.approx(2 / 3), 0.5)
    assert (group["near"], group["near_right"]) == (2, 0.5)
    assert (group["finish_best"], group["coverage_finish"]) == (pytest.approx(1 / 3), 1.0)
    assert (group["coverage_start"], group["error_start"], group["bias_start"]) == (
        0.5, pytest.approx(0.2), pytest.approx(-0.1),
    )  # fmt: skip
    [row] = policy_table(table, 2000, 1).to_dict("records")
    # Two sizes can be drawn as (a, a), (a, b), (b, b): means 0.1 each time.
    assert [row[name] for name in ("regret", "regret_low", "regret_high")] == pytest.approx([0.1] * 3)


def test_the_same_rows_whatever_the_number_of_processes(small):
    runs = read(small)
    prior = priors(pd.read_csv(PUBLISHED_RUNS / "priors.csv").set_index("left_out"))
    one, two = (decisions_of(list(moments(runs))[:4], prior, processes) for processes in (1, 2))
    pd.testing.assert_frame_equal(one, two)


def usual_means():
    """Mean over the groups of usual shapes of the mean regret of each policy."""
    policies = pd.read_csv(PUBLISHED_RUNS / "policies.csv").query("usual")
    return policies.groupby("policy")["regret"].mean(), policies.groupby(KEYS).ngroups


@pytest.mark.parametrize("page", ["README.md", "docs/decisions.md"])
def test_the_pages_tell_the_committed_regrets(page):
    text = " ".join((ROOT / page).read_text().split())
    means, _ = usual_means()
    for part in (
        f"{means[EXPECTED_REGRET]:.3f} nats",
        f"always finishing {means['always_finish']:.3f}",
        f"always starting the next size {means['stop_now']:.3f}",
    ):
        assert part in text, part


def test_readme_counts_the_runs_and_decisions():
    runs = pd.read_csv(PUBLISHED_RUNS / "runs.csv")
    groups_of = pd.read_csv(PUBLISHED_RUNS / "groups.csv").query("usual")
    pairs = groups_of.query("setting == 'alone'")["decisions"].sum()
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"{len(runs)} published training runs" in text
    assert f"{pairs} decisions" in text
    right = (groups_of["sure_right"] * groups_of["sure"] * groups_of["decisions"]).sum()
    sure = (groups_of["sure"] * groups_of["decisions"]).sum()
    found = re.search(r"right in (\d+)% of the answers that it was sure of", text)
    assert found
    assert int(found.group(1)) == round(100 * right / sure)
