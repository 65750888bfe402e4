"""The decisions of published training runs: made by hand and in full, judged, and told on the page."""

import json
import re
import sys
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import published_decisions, published_forecasts
from made_runs import training_run
from paths import ROOT
from studies import run_pairs, small_tables
from studies.decisions import PUBLISHED_RUNS, computed
from studies.decisions import priors as learning
from studies.decisions.__main__ import TABLES
from studies.decisions.ablation import PATCHED
from studies.decisions.forecasts import ALONE, JOINT, ONE_KNOWN, by_source, forecasts_of, record, with_smaller
from studies.decisions.headlines import KNOWN, SURFACE, regret_differences
from studies.decisions.judge import EXPECTED_REGRET, by_threshold, decision_table, decisions_of, groups, policy_table
from studies.decisions.priors import CONSTANTS, START
from studies.decisions.published import read
from studies.decisions.small import small_size_table
from studies.decisions.standing import WRONG_BATCHES, standing_points, standing_table
from studies.run_pairs import published_replicates
from toposcale.datasets import PublishedRun, load_published_runs
from toposcale.forecasting import TrainingRun
from toposcale.forecasting.decision.decision_points import best_of_sweeps, decision_points
from toposcale.forecasting.evaluation import PENALTY
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.power_law import SMALL_SIZES
from toposcale.forecasting.laws.prior_table import NONE, PRIORS, as_row, priors
from toposcale.forecasting.laws.priors import PEAK, PUBLISHED
from toposcale.forecasting.runs.published_run import NEXT_TOKEN

TOKENS = 1e6
KEYS = ["family", "shape", "setting", "usual"]


def a_run(name, size, steps, shape="constant", source="other"):
    at = np.unique(np.geomspace(10, steps, 400).round())
    losses = 2 + 30 * size**-0.2 + 5 * at**-0.5
    facts = {"steps": at, "losses": losses, "checkpoint_steps": at, "checkpoint_losses": losses}
    rates = np.ones(steps + 1) if shape == "constant" else np.linspace(1, 0.1, steps + 1)
    history = training_run(name, size, TOKENS, steps, learning_rates=rates, family="f", provenance="given", **facts)
    columns = {field.name: getattr(history, field.name) for field in fields(TrainingRun)}
    return PublishedRun(**columns, source=source, size=name, shape=shape)


