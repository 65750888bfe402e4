"""The tables of candidates and decisions: what following the advice costs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from planted_laws import SIZES, run, wsd
from toposcale.analysis import decisions
from toposcale.analysis.decisions import POLICIES, advised_runs, candidate_table, decision_table

DECISION = {"remaining": None, "multiples": [2]}


def families(count=3):
    """Runs of two sizes under several plans, so that there are several decisions."""
    plans = [wsd(2000 + 500 * i) for i in range(count)]
    return [
        run(f"{size // 10**6}M-{i}", size, rates, seed=i)
        for size in (100_000_000, 400_000_000)
        for i, rates in enumerate(plans)
    ]


def test_regret_is_the_loss_given_up_at_the_same_total_compute():
    table = decision_table(families(), fractions=[0.5])
    assert set(table["policy"]) == set(POLICIES)
    assert set(table["model"]) == {"100M-0", "100M-1", "100M-2"}
    judged = table.dropna(subset=["regret"])
    np.testing.assert_allclose(judged["regret"], judged["loss"] - judged["best_loss"])
    assert (judged["regret"] > -1e-12).all()
    for _, group in judged.groupby("model"):
        assert group["remaining"].nunique() == 1
        finish = group[group["policy"] == "always_continue"].iloc[0]
        own = next(h for h in families() if h.model == finish["model"])
        assert finish["loss"] == own.progress.loss
        # The best of all candidates costs nothing; stopping at half time to start four times the size costs.
        assert group["regret"].min() == 0
        assert group.set_index("policy").loc["next_size", "regret"] > 0


def test_an_alternative_that_was_trained_is_an_observed_truth():
    """A 400M run whose whole compute is that of the rest of the 100M run, under the same course of the rate."""
    small = run("100M", 100_000_000)
    rest = small.first(0.5).flop_left
    steps = int(rest / (6 * 400_000_000 * small.tokens_per_step))
    fitting, other = run("400M-short", 400_000_000, wsd(steps)), run("400M-long", 400_000_000)
    with_it = decision_table([small, fitting, other], fractions=[0.5]).set_index("policy")
    without = decision_table([small, other], fractions=[0.5]).set_index("policy")
    assert with_it.loc["next_size", "truth"] == "observed"
    assert with_it.loc["next_size", "loss"] == fitting.progress.loss
    assert without.loc["next_size", "truth"] == "modelled"
    assert without.loc["always_continue", "truth"] == "modelled"


def test_the_future_of_a_run_moves_no_choice():
    def spoiled(history):
        late = history.checkpoint_steps > 0.5 * history.final_step
        late[-1] = False
        return replace(history, checkpoint_losses=np.where(late, 7.0, history.checkpoint_losses))

    one = decision_table(families(), fractions=[0.5])
    other = decision_table([spoiled(h) if h.n_parameters < 2e6 else h for h in families()], fractions=[0.5])
    columns = ["model", "policy", "choice", "probability"]
    pd.testing.assert_frame_equal(one[columns], other[columns])


def test_advice_finishes_where_there_is_no_plausible_forecast():
    small, large = SIZES
    rising = small.checkpoint_losses.copy()
    rising[20:] = np.linspace(rising[20], 9.0, len(rising) - 20)
    table = decision_table([replace(small, checkpoint_losses=rising), large], fractions=[0.5])
    advice = table.set_index("policy").loc["advice"]
    assert advice["choice"] == "continue"
    assert "rising" in advice["reason"]
    assert np.isnan(advice["probability"])


def test_a_single_size_has_empty_tables_with_all_their_columns():
    table = decision_table(SIZES[:1])
    assert table.empty
    assert "regret" in table.columns
    assert set(candidate_table(advised_runs(SIZES[:1]))["candidate"]) == {
        "continue",
        "scale up to 2 x 100M",
        "scale up to 4 x 100M",
    }


def test_decision_table_of_a_run_that_buys_no_larger_size():
    """60 steps are left: too few of twice the size, but enough of half."""
    schedule = wsd(600, warmup=60)
    family = [
        run(name, size, schedule) for name, size in (("half", 50_000_000), ("one", 100_000_000), ("two", 200_000_000))
    ]
    table = decision_table(family, fractions=[0.9])
    own = table[table["model"] == "one"].set_index("policy")
    assert set(own.index) == {"advice", "always_continue"}
    assert own.loc["always_continue", "loss"] == family[1].progress.loss


def test_decision_points_of_a_run_at_its_end():
    whole = run("100M", 100_000_000)
    silent = replace(whole, checkpoint_losses=np.append(whole.checkpoint_losses[:-3], [np.nan] * 3))
    assert not silent.is_finished
    assert not silent.has_steps_left
    assert not candidate_table(advised_runs([silent, run("400M", 400_000_000)]))["is_live"].any()


def test_what_the_advice_refuses_is_told_in_the_report_too():
    """The last losses lie far below the law: the forecast is above the present loss under a falling rate."""
    live = run("100M", 100_000_000, until=0.9)
    losses = live.checkpoint_losses.copy()
    losses[-3:] -= 1.0
    [row] = candidate_table(advised_runs([replace(live, checkpoint_losses=losses)])).to_dict("records")
    assert row["candidate"] == ""
    assert row["reason"]
    assert row["is_live"]


def test_seeds_of_a_configuration_count_once(monkeypatch):
    monkeypatch.setattr(decisions, "trainings_from_tables", lambda *tables, **given: families())
    evaluated = {}
    for configuration in ("the same", "its own"):
        models = pd.DataFrame({"model": [history.model for history in families()]})
        models["configuration"] = "one" if configuration == "the same" else models["model"]
        settings = {"fractions": [0.3], "decision": DECISION, "seed": 0, "resamples": 200}
        made = decisions.decision_tables(models=models, **settings)
        evaluated[configuration] = made["decision_evaluation"].set_index("policy")
    assert evaluated["the same"]["regret"].to_numpy() == pytest.approx(evaluated["its own"]["regret"].to_numpy())
    assert evaluated["the same"]["regret_low"].isna().all()
    assert evaluated["its own"]["regret_low"].notna().all()


def test_decision_points_at_the_first_share_with_advice():
    """A hundredth of its steps is within the warm-up; where no share allows an advice, the first one tells why."""
    late = advised_runs(SIZES[:1], fractions=(0.5, 0.3, 0.01))
    assert [(point.fraction, point.advice.decision is None) for point in late] == [(0.3, False)]
    early = advised_runs(SIZES[:1], fractions=(0.02, 0.01))
    assert [(point.fraction, point.advice.decision is None) for point in early] == [(0.01, True)]
