"""The sentences say what the tables say, and nothing more."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from toposcale.analysis import answers as wording
from toposcale.analysis import summary
from toposcale.analysis.methods import METHODS
from toposcale.analysis.series import headline_metric
from toposcale.io import schemas


def verdict(feature, rho, q, follows="yes", source="weights"):
    """The rows of a feature: whether it follows the loss, and the two questions that are tested."""
    row = {
        "model": "pooled",
        "source": source,
        "layer": "all",
        "feature": feature,
        "metric": "validation_loss",
        "control": "",
        "reason": "",
    }
    answer = "not tested" if np.isnan(q) else "yes" if q <= 0.05 else "no"
    tested = {"answer": answer, "estimate": -0.4, "p": q / 3, "q": q}
    return [
        row | {"question": "follows_the_loss", "answer": follows, "estimate": rho, "p": np.nan, "q": np.nan},
        *(row | {"question": question} | tested for question in ("beyond_the_norm", "beyond_the_variance")),
    ]


def correlations(verdicts, step=0.1):
    """The correlations over runs behind the verdicts: 0.1 given the norm, and given the step as said."""
    rows = verdicts[verdicts["question"] == "follows_the_loss"]
    key = rows[["source", "layer", "feature", "metric"]]
    parts = []
    for control, rho in (("nothing", rows["estimate"]), ("weight_norm", 0.1), ("step", step)):
        parts.append(key.assign(control=control, spearman=rho, n_configurations=2))
        parts[-1]["spearman_lowest"] = parts[-1]["spearman"] - 0.01
        parts[-1]["spearman_highest"] = parts[-1]["spearman"] + 0.02
    return pd.concat(parts, ignore_index=True)


VERDICTS = pd.DataFrame(
    [
        *verdict("frobenius_norm", -0.98, np.nan),
        *verdict("h0_total", -0.97, 0.4),
        *verdict("h1_total", -0.5, 0.01),
        *verdict("stable_rank", 0.1, 0.9, follows="no"),
    ]
)
NOTHING_FOUND = VERDICTS[VERDICTS.feature != "h1_total"]
METRICS = pd.DataFrame({"model": ["a", "b"], "metric": ["validation_loss", "training_loss"]})
TESTED = pd.DataFrame(
    [
        {"question": question, "source": source, "measured": 153, "testable": 69, "tested": tested}
        | {"distinct": 22, "found": 1, "reason": reason}
        for question in ("beyond_the_norm", "beyond_the_variance")
        for source, tested, reason in (("weights", 37, ""), ("embeddings", 0, "7 checkpoints"))
    ]
)


def sensitivity(found="yes", detectable=0.5, reason="", outside=""):
    return pd.DataFrame(
        [
            {
                "question": question,
                "found": found,
                "detectable": detectable,
                "reason": reason,
                "n_tested": 3,
                "n_points": 12,
                "n_runs": 1,
            }
            | {"correlation": 0.85, "p": 1e-6, "q": 2e-5, "outside": outside}
            for question in ("beyond_the_norm", "beyond_the_variance")
        ]
    )


def answers(verdicts=VERDICTS, forecasts=None, decisions=None, power=None, metrics=METRICS, advice=None, step=0.1):
    forecasts = schemas.TABLES["forecast_evaluation"].frame([]) if forecasts is None else forecasts
    decisions = schemas.TABLES["decision_evaluation"].frame([]) if decisions is None else decisions
    advice = schemas.TABLES["advice"].frame([]) if advice is None else advice
    power = sensitivity() if power is None else power
    table = summary.summary_tables(
        metrics, verdicts, correlations(verdicts, step), TESTED, power, forecasts, decisions, advice
    )["summary"]
    assert list(table["position"]) == list(range(len(table)))
    assert (table["answer"].str.split().str.len() <= 40).all()
    said = table["verdict"] + ". " + table["answer"] + " | " + table["numbers"]
    return dict(zip(table["question"], said, strict=True))


NORM = "Which predict the loss beyond the norm of the weights?"


def test_who_follows_the_loss_beside_the_norm():
    text = answers()["Which features follow the validation loss?"]
    assert text.startswith("3 of 4 features. The sign is the same in every configuration. Drift can cause this, too.")
    assert (
        "topological feature is the H₀ total persistence of the weights. The norm of the weights follows it too."
        in text
    )
    assert "rank correlation -0.97 (median over configurations; -0.98 to -0.95)" in text
    assert "norm: rank correlation -0.98" in text


def test_answer_correlated_with_a_norm_of_opposite_signs():
    pooled = correlations(VERDICTS)
    both = VERDICTS.assign(answer=VERDICTS["answer"].where(VERDICTS["feature"] != "frobenius_norm", "no"))
    for lowest, highest, said in ((-0.97, 0.99, "follows it with opposite signs"), (-0.97, 0.3, "does not follow it")):
        is_norm = pooled["feature"] == "frobenius_norm"
        pooled.loc[is_norm, ["spearman_lowest", "spearman_highest"]] = lowest, highest
        assert f"The norm of the weights {said}." in wording.answer_correlated(both, pooled).text


def test_who_says_something_beyond_the_norm():
    text = answers()[NORM]
    assert text.startswith("1 of 3 tested features. The most significant for the validation loss is the H₁ total")
    assert (
        "is the H₁ total persistence of the weights. This run had 80% power for correlations of 0.50 or more." in text
    )
    assert "correlation of prewhitened residuals -0.40, p = 0.0033, q = 0.01" in text
    assert (
        "weights 37 of 69 testable (153 measured), 22 distinct; not tested: 153 of embeddings (7 checkpoints)" in text
    )
    assert "H₀" not in text


def test_a_correlation_of_several_runs_is_told_as_their_median():
    strongest = "Strongest: H₁ total persistence of the weights, {}correlation of prewhitened residuals -0.40"
    assert strongest.format("") in answers()[NORM]
    assert strongest.format("median ") in answers(power=sensitivity().assign(n_runs=2))[NORM]


def test_what_a_search_found_is_told_as_found_in_a_search():
    said = answers()
    first = said["In one sentence"]
    assert "A search of 3 features over 1 run found 1 topological feature predicting" in first
    assert "(none beyond the spectrum); test it again with fresh seeds (docs/fresh-seeds.md)" in first
    assert "topology tells" not in " ".join(said.values())
    of_norm = VERDICTS[VERDICTS["question"] == "beyond_the_norm"]
    both = pd.concat([VERDICTS, of_norm.assign(question="beyond_the_spectrum")])
    assert "(1 beyond the spectrum)" in answers(both)["In one sentence"]


def test_a_run_that_finds_nothing_says_what_it_could_have_found():
    said = answers(NOTHING_FOUND)
    assert said[NORM].startswith(
        "None found. No feature was found to predict the loss beyond the norm of the weights. This run had 80% power"
    )
    assert "No test found that topology predicts the loss beyond the norm" in said["In one sentence"]
    assert "the run had 80% power for correlations of 0.50" in said["In one sentence"]


def test_a_run_that_misses_its_positive_control_says_so():
    said = answers(NOTHING_FOUND, power=sensitivity(found="no", detectable=np.nan))
    assert said[NORM].startswith("This run could not have shown it. The test does not detect the validation loss")
    assert "with 12 checkpoints of 1 run its test does not detect the validation loss itself" in said["In one sentence"]


def test_what_was_not_tested_is_not_called_a_no():
    untested = VERDICTS.copy()
    untested.loc[untested["question"] != "follows_the_loss", ["answer", "p", "q"]] = ["not tested", np.nan, np.nan]
    said = answers(untested, power=sensitivity("not tested", np.nan, "7 evenly spaced checkpoints"))
    assert said[NORM].startswith("Could not be tested. No feature could be tested: 7 evenly spaced checkpoints.")
    assert "could not test whether topology predicts the loss" in said["In one sentence"]


def test_equal_answers_given_norm_and_step_are_said_to_coincide():
    assert "coincide, because the norm is monotonic" in answers()[NORM]
    assert "coincide" not in answers(step=0.2)[NORM]


def test_given_the_step_alone_nothing_is_answered():
    """The test was withdrawn: docs/statistics.md."""
    assert not [question for question in answers() if "step" in question]


@pytest.mark.parametrize("verdicts", [VERDICTS, NOTHING_FOUND])
def test_answer_beyond_names_unmeasured_settings(verdicts):
    said = answers(verdicts, power=sensitivity(outside="the sizes of 2 of 5 models"))
    for question in (NORM, "Which predict the loss beyond the variance of the weights?"):
        text, numbers = said[question].split(" | ")
        assert text.endswith("Its false-positive rate was not measured at the sizes of 2 of 5 models.")
        assert "measured at 2,936 to 300,808 parameters" in numbers
        assert "had 80% power for correlations of 0.50" in said[question]
    assert "was not measured" not in "".join(answers(verdicts).values())


@pytest.mark.parametrize(
    ("measured", "chosen", "expected"),
    [
        (["training_loss", "validation_loss", "perplexity", "arc_easy.acc"], (), "validation_loss"),
        (["arc_easy.acc", "perplexity"], (), "perplexity"),
        (["arc_easy.acc", "lambada.acc", "piqa.acc"], ("piqa", "arc_*"), "piqa.acc"),
        (["arc_easy.acc", "training_loss"], ("*",), "training_loss"),
        (["arc_challenge.acc", "arc_easy.acc"], ("*",), None),
        ([], (), None),
    ],
)
def test_the_headline_metric_is_never_the_first_of_the_alphabet(measured, chosen, expected):
    assert headline_metric(measured, chosen) == expected


def test_without_a_loss_the_answers_say_what_they_need():
    said = answers(metrics=METRICS[:0])
    assert list(said) == ["In one sentence"]
    assert "No loss is known" in said["In one sentence"]
    assert "losses: FILE" in said["In one sentence"]
    said = answers(metrics=METRICS.assign(metric="arc_easy.acc"))
    assert "name one under metrics.tasks" in said[NORM]


def test_one_run_is_not_asked_what_takes_several():
    several = [FORECAST, "Which forecast of the final loss can be trusted?", "Would following the advice have helped?"]
    assert answers().keys() >= set(several)
    assert answers(metrics=METRICS.assign(model="a")).keys().isdisjoint(several)
    assert answers(forecasts=evaluation(30.0, 10.0, 45.0, runs=1)).keys().isdisjoint(several)
    assert NORM in answers(metrics=METRICS.assign(model="a"))


def test_answer_correlated_says_what_is_not_counted():
    constant = VERDICTS[VERDICTS["question"] == "follows_the_loss"].iloc[:1].assign(estimate=float("nan"))
    verdicts = pd.concat([VERDICTS, constant.assign(feature="constant", answer="not tested")])
    answer = wording.answer_correlated(verdicts, correlations(VERDICTS))
    assert answer.verdict == "3 of 4 features"
    assert answer.numbers.startswith("Not counted, since constant or undefined: 1 feature. ")


def test_answer_correlated_of_no_feature_names_no_drift():
    none = VERDICTS.assign(answer="no")
    assert wording.answer_correlated(none, correlations(VERDICTS)).text.startswith("No feature follows it. The norm")


def test_two_obstacles_fit_into_a_sentence():
    reason = "the warm-up is not known; give warmup_steps (0 without one) in the entry of the model"
    reason += "; and 12 checkpoints are few: a correlation of 0.7 takes 40"
    said = answers(power=sensitivity(found="not tested", reason=reason))  # of at most 40 words
    assert reason in said["In one sentence"]
    assert reason in said[NORM]


def test_a_scaled_feature_has_a_name_that_fits_a_sentence():
    row = pd.Series({"feature": "h1_max_scaled", "source": "weights"})
    assert wording.name_with_source(row) == "scaled H₁ longest bar of the weights"


def test_there_is_no_median_over_one_configuration():
    alone = correlations(VERDICTS).assign(n_configurations=1)
    text, numbers = wording.answer_correlated(VERDICTS, alone)[1:]
    assert text.startswith("Drift can cause this, too. The closest")
    assert "configuration" not in text + numbers
    assert "norm: rank correlation -0.98." in numbers


FORECAST = "Does topology improve the forecast of the final loss?"
TRUSTED = "Which forecast of the final loss can be trusted?"


def evaluation(gain, low, high, runs=12, p=0.01):
    base = {"fraction": 0.2, "baseline": "joint", "n_forecasts": runs, "n_compared": runs}
    base |= {"interval_coverage": 0.9}
    return pd.DataFrame(
        [
            base | {"method": "joint", "mae": 0.1, "improvement_percent": 0.0},
            base | {"method": "power_law", "mae": 0.3, "improvement_percent": -200.0, "interval_coverage": 0.2},
            base
            | {"method": "combined", "mae": 0.2, "improvement_percent": gain, "improvement_p": p}
            | {"improvement_low": low, "improvement_high": high},
            {**base, "fraction": 0.5, "method": "combined", "mae": 0.01, "improvement_percent": 99.0},
            {**base, "fraction": 0.0, "method": "joint", "mae": 0.7, "improvement_percent": 0.0},
        ]
    )


@pytest.mark.parametrize(
    ("gain", "low", "high", "verdict", "said"),
    [
        (30.0, 10.0, 45.0, "Yes", "has 30% less error (95% interval 10 to 45)"),
        (30.0, -10.0, 45.0, "Not shown", "has 30% less error (95% interval -10 to 45)"),
        (-5.0, -20.0, 10.0, "Not shown", "its mean with the power law has 5% more error (95% interval -10 to 20)"),
        (-9.0, -20.0, -2.0, "No, it makes it worse", "has 9% more error (95% interval 2 to 20)"),
    ],
)
def test_topology_is_held_against_the_best_forecast_without_it(gain, low, high, verdict, said):
    text = answers(forecasts=evaluation(gain, low, high))[FORECAST]
    assert text.startswith(verdict + ".")
    assert "the best forecast without topology, the joint law of all sizes, has a mean absolute error of 0.100" in text
    assert said in text
    assert "99" not in text


def test_one_of_several_methods_that_passes_by_chance_is_no_yes():
    """p = 0.04 of the best of two methods is 0.08 after Holm's correction."""
    table = evaluation(30.0, 10.0, 45.0, p=0.04)
    other = table[table["method"] == "combined"].assign(method="topology_rate", improvement_p=0.5)
    assert answers(forecasts=table)[FORECAST].startswith("Yes.")
    assert answers(forecasts=pd.concat([table, other]))[FORECAST].startswith("Not shown.")