@pytest.fixture(scope="module")
def published():
    return read(PUBLISHED_RUNS)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder of the same form that holds two sizes of one source alone, and its decisions."""
    folder = tmp_path_factory.mktemp("runs")
    load_published_runs("multi-power-law", tags="constant").to_csv(folder)
    return folder


def test_the_pairs_are_as_many_as_the_definition_counts(published):
    counts: dict[tuple[str, str], int] = {}
    for point in decision_points(published):
        for start in point.starts:
            if point.base.is_usual and start.run.is_usual:
                key = point.base.family, point.base.shape
                counts[key] = counts.get(key, 0) + 1
    assert counts == {
        ("gemstones", "constant"): 466,
        ("gemstones", "wsd"): 217,
        ("misfitting-0.001", "cosine"): 75,
        ("misfitting-0.002", "cosine"): 97,
        ("multi-power-law", "constant"): 12,
        ("olmo-ladder", "cosine"): 18,
        ("olmo-ladder-stack", "cosine"): 18,
        ("xlstm-llama-2k", "given"): 405,
        ("xlstm-mlstm-16k", "given"): 379,
        ("slimpajama", "constant"): 71,
        ("slimpajama", "cosine"): 2,
        ("slimpajama", "wsd"): 1,
    }


def test_no_row_of_a_source_without_noise_is_that_of_another_run(published):
    """The losses of misfitting are those of a whole validation set, so they fall smoothly."""
    for run in published:
        if run.source == "misfitting" and len(run.steps) >= 5:
            changes = np.diff(run.losses)
            slopes = changes / np.diff(np.log(run.steps))
            assert changes.max() < 0.01, run.model
            assert slopes[-1] > 2 * slopes[-2], run.model


def test_a_constant_run_that_is_cut_is_a_run_of_so_many_steps():
    base, larger = a_run("small", 1_000_000, 100_000), a_run("large", 4_000_000, 100_000)
    points = [one for one in decision_points([base, larger]) if one.whole.final_step == 50_000]
    assert [one.now.progress.step / 50_000 for one in points] == pytest.approx([0.2, 0.3, 0.5], abs=0.05)
    for point, share in zip(points, (0.2, 0.3, 0.5), strict=True):
        [start] = point.starts
        # What is left buys (1 - share) / 4 of the steps of a size four times as large.
        bought = (1 - share) * 50_000 / 4
        assert start.history.final_step == round(bought)
        assert start.loss == pytest.approx(larger.loss_at(bought))
        assert point.loss == pytest.approx(base.loss_at(50_000))
        assert point.now.steps.max() <= share * 50_000
        spent = 50_000 * 1e6 - start.history.final_step * 4e6
        assert spent == pytest.approx(share * 50_000 * 1e6, rel=1e-3)


def test_a_pair_of_runs_that_decay_is_a_decision_point():
    base = a_run("small", 1_000_000, 10_000, "cosine")
    fitting, too_long = (a_run(f"large{steps}", 4_000_000, steps, "cosine") for steps in (1_500, 2_400))
    too_near = a_run("near", 1_200_000, 3_000, "cosine")
    [point] = decision_points([base, fitting, too_long, too_near])
    assert point.now.progress.step <= 0.4 * 10_000 < point.now.progress.step * 1.3
    [start] = point.starts
    assert start.history.model == "large1500"
    assert start.candidate.target.model == ""
    assert (point.loss, start.loss) == (base.losses[-1], fitting.losses[-1])


def test_no_choice_reads_what_is_still_to_come():
    """The losses after the point are changed, those of the larger size altogether: choices and probabilities stay."""
    base, larger = a_run("small", 100_000_000, 10_000, "cosine"), a_run("large", 400_000_000, 1_500, "cosine")

    def judged(shift):
        late = np.where(base.steps > 0.45 * 10_000, shift, 0.0)
        moved = replace(base, losses=base.losses + late)
        other = replace(larger, losses=larger.losses + shift)
        return decision_table(decision_points([moved, other]), {NONE: PUBLISHED}).set_index("policy")

    one, two = judged(0.0), judged(0.5)
    named = ["multi_power_law", "power_law", EXPECTED_REGRET]
    pd.testing.assert_frame_equal(one.loc[named, ["choice", "probability"]], two.loc[named, ["choice", "probability"]])
    errors = [table.loc[EXPECTED_REGRET, "continue"][0] for table in (one, two)]
    assert errors[1] == pytest.approx(errors[0] - 0.5)


def committed_priors():
    return priors()


def test_the_prior_of_the_program_is_the_committed_one():
    for name, value in as_row(committed_priors()[NONE]).items():
        assert as_row(PUBLISHED)[name] == pytest.approx(value, abs=6e-4), name


def test_the_constants_of_the_committed_priors_are_those_of_the_runs(published):
    """What the search does not find but fits do: for all sources, and with one left out."""
    committed = committed_priors()
    by_source = learning.constants_by_source(published)
    for left_out in (NONE, "xlstm"):
        again = learning.with_constants(START, by_source.drop(index=left_out, errors="ignore"))
        for name in CONSTANTS:
            # The fits here are those under the time exponent of the start of the search.
            assert getattr(again, name).mean == pytest.approx(getattr(committed[left_out], name).mean, abs=0.12), name
    assert by_source.loc["modded-nanogpt"].isna().sum() == 3  # one size tells nothing of sizes


def test_a_prior_that_leaves_a_source_out_does_not_read_it(published):
    """Losses of the source that is left out are spoilt: what is learnt of the others stays."""
    spoilt = [
        replace(run, losses=run.losses + 3, checkpoint_losses=run.losses + 3) if run.source == "misfitting" else run
        for run in published
    ]
    kept, changed = (learning.constants_by_source(runs).drop(index="misfitting") for runs in (published, spoilt))
    pd.testing.assert_frame_equal(kept, changed)


def test_b_is_regressed_on_what_was_planted():
    """Four sources whose log B follows planted slopes, but for an effect of each source."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3))
    source = np.repeat(list("abcd"), 20)
    slopes = np.array([0.35, -0.2, 0.1])
    log_b = -1.7 + rows @ slopes + np.repeat([0.1, -0.1, 0.05, -0.05], 20) + 0.02 * rng.normal(size=80)
    gains = pd.DataFrame(rows, columns=[*learning.SLOPES]).assign(source=source, family=source, log_b=log_b, sd=0.02)
    found = learning.with_gain(START, gains)
    assert [getattr(found, name) for name in learning.SLOPES] == pytest.approx(slopes, abs=0.02)
    assert found.log_b.mean == pytest.approx(-1.7, abs=0.1)


