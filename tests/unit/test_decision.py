"""What could be done with the compute that is left, and what following the advice costs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis import decisions
from toposcale.analysis.advice import advise, told
from toposcale.analysis.decisions import candidate_table, decision_table, options_of
from toposcale.analysis.regret import POLICIES
from toposcale.forecasting import History, make_forecaster
from toposcale.forecasting.calibration import calibrate, score
from toposcale.forecasting.decision import (
    UNDECIDED,
    Candidate,
    candidates,
    compute_of,
    rest_of,
    same_course,
    steps_to,
    stretched,
    weigh,
)
from toposcale.forecasting.forecasters import forecast
from toposcale.forecasting.joint import Joint, Target

FINAL = 4000
DECISION = {"remaining": None, "sizes": [2], "gpu_flops": None, "gpu_price": None, "target_loss": None}


def wsd(steps=FINAL, warmup=200, decay=0.8):
    at = np.arange(steps + 1)
    down = np.clip((at / steps - decay) / (1 - decay), 0, 1)
    return 1e-3 * np.minimum((at + 1) / warmup, 1.0) * (1 - 0.9 * down)


def law(size, rates, steps, annealing=0.25):
    """A multi-power law with L0 = 1.8 + 0.6 (N / 1e6)^-0.34 and a loss that falls by `annealing` as the rate decays to 0.

    0.25 is twice what the published curves show.
    """
    units = rates / rates.max()
    spent = np.cumsum(units)
    lost = np.array(
        [
            np.sum(
                np.diff(units)[:step] * annealing * (1 - (1 + 0.05 * (spent[step] - spent[:step])) ** -0.6)
            )
            for step in steps
        ]
    )
    return 1.8 + 0.6 * (size / 1e6) ** -0.34 + 2.2 * (spent[steps] / 100) ** -0.5 + lost


def run(name, size, rates=None, *, until=1.0, tokens=1000, seed=0, annealing=0.25):
    rates = wsd() if rates is None else rates
    final = len(rates) - 1
    steps = np.arange(250, final + 1, max(final // 80, 1))
    steps = np.unique(np.append(steps, final))
    noise = 0.002 * np.random.default_rng([seed, size]).normal(size=len(steps))
    whole = History(
        name,
        size,
        tokens,
        final,
        checkpoint_steps=steps,
        checkpoint_losses=law(size, rates, steps, annealing) + noise,
        learning_rates=rates,
        family="planted",
        plan="given",
    )
    return whole if until == 1 else whole.first(until)


SIZES = [run("1M", 1_000_000), run("4M", 4_000_000)]


def test_compute_is_six_n_d():
    history = run("a", 7_000, tokens=100)
    assert compute_of(history, 7) == 6 * 7_000 * 100 * 7
    assert rest_of(history.first(0.25)) == pytest.approx(6 * 7_000 * 100 * 3000, rel=0.02)


# ---- candidates


def test_what_can_be_done_with_the_runs_own_rest():
    live = run("1M", 1_000_000, until=0.5)
    found = {c.name: c for c in candidates(live, SIZES[1:], None, [2])}
    assert set(found) == {"finish", "start 4M", "start 2 x 1M"}
    rest = rest_of(live)
    assert found["finish"].steps == FINAL - live.last_step
    assert found["finish"].compute == pytest.approx(rest)
    # A quarter of the steps at four times the size, on the same course of the rate.
    assert found["start 4M"].steps == pytest.approx(found["finish"].steps / 4, abs=1)
    assert found["start 4M"].compute == pytest.approx(rest, rel=0.01)
    rates = found["start 4M"].target.learning_rates
    assert rates.max() == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(wsd()[-1])


def test_more_compute_than_the_run_has_left_extends_it_and_is_not_clipped():
    live = run("1M", 1_000_000, until=0.5)
    found = {c.name: c for c in candidates(live, [], 3 * rest_of(live), [4])}
    assert found["extend"].steps == 3 * found["finish"].steps
    assert found["start 4 x 1M"].compute == pytest.approx(3 * rest_of(live), rel=0.01)
    rates = found["extend"].target.learning_rates
    np.testing.assert_allclose(rates[: live.last_step], wsd()[: live.last_step])
    assert rates[-1] == pytest.approx(wsd()[-1])


def test_less_compute_presses_the_rest_of_the_plan_together():
    live = run("1M", 1_000_000, until=0.5)
    [finish] = candidates(live, [], 0.5 * rest_of(live), [])
    assert finish.name == "finish"
    assert finish.steps == (FINAL - live.last_step) // 2
    assert finish.target.learning_rates[-1] == pytest.approx(wsd()[-1])


def test_a_size_stands_under_the_run_with_the_same_schedule_and_never_the_first_of_the_alphabet():
    live = run("small", 1_000_000, until=0.5)
    flat = np.minimum((np.arange(FINAL + 1) + 1) / 200, 1.0) * 1e-3
    others = [run("aaa", 4_000_000, flat), run("zzz", 4_000_000)]
    assert same_course(live, others[1])
    assert not same_course(live, others[0])
    assert "start zzz" in {c.name for c in candidates(live, others, None, [])}


def test_stretching_keeps_the_course():
    rates = wsd()
    longer = stretched(rates, 10 * FINAL)
    assert len(longer) == 10 * FINAL + 1
    np.testing.assert_allclose(longer[::10], rates)


# ---- probabilities


class Known:
    """A law that gives planted losses and covariances."""

    def __init__(self, losses, covariance):
        self.losses, self.covariance = np.array(losses), np.array(covariance)

    def predict(self, targets):
        return self.losses, self.covariance


def two(names=("finish", "start b")):
    return [Candidate(name, Target(1.0, np.ones(2), 1), 1, 1.0) for name in names]


def test_the_probability_of_two_independent_candidates_is_that_of_their_difference():
    """N(3.0, 0.1^2) against N(3.1, 0.1^2): P = Phi(0.1 / (0.1 sqrt 2)) = 0.760."""
    options = weigh(Known([3.0, 3.1], np.diag([0.01, 0.01])), two())
    assert options[0].candidate.name == "finish"
    assert options[0].probability == pytest.approx(0.760, abs=0.02)
    # E[max(d, 0)] of d ~ N(-0.1, 0.02): 0.1414 phi(0.7071) - 0.1 (1 - Phi(0.7071)) = 0.0199
    assert options[0].at_stake == pytest.approx(0.0199, abs=0.003)
    assert options[1].at_stake - options[0].at_stake == pytest.approx(0.1, abs=0.01)


def test_an_error_that_all_candidates_share_decides_nothing():
    shared = np.full((2, 2), 0.04) + np.diag([1e-6, 1e-6])
    assert weigh(Known([3.0, 3.1], shared), two())[0].probability == pytest.approx(1.0)


def test_near_the_end_of_a_stable_phase_the_decay_to_come_is_counted():
    """The loss seems to stand still at 70% of a wsd plan; its end is known from the plan, and it is finished."""
    live = run("1M", 1_000_000, until=0.7)
    advice = advise(live, [live, SIZES[1]], DECISION)
    assert advice["choice"] == "finish"
    assert advice["forecast_low"] < SIZES[0].final_loss < advice["forecast_high"]
    assert advice["forecast"] < advice["loss"] - 0.04
    assert told(advice).splitlines()[-1].strip().startswith("=> Finish it")


def test_a_run_on_its_own_is_finished_though_nothing_tells_how_far_the_decay_brings_it():
    """No decay was seen, so the interval has to hold one of twice the usual depth; that decides nothing."""
    live = run("1M", 1_000_000, until=0.7)
    advice = advise(live, [live], {**DECISION, "sizes": [2, 4]})
    assert advice["choice"] == "finish"
    assert advice["forecast_low"] < SIZES[0].final_loss < advice["forecast_high"] < advice["loss"]
    alone = forecast(make_forecaster("multi_power_law"), live)
    assert alone.low < SIZES[0].final_loss < alone.high < advice["loss"]
    seen = advise(live, [live, SIZES[1]], DECISION)
    assert seen["forecast_high"] - seen["forecast_low"] < advice["forecast_high"] - advice["forecast_low"]


def test_early_on_a_far_larger_budget_belongs_to_a_larger_size():
    live = run("1M", 1_000_000, until=0.2)
    advice = advise(live, [live, SIZES[1]], {**DECISION, "remaining": 40 * rest_of(live)})
    assert advice["choice"].startswith("start ")
    assert {"finish", "extend"} <= {row["candidate"] for row in advice["candidates"]}


def test_the_step_of_a_target_loss():
    """The decay is as deep as usual, or a finished run of the family tells how deep it is."""
    for annealing, others in ((0.12, []), (0.25, SIZES[1:])):
        live = run("1M", 1_000_000, until=0.5, annealing=annealing)
        joint = Joint().fit([live, *others])
        wanted = float(law(1_000_000, wsd(), [3700], annealing)[0])
        middle, early, late = steps_to(joint, live, wanted)
        assert early <= middle <= late
        assert middle == pytest.approx(3700, abs=120)
        assert steps_to(joint, live, 0.5) == (np.inf, np.inf, np.inf)


def test_the_step_of_a_target_loss_in_a_decay_that_nothing_has_shown():
    """A decay twice as deep as usual: the step lies between the earliest and the latest, which is never."""
    live = run("1M", 1_000_000, until=0.5)
    wanted = float(law(1_000_000, wsd(), [3700])[0])
    middle, early, late = steps_to(Joint().fit([live]), live, wanted)
    assert early < 3700 < middle <= late


# ---- advice


@pytest.mark.parametrize("others", [(), ("4M",), ("4M", *"abcdef")])
def test_the_end_has_one_forecast_which_is_that_of_the_candidate_finish(others):
    """The same law, the same runs, the same interval: calibrated, where enough runs are finished."""
    live = run("1M", 1_000_000, until=0.6)
    finished = [run(name, 4_000_000, seed=i) for i, name in enumerate(others)]
    advice = advise(live, [live, *finished], DECISION)
    finish = next(row for row in advice["candidates"] if row["candidate"] == "finish")
    for end in ("", "_low", "_high"):
        assert finish[f"loss{end}"] == pytest.approx(advice[f"forecast{end}"], rel=1e-12)
    assert advice["method"] == "joint"
    assert advice["forecast_from_runs"] == 1 + len(others)
    assert advice["interval_coverage"] == (7 / 8 if len(others) == 7 else None)
    assert f"from this run and {len(others)} other" in told(advice) or not others
    assert "the table forecasts reads the same share of every run, so its numbers differ" in told(advice)
    pressed = advise(live, [live, *finished], {**DECISION, "remaining": 0.5 * rest_of(live)})
    shorter = next(row for row in pressed["candidates"] if row["candidate"] == "finish")
    assert pressed["forecast"] == advice["forecast"] < shorter["loss"]


def test_the_interval_is_that_of_runs_as_they_stood_at_the_same_share():
    """Leave one run out by hand."""
    live = run("live", 1_000_000, until=0.4)
    finished = [run(f"run-{i}", 1_000_000, wsd(2000 + 400 * i), seed=i) for i in range(6)]
    advice = advise(live, [live, *finished], DECISION)
    share = live.last_step / live.final_step
    scores = []
    for other in finished:
        family = [live, *(h for h in finished if h is not other), other.first(share)]
        scores.append(score(forecast(make_forecaster("joint", family), family[-1]), other.final_loss))
    own = forecast(make_forecaster("joint", [live, *finished]), live)
    expected, _ = calibrate(scores)(own)
    assert advice["forecast_low"] == pytest.approx(expected.low, rel=1e-5)
    assert advice["forecast_high"] == pytest.approx(expected.high, rel=1e-5)


def test_advice_reads_nothing_that_is_still_to_come():
    live = run("1M", 1_000_000, until=0.5)
    other = run("1M", 1_000_000, until=0.5)
    assert advise(live, [live, SIZES[1]], DECISION) == advise(other, [other, SIZES[1]], DECISION)


def test_without_a_plan_the_advice_says_so_and_asks_for_it():
    live = replace(
        run("1M", 1_000_000, until=0.5),
        learning_rates=wsd()[:2001],
        plan="the rates after 2,000 are not known",
    )
    advice = advise(live, [live], DECISION)
    assert advice["method"] == "power_law"
    assert "decay to come is not in any forecast" in " ".join(advice["assumed"])
    # Two laws, two numbers, and a sentence that says so.
    assert advice["candidates"][0]["loss"] != advice["forecast"]
    assert "finish differs there from the power law, which reads this run alone" in told(advice)
    assert "the rates after 2,000 are not known" in told(advice)


def test_without_tokens_there_is_a_forecast_and_no_decision():
    live = replace(run("1M", 1_000_000, until=0.5), tokens_per_step=np.nan)
    advice = advise(live, [live], DECISION)
    assert advice["forecast"] is not None
    assert advice["spent_flop"] is None
    assert told(advice).splitlines()[-1].strip().startswith("=> No advice: set models.1M.tokens_per_step")


def test_one_candidate_is_nothing_to_choose_between():
    live = run("1M", 1_000_000, until=0.5)
    advice = advise(live, [live], {**DECISION, "sizes": []})
    assert [row["candidate"] for row in advice["candidates"]] == ["finish"]
    assert (advice["choice"], advice["probability"], advice["at_stake"]) == ("finish", None, None)
    last = told(advice).splitlines()[-1]
    assert "Finish it: there is nothing to choose between." in last
    assert "`kind: planned`" in last
    assert "decision.sizes" in last
    assert "best of" not in told(advice)


def test_prices_follow_from_what_a_gpu_does():
    live = run("1M", 1_000_000, until=0.5)
    advice = advise(live, [live], {**DECISION, "gpu_flops": 1e12, "gpu_price": 2.0})
    finish = next(row for row in advice["candidates"] if row["candidate"] == "finish")
    assert finish["gpu_hours"] == pytest.approx(rest_of(live) / 1e12 / 3600)
    assert finish["price"] == pytest.approx(2 * finish["gpu_hours"])


def test_one_size_says_little_of_another_and_two_say_more():
    live = run("1M", 1_000_000, until=0.3)
    width = {}
    for others in ((), (SIZES[1],)):
        options = options_of(live, [*others, live], sizes=[8])[1]
        start = next(
            option for option in options if option.candidate.is_start and "8 x" in option.candidate.name
        )
        width[len(others)] = start.high - start.low
    assert width[1] < 0.5 * width[0]


# ---- judged by what it costs


def families(count=3):
    """Runs of two sizes under several plans, so that there are several decisions."""
    plans = [wsd(2000 + 500 * i) for i in range(count)]
    return [
        run(f"{size // 10**6}M-{i}", size, rates, seed=i)
        for size in (1_000_000, 4_000_000)
        for i, rates in enumerate(plans)
    ]


def test_regret_is_the_loss_given_up_at_the_same_total_compute():
    table = decision_table(families(), fractions=[0.5])
    assert set(table["policy"]) == set(POLICIES)
    assert set(table["model"]) == {"1M-0", "1M-1", "1M-2"}
    judged = table.dropna(subset=["regret"])
    np.testing.assert_allclose(judged["regret"], judged["loss"] - judged["best_loss"])
    assert (judged["regret"] > -1e-12).all()
    for _, group in judged.groupby("model"):
        assert group["remaining"].nunique() == 1
        finish = group[group["policy"] == "always_finish"].iloc[0]
        own = next(h for h in families() if h.model == finish["model"])
        assert finish["loss"] == own.final_loss
        # The best of all candidates costs nothing; stopping at half time to start four times the size costs.
        assert group["regret"].min() == 0
        assert group.set_index("policy").loc["stop_now", "regret"] > 0


def test_an_alternative_that_was_trained_is_an_observed_truth():
    """A 4M run whose whole compute is that of the rest of the 1M run, under the same course of the rate."""
    small = run("1M", 1_000_000)
    rest = rest_of(small.first(0.5))
    steps = int(rest / (6 * 4_000_000 * 1000))
    fitting, other = run("4M-short", 4_000_000, wsd(steps)), run("4M-long", 4_000_000)
    with_it = decision_table([small, fitting, other], fractions=[0.5]).set_index("policy")
    without = decision_table([small, other], fractions=[0.5]).set_index("policy")
    assert with_it.loc["stop_now", "truth"] == "observed"
    assert with_it.loc["stop_now", "loss"] == fitting.final_loss
    assert without.loc["stop_now", "truth"] == "modelled"


def test_the_future_of_a_run_moves_no_choice():
    def spoiled(history):
        late = history.checkpoint_steps > 0.5 * history.final_step
        late[-1] = False
        return replace(history, checkpoint_losses=np.where(late, 7.0, history.checkpoint_losses))

    one = decision_table(families(), fractions=[0.5])
    other = decision_table([spoiled(h) if h.n_parameters < 2e6 else h for h in families()], fractions=[0.5])
    columns = ["model", "policy", "choice", "probability"]
    pd.testing.assert_frame_equal(one[columns], other[columns])


def test_an_undecided_advice_was_not_sure():
    table = decision_table(families(), fractions=[0.2, 0.3])
    advice = table[table["policy"] == "advice"]
    assert advice["choice"].nunique() > 1
    assert (advice["choice"] == UNDECIDED).tolist() == (advice["probability"] < 0.8).tolist()


def test_a_single_size_has_empty_tables_with_all_their_columns():
    table = decision_table(SIZES[:1])
    assert table.empty
    assert "regret" in table.columns
    assert set(candidate_table(SIZES[:1])["candidate"]) == {"finish", "start 2 x 1M", "start 4 x 1M"}


# ---- found in a second reading


def test_a_short_run_whose_rest_buys_no_larger_size_is_judged_without_stopping():
    """60 steps are left: too few of twice the size, but enough of half."""
    schedule = wsd(600, warmup=60)
    family = [
        run(name, size, schedule)
        for name, size in (("half", 500_000), ("one", 1_000_000), ("two", 2_000_000))
    ]
    table = decision_table(family, fractions=[0.9])
    own = table[table["model"] == "one"].set_index("policy")
    assert set(own.index) == {"advice", "always_finish"}
    assert own.loc["always_finish", "loss"] == family[1].final_loss


def test_a_best_choice_that_only_a_law_knows_is_modelled():
    table = decision_table([run("1M", 1_000_000), run("4M", 4_000_000)], fractions=[0.5]).set_index("policy")
    assert table.loc["always_finish", "truth"] == "modelled"


def test_a_finished_run_whose_rates_nobody_knows_moves_no_forecast_of_a_run_under_a_known_plan():
    live = run("1M", 1_000_000, until=0.5)
    blind = replace(run("4M", 4_000_000), learning_rates=np.empty(0))
    alone, beside = (advise(live, known, DECISION) for known in ([live], [live, blind]))
    assert beside["forecast"] == pytest.approx(alone["forecast"], rel=1e-9)
    assert "4M is not read, since its learning rates are not known" in told(beside)
    assert "from this run and" not in told(beside)


def test_a_run_in_its_warm_up_has_the_units_of_its_whole_plan():
    """The rates seen so far reach a tenth of the peak: the law fitted to them must not take that for the peak."""
    rates = wsd(warmup=2500)
    early = run("1M", 1_000_000, rates, until=0.3)
    fitted = Joint().fit([early])
    assert fitted.predict([Target(1_000_000, rates, early.last_step, 1000)])[0][0] == pytest.approx(
        early.checkpoint_losses[np.isfinite(early.checkpoint_losses)][-1], rel=0.01
    )


def test_a_run_at_its_planned_end_is_over_even_without_a_loss_there():
    whole = run("1M", 1_000_000)
    silent = replace(whole, checkpoint_losses=np.append(whole.checkpoint_losses[:-3], [np.nan] * 3))
    assert not silent.is_finished
    assert silent.is_over
    assert not candidate_table([silent, run("4M", 4_000_000)])["is_live"].any()


def test_a_rate_that_is_already_zero_has_a_plan_that_can_be_told():
    rates = np.append(np.linspace(1e-3, 0, 2001), np.zeros(2000))
    assert "stays to the end" in told(advise(run("1M", 1_000_000, rates, until=0.7), [], DECISION))


def test_a_target_is_told_as_what_is_known_of_it():
    live = run("1M", 1_000_000, until=0.5)
    reached = live.checkpoint_losses[-1] + 0.05
    assert "was reached at step" in told(advise(live, [live], {**DECISION, "target_loss": reached}))
    unknown = replace(live, tokens_per_step=np.nan)
    text = told(advise(unknown, [unknown], {**DECISION, "target_loss": 1.0}))
    assert "1: not known when, since set models.1M.tokens_per_step" in text


def test_compute_that_buys_nothing_ends_the_run():
    live = run("1M", 1_000_000, until=0.5)
    assert told(advise(live, [live], {**DECISION, "remaining": 0.0})).endswith("The run ends here.")
    text = told(advise(live, [live], {**DECISION, "sizes": [], "remaining": 0.5 * rest_of(live)}))
    assert "=> Finish it within" in text
    assert "what is left does not pay for the whole plan" in text


def test_seeds_of_a_cell_count_once(monkeypatch):
    monkeypatch.setattr(decisions, "histories_from_tables", lambda *tables, **given: families())
    evaluated = {}
    for cell in ("the same", "its own"):
        models = pd.DataFrame({"model": [history.model for history in families()]})
        models["cell"] = "one" if cell == "the same" else models["model"]
        settings = {"fractions": [0.3], "decision": DECISION, "seed": 0, "resamples": 200}
        made = decisions.decision_tables(*[pd.DataFrame()] * 2, models, *[pd.DataFrame()] * 2, **settings)
        evaluated[cell] = made["decision_evaluation"].set_index("policy")
    assert evaluated["the same"]["regret"].to_numpy() == pytest.approx(
        evaluated["its own"]["regret"].to_numpy()
    )
    assert evaluated["the same"]["regret_low"].isna().all()
    assert evaluated["its own"]["regret_low"].notna().all()


def test_what_the_advice_refuses_is_no_candidate_in_the_report_either():
    """A forecast above the present loss under a falling rate: the last losses lie far below the law."""
    live = run("1M", 1_000_000, until=0.9)
    losses = live.checkpoint_losses.copy()
    losses[-3:] -= 1.0
    odd = replace(live, checkpoint_losses=losses)
    assert candidate_table([odd]).empty
    assert "above the present" in told(advise(odd, [odd], DECISION))