def test_below_ten_runs_there_is_no_verdict():
    assert answers(forecasts=evaluation(30.0, 10.0, 45.0, runs=9))[FORECAST].startswith("Not tested: 9 configurations.")


def test_answer_forecast_at_a_later_share():
    """At the smallest share a finished run has no forecast, or topology none; at the next it has."""
    table = evaluation(30.0, 10.0, 45.0)
    table = table[table["fraction"] == 0.2]
    nothing = table.assign(fraction=0.1, mae=np.nan, improvement_percent=np.nan, n_forecasts=0, n_compared=0)
    loss_alone = table[table["method"] != "combined"].assign(fraction=0.15)
    said = answers(forecasts=pd.concat([nothing, loss_alone, table]))
    assert "From the first 15% of training" in said["Which forecast of the final loss can be trusted?"]
    assert said[FORECAST].startswith("Yes. From the first 20% of training")
    said = answers(forecasts=pd.concat([nothing, loss_alone]))
    assert "No method with topology could forecast" in said[FORECAST]
    early = policies(12, 0.03, 0.01, 0.05).assign(fraction=0.1)
    said = answers(decisions=pd.concat([early[early["policy"] != "advice"], policies(12, 0.03, 0.01, 0.05)]))
    assert "Decided at 20% of training" in said["Would following the advice have helped?"]