def test_prior_of_b_depends_on_peak_batch_and_optimizer():
    low, high = (PUBLISHED.log_b_of(peak, 5e5, 1e8) for peak in (PEAK / 2, PEAK * 2))
    assert high.mean - low.mean == pytest.approx(PUBLISHED.b_by_peak * np.log(4))
    assert PUBLISHED.log_b_of(PEAK, 2e5, 1e8).mean > PUBLISHED.log_b_of(PEAK, 4e5, 1e8).mean
    assert low.sd == PUBLISHED.log_b.sd
    widths = [PUBLISHED.log_b_of(PEAK, 5e5, 1e8, optimizer).sd for optimizer in ("AdamW", "Muon", "", "lion")]
    assert widths == sorted(set(widths))
    for unknown in ((1.0, 5e5), (PEAK, np.nan)):  # a rate that is a share of the peak; an unknown batch
        b = PUBLISHED.log_b_of(*unknown, 1e8)
        assert b.mean == pytest.approx(PUBLISHED.log_b.mean)
        assert b.sd > low.sd


def test_given_schedules_are_lines_between_their_breakpoints_and_peaks_are_absolute(published):
    breakpoints = pd.read_csv(PUBLISHED_RUNS / "schedules.csv.gz").set_index("run")
    run = next(run for run in published if run.shape == "given" and run.source == "xlstm")
    own, peak = breakpoints.loc[run.model], run.schedule.peak_rate
    assert 1e-4 < peak < 1e-2
    rates = run.schedule.rates / peak
    assert rates[own["step"].astype(int)] == pytest.approx(own["rate"].to_numpy())
    assert len(rates) == run.final_step + 1


def test_of_a_sweep_of_peak_rates_the_best_run_alone_is_judged():
    low, high, longer = (
        a_run(name, 1_000_000, steps, "given") for name, steps in (("a", 1000), ("b", 1000), ("c", 2000))
    )
    low, high, longer = (replace(run, size="1M") for run in (low, high, longer))
    worse = replace(high, losses=high.losses + 0.1)
    assert best_of_sweeps([low, worse, longer]) == [low, longer]
    assert best_of_sweeps([worse, low, longer]) == [low, longer]


def test_every_point_has_five_rows_of_the_base_before_it(published):
    assert min(len(point.now.steps) for point in decision_points(published)) >= 5


def test_forecasts_are_judged_as_by_hand():
    """Errors 0.1 (inside) and -0.3 (0.1 outside of a width of 0.4), and one that is refused."""
    rows = pd.DataFrame(
        {
            "run": list("abc"),
            "source": "s",
            "family": "f",
            "method": JOINT,
            "known": ALONE,
            "forecast": [3.1, 2.7, np.nan],
            "low": [2.9, 2.5, np.nan],
            "high": [3.3, 2.9, np.nan],
            "actual": 3.0,
            "reason": ["", "", "why"],
        }
    )
    one, total = by_source(rows).to_dict("records")
    assert (one["n"], one["refused"]) == (3, pytest.approx(1 / 3))
    assert (one["mean_error"], one["bias"], one["inside"]) == (pytest.approx(0.2), pytest.approx(-0.1), 0.5)
    assert one["score"] == pytest.approx(0.4 + PENALTY * 0.1 / 2)
    assert total["source"] == "all"
    assert total["score"] == one["score"]


