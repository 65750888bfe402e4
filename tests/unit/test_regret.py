"""The regret of a policy, by hand: the rows of one decision, and means over decisions that are not independent."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.decisions import MEANS, POLICIES, Choice, Outcome, mean_regret, rows_of_policies, usual_choices

OUTCOMES = {"continue": Outcome(2.0), "scale up to b": Outcome(1.5), "scale up to c": Outcome(1.75)}


def rows(outcomes=OUTCOMES, **chosen):
    choices = {policy: Choice(candidate) for policy, candidate in chosen.items()}
    return pd.DataFrame(rows_of_policies(choices, outcomes, Outcome(1.875))).set_index("policy")


def test_the_usual_choices():
    choices = usual_choices(Choice("scale up to c", 0.4), "scale up to b")
    assert list(choices) == list(POLICIES)
    assert choices["advice"] == Choice("scale up to c", 0.4)
    assert choices["always_continue"].candidate == "continue"
    assert choices["next_size"].candidate == "scale up to b"


def test_where_no_larger_size_can_be_started_nobody_stops():
    assert set(usual_choices(Choice("continue", 1.0))) == {"advice", "always_continue"}


def test_regret_is_the_loss_less_that_of_the_best_outcome():
    table = rows(a="continue", b="scale up to b", c="scale up to c", d="random stop")
    assert table["regret"].to_dict() == {"a": 0.5, "b": 0.0, "c": 0.25, "d": 0.375}
    assert (table["best"] == "scale up to b").all()
    assert (table["best_loss"] == 1.5).all()
    assert (table["truth"] == "observed").all()


def test_a_policy_that_chose_nothing_has_no_regret_but_a_reason():
    [row] = rows_of_policies({"a": Choice("", reason="too few losses")}, OUTCOMES)
    assert np.isnan(row["regret"])
    assert (row["best"], row["reason"]) == ("scale up to b", "too few losses")


def test_best_of_equal_outcomes_costs_nothing():
    table = rows({"scale up to b": Outcome(2.0), "continue": Outcome(2.0)}, a="scale up to b", b="continue")
    assert (table["best"] == "continue").all()
    assert (table["regret"] == 0).all()


def test_one_outcome_of_a_law_makes_every_row_a_modelled_one():
    table = rows(OUTCOMES | {"scale up to c": Outcome(1.75, observed=False)}, a="continue", b="scale up to c")
    assert (table["truth"] == "modelled").all()


def decisions(*given):
    """A table of (model, fraction, group, best, regret of finishing, regret of stopping)."""
    made = []
    for model, fraction, group, finishing, stopping in given:
        where = {"model": model, "fraction": fraction, "size": group, "truth": "observed", "is_confident": False}
        made.append(where | {"policy": "always_continue", "choice": "continue", "regret": finishing})
        made.append(where | {"policy": "next_size", "choice": "scale up to b", "regret": stopping})
    return pd.DataFrame(made)


def test_every_group_counts_once_however_many_decisions_it_has():
    table = decisions(
        *(("one", 0.2, "small", 0.0, 0.3), ("two", 0.2, "small", 0.0, 0.5)), ("three", 0.2, "large", 0.2, 0.0)
    )
    found = mean_regret(table, ["fraction"], group="size").set_index("policy")
    assert found.loc["next_size", "regret"] == pytest.approx((0.4 + 0.0) / 2)
    assert found.loc["always_continue", "regret"] == pytest.approx((0.0 + 0.2) / 2)
    assert found.loc["next_size", "regret_saved"] == pytest.approx((-0.4 + 0.2) / 2)
    assert found.loc["next_size", ["n_decisions", "n_models"]].tolist() == [3, 3]
    assert found.loc["next_size", "share_best"] == pytest.approx(1 / 3)
    # Two groups: of the resamples a quarter has the one alone, a quarter the other alone.
    bounds = found.loc["next_size", ["regret_low", "regret_high"]].astype(float)
    assert bounds.tolist() == pytest.approx([0.0, 0.4])


def test_each_combination_of_columns_has_rows_of_its_own():
    table = decisions(("one", 0.2, "a", 0.0, 0.3), ("one", 0.5, "a", 0.1, 0.0))
    table["family"] = "f"
    found = mean_regret(table, ["family", "fraction"]).set_index(["family", "fraction", "policy"])
    assert found.loc[("f", 0.2, "next_size"), "regret"] == 0.3
    assert found.loc[("f", 0.5, "always_continue"), "regret"] == 0.1
    assert found["regret_low"].isna().all()  # one group has no interval


def test_mean_regret_leaves_out_decisions_without_one():
    table = decisions(("one", 0.2, "a", 0.0, 0.3), ("two", 0.2, "b", 0.0, np.nan))
    found = mean_regret(table, ["fraction"]).set_index("policy")
    assert found.loc["next_size", ["n_decisions", "regret", "regret_saved"]].tolist() == [1, 0.3, -0.3]
    assert found.loc["always_continue", "n_decisions"] == 2


def test_sure_and_modelled_decisions_are_counted():
    table = decisions(("one", 0.2, "a", 0.0, 0.3), ("two", 0.2, "b", 0.0, 0.1))
    table.loc[table["policy"] == "next_size", "is_confident"] = [True, False]
    table.loc[table["model"] == "two", "truth"] = "modelled"
    found = mean_regret(table, ["fraction"]).set_index("policy")
    assert found.loc["next_size", ["n_confident", "n_modelled"]].tolist() == [1, 1]
    assert found.loc["always_continue", ["n_confident", "n_modelled"]].tolist() == [0, 1]


def test_no_decisions_make_an_empty_table_with_all_columns():
    found = mean_regret(decisions(("one", 0.2, "a", np.nan, np.nan)), ["fraction"])
    assert found.empty
    assert tuple(found.columns) == ("fraction", "policy", *MEANS)