def test_answer_best_forecast_names_coverage():
    text = answers(forecasts=evaluation(0.0, -1.0, 1.0))["Which forecast of the final loss can be trusted?"]
    assert text.startswith(
        "The joint law of all sizes. From the first 20% of training, its mean absolute error for the final loss is 0.100"
    )
    assert "before calibration, is 90%" in text
    assert "The intervals of the power law have a coverage below 80%" in text


def test_answer_best_forecast_of_two_seeds():
    table = evaluation(0.0, -1.0, 1.0, runs=2).assign(n_compared=1, interval_coverage=0.5)
    text = answers(forecasts=table)[TRUSTED]
    assert text.startswith(
        "None, yet. From the first 20% of training, the joint law of all sizes has the least error, 0.100 nats over 2 "
        "runs, but 1 of the 10 configurations needed."
    )
    assert "The empirical coverage of its own 95% interval, before calibration, is 50%." in text


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"interval_coverage": 9 / 12}, "its 95% interval covers 75%"),
        ({"n_compared": 9}, "9 of the 10 configurations needed"),
        ({"mae": 0.35}, "the size does as well"),
    ],
)
def test_answer_best_forecast_names_each_obstacle(changes, because):
    table = evaluation(0.0, -1.0, 1.0)
    size = table[table["method"] == "power_law"].assign(method="ridge_size", mae=0.35)
    table = pd.concat([table[table["method"] != "power_law"], size])
    assert answers(forecasts=table)[TRUSTED].startswith("The joint law of all sizes.")
    is_joint = (table["method"] == "joint") & (table["fraction"] == 0.2)
    table.loc[is_joint, list(changes)] = list(changes.values())
    text = answers(forecasts=table)[TRUSTED]
    assert text.startswith("None, yet. ")
    assert because in text