def test_the_command_forecasts_any_folder(small, tmp_path, monkeypatch, capsys):
    """Constant runs have no end under a decay; a cosine run has three decision points, each with numbers or a reason."""
    folder = tmp_path / "runs"
    runs = load_published_runs("multi-power-law")
    runs.to_csv(folder)
    file = tmp_path / "forecasts.json"
    monkeypatch.setattr(sys, "argv", ["published_forecasts", str(folder), "--json", str(file), "--processes", "1"])
    published_forecasts.main()
    rows = json.loads(file.read_text())["rows"]
    assert set(rows[0]) == {
        "run", "source", "family", "usual", "share", "method", "forecast", "low", "high", "actual", "reason",
    }  # fmt: skip
    decaying = [run for run in runs if run.shape != "constant"]
    assert len(rows) == 3 * 3 * len(decaying)
    assert {row["method"] for row in rows} == {"joint", "multi_power_law", "power_law"}
    assert all((row["forecast"] is None) == bool(row["reason"]) for row in rows)
    committed = pd.read_csv(PUBLISHED_RUNS / "forecasts.csv").query(
        "source == 'multi-power-law' and method == 'joint' and known == @ALONE"
    )
    errors = [abs(row["forecast"] - row["actual"]) for row in rows if row["method"] == "joint"]
    assert np.mean(errors) == pytest.approx(committed["mean_error"].item(), abs=1e-4)
    assert "multi-power-law" in capsys.readouterr().out


def test_one_finished_smaller_run_narrows_the_forecast(published):
    run = next(one for one in published if one.model == "multi-power-law-100m-cosine-24000")
    rows = forecasts_of([run, *(one for one in published if one.source == "multi-power-law")], committed_priors(), 1)
    rows = rows[(rows["run"] == run.model) & (rows["method"] == JOINT)]
    width = (rows["high"] - rows["low"]).groupby(rows["known"]).mean()
    assert width[ONE_KNOWN] < width[ALONE]


def test_the_command_for_any_folder_gives_the_committed_numbers(small, tmp_path, monkeypatch, capsys):
    file = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["published_decisions", str(small), "--json", str(file), "--processes", "1"])
    published_decisions.main()
    [group] = json.loads(file.read_text())["groups"]
    committed = pd.read_csv(PUBLISHED_RUNS / "groups.csv")
    row = committed[(committed["family"] == "multi-power-law") & (committed["shape"] == "constant")].iloc[0]
    for key in (
        "decisions",
        "near",
        "confident",
        "confident_right",
        "near_right",
        "coverage_continue",
        "coverage_start",
    ):
        assert group[key] == pytest.approx(row[key], abs=1e-5), key
    for key in ("error_continue", "error_start"):
        assert group[key] == pytest.approx(row[key], rel=0.02), key
    policies = pd.read_csv(PUBLISHED_RUNS / "policies.csv").query("family == 'multi-power-law'")
    for policy, regret in policies.set_index("policy")["regret"].items():
        if policy in group["regret"] and policy != "tokens_per_parameter":  # which learns from the other sources
            assert group["regret"][policy] == pytest.approx(regret, abs=1e-3), policy
    assert {EXPECTED_REGRET, "always_continue", "next_size", "power_law", "multi_power_law", "oracle"} <= set(
        group["regret"]
    )
    assert "multi-power-law" in capsys.readouterr().out


def test_groups_and_intervals_by_hand():
    """Two base sizes with regrets (0, 0.2) and (0.1): mean 0.1; half of the confident answers are right."""
    told = {"continue": (0.1, True), "starts": [(-0.3, False), (0.1, True)], "answered": True}
    rows = [
        {"policy": EXPECTED_REGRET, "base_size": size, "regret": regret, "confident": confident, "near": near, "best": best}
        | {"clear": not near}
        for size, regret, confident, near, best in (
            ("a", 0.0, True, True, "continue"), ("a", 0.2, True, False, "scale up to b"),
            ("b", 0.1, False, True, "scale up to b"),
        )
    ]  # fmt: skip
    table = pd.DataFrame([row | told | dict(zip(KEYS, ("f", "wsd", "alone", True), strict=True)) for row in rows])
    [group] = groups(table)
    assert group["regret"] == {EXPECTED_REGRET: pytest.approx(0.1)}
    assert (group["confident"], group["confident_right"]) == (pytest.approx(2 / 3), 0.5)
    assert (group["near"], group["near_right"], group["clear_confident"]) == (2, 0.5, 1.0)
    assert (group["continue_best"], group["coverage_continue"]) == (pytest.approx(1 / 3), 1.0)
    assert (group["coverage_start"], group["error_start"], group["bias_start"]) == (
        0.5, pytest.approx(0.2), pytest.approx(-0.1),
    )  # fmt: skip
    [row] = policy_table(table, 2000, 1).to_dict("records")
    # Two sizes can be drawn as (a, a), (a, b), (b, b): means 0.1 each time.
    assert [row[name] for name in ("regret", "regret_low", "regret_high")] == pytest.approx([0.1] * 3)