METHODS_AT_HAND = ["joint", "power_law", "ridge_size", "combined", "topology_rate"]


@st.composite
def evaluations(draw):
    """A table forecast_evaluation of a share of training: numbers that belong together, and any of them missing."""
    n_models = draw(st.integers(1, 40))
    rows = []
    for method in draw(st.lists(st.sampled_from(METHODS_AT_HAND), unique=True)):
        n = draw(st.integers(0, n_models))
        low, gain, high = sorted(draw(st.lists(st.floats(-300, 90), min_size=3, max_size=3)))
        n_compared = draw(st.integers(min(n, 1), n))
        row = {"fraction": 0.2, "method": method, "n_models": n_models, "n_forecasts": n, "n_compared": n_compared}
        row |= {"mae": draw(st.floats(0.001, 2)) if n else np.nan, "baseline": "joint"}
        row["interval_coverage"] = draw(st.integers(0, n)) / n if n else np.nan
        if n_compared > 1:
            row |= {"improvement_percent": gain, "improvement_low": low, "improvement_high": high}
            row["improvement_p"] = draw(st.floats(0.001, 1))
        rows.append(row)
    return schemas.TABLES["forecast_evaluation"].frame(rows)


@settings(max_examples=200, deadline=None)
@given(evaluations())
def test_answers_on_forecasts_never_contradict_their_numbers(table):
    trusted, improved = wording.answer_best_forecast(table), wording.answer_topological_forecast(table)
    rows = table.set_index("method")
    for answer in (trusted, improved):
        assert len(answer.text.split()) <= 40
    by_words = {METHODS[name].description.lower(): name for name in METHODS_AT_HAND}
    if method := by_words.get(trusted.verdict.lower()):
        row = rows.loc[method]
        assert row["n_compared"] >= 10
        assert binom.cdf(round(row["interval_coverage"] * row["n_forecasts"]), row["n_forecasts"], 0.95) >= 0.025
        assert f"{row['mae']:.3f}" in trusted.text
        assert "ridge_size" not in rows.index or not rows.loc["ridge_size", "mae"] <= row["mae"]
    else:
        assert trusted.verdict in ("None, yet", "Could not be tested")
    topological = rows[rows.index.isin(["combined", "topology_rate"]) & (rows["n_compared"] >= 10)]
    if improved.verdict == "Yes":
        assert "less error at best" in improved.text
        assert (topological["improvement_low"] > 0).any()
    elif improved.verdict == "No, it makes it worse":
        assert "more error at best" in improved.text
        assert (topological["improvement_high"] < 0).all()
    elif improved.verdict.startswith("Not tested"):
        assert topological.empty


def test_answer_advice_says_where_a_plain_rule_has_less_regret():
    table = policies(12, 0.03, 0.01, 0.05)
    table.loc[table["policy"] == "next_size", "regret"] = 0.005
    text = answers(decisions=table)["Would following the advice have helped?"]
    assert text.startswith("Yes, against always continuing, but always the next size would have helped more.")


def test_answer_advice_without_an_observed_outcome():
    text = answers(decisions=policies(12, 0.03, 0.01, 0.05).assign(n_modelled=12))
    assert text["Would following the advice have helped?"].startswith("Not tested: no outcome was observed.")


def policies(count, gain, low, high):
    base = {"fraction": 0.2, "n_decisions": count, "n_modelled": 4}
    return pd.DataFrame(
        [
            base
            | {"policy": "advice", "regret": 0.01, "regret_low": 0.0, "regret_high": 0.02}
            | {"regret_saved": gain, "regret_saved_low": low, "regret_saved_high": high},
            base | {"policy": "always_continue", "regret": 0.01 + gain, "regret_low": 0.0, "regret_high": 0.5},
            base | {"policy": "next_size", "regret": 0.2, "regret_low": 0.1, "regret_high": 0.3},
        ]
    )


@pytest.mark.parametrize(
    ("count", "low", "high", "verdict"),
    [
        (12, 0.01, 0.05, "Yes, against always continuing."),
        (12, -0.01, 0.05, "Not shown."),
        (12, -0.05, -0.01, "No, it would have cost loss."),
        (9, 0.01, 0.05, "Not tested: 9 decisions."),
    ],
)
def test_answer_advice_helps_over_ten_decisions(count, low, high, verdict):
    text = answers(decisions=policies(count, 0.03, low, high))["Would following the advice have helped?"]
    assert text.startswith(verdict)
    assert f"over {count} decisions" in text
    assert f"In 4 of the {count} decisions the truth is a law" in text
    assert "always the next size 0.200 (95% interval 0.100 to 0.300)" in text