def test_regret_differences_by_hand():
    """With smaller sizes known 0.1 and 0 instead of 0.3 and 0; the scaling law has 0.2 each; one shape is unusual."""
    regrets = {("a", True): (0.3, 0.1), ("b", True): (0.0, 0.0), ("c", False): (0.1, 0.4)}
    rows = [
        dict(zip(KEYS, ("f", "wsd", setting, usual), strict=True))
        | {"source": "s", "decision": size, "base_size": size, "policy": policy, "regret": regret}
        for (size, usual), of_advice in regrets.items()
        for setting, advice in zip(("alone", "with smaller sizes"), of_advice, strict=True)
        for policy, regret in ((EXPECTED_REGRET, advice), ("chinchilla", 0.2))
    ]
    table = regret_differences(pd.DataFrame(rows), 2000, 1).set_index(["source", "comparison"])
    of_known = table.loc[("s", KNOWN), ["decisions", "difference", "low", "high"]].tolist()
    assert of_known == pytest.approx([2, -0.1, -0.2, 0.0])
    assert table.loc[("s", SURFACE), "difference"] == pytest.approx(0.1 - 0.2)
    assert table.loc[("s, other shapes", KNOWN), "difference"] == pytest.approx(0.3)
    assert np.isnan(table.loc[("s, other shapes", KNOWN), "low"])


ABOVE_SURFACE = {
    "gemstones, other shapes": "the shape of the larger size, where the law would have to know it, is not read",
    "olmo-ladder": "one decision of 62, of 0.048 nats",
}
"""Sources in which the advice has more regret than the published scaling law, and why; within the noise of its sizes."""


def test_regret_with_more_known_is_no_larger_in_any_source():
    """Smaller sizes that are known, and the published scaling law, which the advice knows."""
    table = pd.read_csv(PUBLISHED_RUNS / "regret_differences.csv").set_index("source")
    known, surface = (table[table["comparison"] == comparison] for comparison in (KNOWN, SURFACE))
    assert set(surface.index) > set(known.index) > {"gemstones", "gemstones, other shapes", "olmo-ladder", "xlstm"}
    assert not (table["low"] > 0).any()
    assert set(surface.index[surface["difference"].round(4) > 0]) == set(ABOVE_SURFACE)


def test_ablation_replaces_constants_that_the_law_has():
    for changes in PATCHED.values():
        for owner, constant, _ in changes:
            assert hasattr(owner, constant), constant


def test_the_threshold_is_that_of_the_other_sources():
    """Above 10 tokens per parameter the next size is better: what one source learns, the other uses."""
    rows = [
        {"policy": policy, "source": source, "decision": ratio, "tokens_per_parameter": float(ratio), "regret": regret}
        | dict(zip(KEYS, (source, "wsd", "alone", True), strict=True))
        for source in "ab"
        for ratio in (1, 5, 20, 80)
        for policy, regret in (("always_continue", 0.1 * (ratio > 10)), ("next_size", 0.1 * (ratio <= 10)))
    ]
    found = by_threshold(pd.DataFrame(rows))
    assert len(found) == 8
    assert found["regret"].max() == 0
    assert set(found["policy"]) == {"tokens_per_parameter"}


def test_a_folder_without_a_decision_is_said(small, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    runs = pd.read_csv(small / "runs.csv").iloc[:1]
    runs.to_csv(folder / "runs.csv", index=False)
    curves = pd.read_csv(small / "curves.csv.gz")
    curves[curves["run"].isin(runs["run"])].to_csv(folder / "curves.csv.gz", index=False)
    monkeypatch.setattr(sys, "argv", ["published_decisions", str(folder), "--processes", "1"])
    published_decisions.main()
    assert "no decision" in capsys.readouterr().out


def test_the_same_rows_whatever_the_number_of_processes(small):
    runs = read(small)
    prior = committed_priors()
    one, two = (decisions_of(list(decision_points(runs))[:4], prior, processes) for processes in (1, 2))
    pd.testing.assert_frame_equal(one, two)


def test_the_page_tells_the_committed_regrets():
    """The table of the policies; test_numbers compares the prose of the page with the tables."""
    text = " ".join((ROOT / "docs/decisions.md").read_text().split())
    means = pd.read_csv(PUBLISHED_RUNS / "policy_means.csv").set_index("scope")
    regrets = (means.loc[scope].set_index("policy")["regret"] for scope in ("all shapes", "usual shapes"))
    rows = re.findall(r"\| (0\.\d{4}) \| (0\.\d{4}) \|", text)
    assert sorted(rows) == sorted(tuple(f"{value:.4f}" for value in row) for row in zip(*regrets, strict=True))


def test_the_page_tells_the_committed_forecasts():
    rows = pd.read_csv(PUBLISHED_RUNS / "forecasts.csv").query("method == 'joint' and known == @ALONE")
    page = " ".join((ROOT / "docs/decisions.md").read_text().split())
    for source, row in rows.set_index("source").drop(index="all").iterrows():
        inside = row["inside"] if row["inside"] == 1 else min(row["inside"], 0.99)  # 100% is said of no miss
        numbers = f"{row['mean_error']:.3f} | {inside:.0%} | {row['score']:.3f}" if row["refused"] < 1 else "| |"
        assert f"| {source} | {row['n']} | {row['refused']:.0%} | {numbers} |" in page
    smaller = pd.read_csv(PUBLISHED_RUNS / "smaller.csv").query("not source.str.contains(',')").set_index("source")
    details = " ".join((ROOT / "studies/decisions/README.md").read_text().split())
    assert all(f"{source} ({ratio:.2f}" in details for source, ratio in smaller["ratio"].items())


def test_a_smaller_run_is_judged_apart_between_unusual_shapes():
    """Scores are the widths of intervals that hold the truth: 0.4 alone, and 0.2 or 0.8 with a smaller run."""
    facts = {"source": "a", "family": "f", "share": 0.5, "method": JOINT, "reason": "", "actual": 3.0, "forecast": 3.0}
    widths = {
        ("r", True, ALONE): 0.4,
        ("r", True, ONE_KNOWN): 0.2,
        ("s", False, ALONE): 0.4,
        ("s", False, ONE_KNOWN): 0.8,
    }
    rows = [
        facts | {"run": run, "usual": usual, "known": known, "low": 3 - width / 2, "high": 3 + width / 2}
        for (run, usual, known), width in widths.items()
    ]
    ratios = with_smaller(pd.DataFrame(rows)).set_index("source")["ratio"].to_dict()
    assert ratios == pytest.approx({"a": 0.5, "a, other shapes": 2.0})


def test_where_runs_stand_is_that_of_their_curves(published):
    table = pd.read_csv(PUBLISHED_RUNS / "standing.csv")
    points = standing_points([run for run in published if run.source == "multi-power-law"])
    [row] = table[table["source"] == "multi-power-law"].to_dict("records")
    assert row["n"] == len(points)
    for name in ("off", "inside", *WRONG_BATCHES):
        assert row[name] == pytest.approx(points[name].mean(), rel=1e-5)


def test_tables_are_no_older_than_their_runs_or_named(published):
    page = " ".join((ROOT / "studies/decisions/README.md").read_text().split())
    older = computed.outdated(PUBLISHED_RUNS, published)
    assert older == re.findall(r"`(\w+)\.csv` is older than", page)
    inputs = {"runs", "computed_from", "replicate_pairs"}  # the replicates are runs of their own
    listed = pd.read_csv(PUBLISHED_RUNS / "computed_from.csv")["table"].tolist()
    assert sorted(
        {path.stem for path in PUBLISHED_RUNS.glob("*.csv")} - inputs | {"priors", "small_sizes", "record"}
    ) == sorted(listed)


def test_small_size_table_is_that_of_the_runs(published):
    committed = pd.read_csv(SMALL_SIZES)
    pd.testing.assert_frame_equal(small_size_table(published), committed, check_dtype=False, rtol=1e-4)
    assert (committed["highest_size"] < 25e6).all()


def test_tables_of_other_runs_are_found(small, published, tmp_path):
    """A loss that is corrected, and the table that was written before it."""
    runs = read(small)
    computed.write(pd.DataFrame({"n": [1]}), tmp_path, "a", runs)
    moved = replace(runs[0], losses=runs[0].losses + 1e-6)
    computed.write(pd.DataFrame({"n": [1]}), tmp_path, "b", [moved, *runs[1:]])
    assert computed.outdated(tmp_path, runs) == ["b"]
    assert computed.outdated(tmp_path, runs[::-1]) == ["b"]
    assert computed.outdated(tmp_path, published) == ["a", "b"]


def test_the_results_have_every_table_of_the_page():
    page = (PUBLISHED_RUNS / "results.md").read_text()
    for name in (name for name in TABLES if name == "priors" or (PUBLISHED_RUNS / f"{name}.csv").exists()):
        section = page.partition(f"## {small_tables.title(name)}\n")[2].partition("\n## ")[0]
        rows = pd.read_csv(PRIORS if name == "priors" else PUBLISHED_RUNS / f"{name}.csv")
        assert section.count("\n| ") == len(rows) + 2, name


def test_the_scatter_of_a_source_is_that_of_the_others():
    facts = {"scale": "usual", "text": "web", "inside": True, **dict.fromkeys(WRONG_BATCHES, False)}
    offs = {"a": (0.3, 0.3), "b": (-0.5, -0.3), "c": (2.0, 0.0)}
    rows = [facts | {"source": source, "off": off} for source, pair in offs.items() for off in pair]
    table = standing_table(pd.DataFrame(rows)).set_index("source")
    assert table.loc["c", "level_scatter"] == pytest.approx(np.sqrt((0.3**2 + 0.4**2) / 2))
    assert table.loc["c", "run_scatter"] == pytest.approx(0.1 / np.sqrt(2))
    assert table.loc["c", "inside_left_out"] == 0.5


def test_published_replicates_rarely_differ_as_the_page_tells():
    table = published_replicates()
    pd.testing.assert_frame_equal(table, pd.read_csv(PUBLISHED_RUNS / "replicate_pairs.csv"), rtol=1e-6)
    assert table.query("record != 'attainable'")["significant"].mean() < 0.05
    page = (ROOT / "studies/decisions/README.md").read_text()
    for row in table.to_dict("records"):
        numbers = f"{row['deviation']:.4f} | {row['half_width']:.4f} | {row['significant']:.0%} | {row['found']:.0%}"
        assert f"| {row['record']} | {row['pairs']} | {numbers} |" in page


def test_pairs_of_runs_on_the_page_are_those_of_the_table():
    page = (ROOT / "studies/decisions/README.md").read_text()
    for row in pd.read_csv(PUBLISHED_RUNS / "pairs.csv").query("pairs * forecast >= 4").to_dict("records"):
        right = f"{row['right']:.0%} |" if row["significant"] else "|"
        assert (
            f"{row['pairs']} | {row['forecast']:.0%} | {row['coverage']:.0%} | {row['significant']:.0%} | {right}"
            in page
        )


def test_a_pair_is_judged_with_a_prior_without_its_source(published, monkeypatch):
    runs = [run for run in published if run.source == "multi-power-law" and run.shape == "cosine"][:2]
    known = committed_priors()
    asked = []
    monkeypatch.setattr(run_pairs, "RememberingLaw", lambda prior: asked.append(prior) or Joint(prior))
    list(run_pairs.pairs(runs, known))
    assert asked == [known["multi-power-law"]] * len(asked)
    assert asked
    assert known["multi-power-law"] != known[NONE]


def test_record_counts_the_forecasts_of_next_token_runs_alone(published):
    text, masked = (replace(published[0], objective=objective) for objective in (NEXT_TOKEN, "masked"))
    masked = replace(masked, facts=replace(masked.facts, model="masked"))
    row = {"run": text.model, "method": "joint", "known": "alone", "share": 0.5, "reason": "", "actual": 3.0}
    row |= {"forecast": 3.1, "low": 2.9, "high": 3.2}
    other_rows = [{"run": "masked"}, {"method": "power_law"}, {"known": "one smaller run known"}, {"reason": "no"}]
    rows = pd.DataFrame([row, row | {"forecast": 2.7, "high": 2.8, "low": 2.6}, *(row | other for other in other_rows)])
    [counted] = record(rows, [text, masked]).to_dict("records")
    assert (counted["n"], counted["coverage"], counted["share"]) == (2, 0.5, 0.5)
    assert counted["mean_error"] == pytest.approx(0.2)