def advised(model, choice, sentence, **more):
    row = {"model": model, "fraction": 0.7, "is_live": True, "choice": choice, "confident": False, "probability": 0.5}
    return row | {"sentence": sentence, "on_track": ""} | more


def test_a_run_of_loss_curves_leads_with_the_runs_under_way():
    rows = [
        advised("a", "continue", "Continue; 95%, confident.", confident=True, on_track="yes: 3.1"),
        advised("b", "", "over", is_live=False),
    ]
    texts = answers(VERDICTS[:0], advice=pd.DataFrame(rows))
    assert list(texts)[:2] == ["In one sentence", "What should be done with the runs under way?"]
    assert texts["In one sentence"].startswith(". Continue.")
    assert texts["What should be done with the runs under way?"].startswith("Continue. ")
    assert (
        "a at 70%: Continue; 95%, confident. On track: yes: 3.1."
        in texts["What should be done with the runs under way?"]
    )


def test_runs_under_way_are_told_in_the_words_of_the_advice():
    rows = [
        advised("a", "scale up to b", "Scale up to b; 50%, not confident."),
        advised("b", "", "No advice: it rises."),
    ]
    rows += [advised("c", "continue", "Continue: there is nothing to choose between.", probability=np.nan)]
    text = answers(VERDICTS[:0], advice=pd.DataFrame(rows))["What should be done with the runs under way?"]
    assert text.startswith("Train another size (low confidence) 1, no advice 1, continue 1. ")
    assert "a at 70%: Scale up to b; 50%, not confident. b at 70%: No advice: it rises." in text


@pytest.mark.parametrize("question", range(6))
def test_what_cannot_be_answered_says_so(question):
    empty = VERDICTS[:0]
    text = list(answers(verdicts=empty, power=sensitivity("not tested", np.nan, "nothing")).values())[question + 1]
    assert text.startswith("Could not be tested. ")
    assert ". No " in text


def test_answer_beyond_the_variance_of_neural_persistence():
    """The variance has an answer of its own, from its own rows: here it explains what is beyond the norm."""
    explained = VERDICTS.copy()
    of_variance = explained["question"] == "beyond_the_variance"
    explained.loc[of_variance, "answer"] = explained.loc[of_variance, "answer"].replace("yes", "no")
    explained.loc[of_variance & (explained["feature"] == "h1_total"), ["p", "q"]] = 0.4321
    said = answers(explained)
    text = said["Which predict the loss beyond the variance of the weights?"]
    assert text.startswith("None found. No feature was found to predict the loss beyond the variance of the weights.")
    assert said[NORM].startswith("1 of 3 tested features.")
