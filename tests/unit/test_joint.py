"""The joint law: it finds what was planted, tells the sizes apart, and is not misled by what it should not read."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from made_runs import changed
from planted_laws import FINAL, law, run, wsd
from toposcale.forecasting.decision.reasons import forecast_reasons
from toposcale.forecasting.laws.family_law import FamilyLaw, l0_below_loss
from toposcale.forecasting.laws.joint import Joint, largest_run, refuse_run
from toposcale.forecasting.laws.law import Law
from toposcale.forecasting.laws.priors import PUBLISHED, SECOND_WEIGHT, SURFACE_SD, Gaussian
from toposcale.forecasting.laws.published_law import PublishedLaw, published_loss
from toposcale.forecasting.runs.training_run import Target
from toposcale.io.errors import NoForecast


def fitted(run, others=(), prior=PUBLISHED):
    return Joint(prior, check=False).fit(run, others)


def test_the_gradient_is_that_of_the_law():
    joint = FamilyLaw(PUBLISHED, [run("100M", 100_000_000, until=0.5), run("400M", 400_000_000)])
    curve = joint._observed_points(run("200M", 200_000_000), np.array([300.0, 2000.0, 3900.0]), -1)
    other = joint._observed_points(run("400M", 400_000_000), np.array([300.0, 3900.0]), 1)
    x = joint._fit.x + 0.01
    for one in (curve, other):
        _, slopes, _ = joint._laws(x, one)
        for place in range(len(x)):
            step = np.zeros(len(x))
            step[place] = 1e-6
            numeric = (joint._laws(x + step, one)[0] - joint._laws(x - step, one)[0]) / 2e-6
            np.testing.assert_allclose(slopes[:, place], numeric, rtol=1e-4, atol=1e-6)


def test_joint_compares_each_target_as_if_it_were_the_only_one():
    live = run("100M", 100_000_000, until=0.5)
    joint, ends = fitted(live), [live.target(), *(Target(size, wsd(), FINAL, 500_000) for size in (2e8, 4e8, 2.5e6))]
    several = joint.compare(ends, 0)
    for index in (1, 2, 3):
        pair = joint.compare([ends[0], ends[index]], 0)
        np.testing.assert_allclose(several.losses[[0, index]], pair.losses, rtol=1e-12)
        np.testing.assert_allclose(several.covariance[np.ix_([0, index], [0, index])], pair.covariance, rtol=1e-9)
    assert np.linalg.eigvalsh(several.covariance).min() > 0


def test_joint_compares_two_targets_by_the_posterior_of_their_difference():
    """The difference and its observation, the published law's, weighted by their precisions."""
    live = run("100M", 100_000_000, until=0.5)
    ends = [live.target(), Target(4e8, wsd(), FINAL, 500_000)]
    joint = fitted(live)
    (losses, covariance), posterior = joint.predict_jointly(ends), joint.compare(ends, 0)
    variance = np.array([-1, 1]) @ covariance @ [-1, 1]
    observed = published_loss(4e8, FINAL * 5e5) - published_loss(1e8, FINAL * 5e5)
    precisions = np.array([1 / variance, 1 / (2 * SURFACE_SD**2)])
    expected = precisions @ [losses[1] - losses[0], observed] / precisions.sum()
    assert posterior.losses[1] - posterior.losses[0] == pytest.approx(expected)
    assert np.array([-1, 1]) @ posterior.covariance @ [-1, 1] == pytest.approx(1 / precisions.sum())
    assert (posterior.losses[0], posterior.covariance[0, 0]) == pytest.approx((losses[0], covariance[0, 0]))


def test_joint_reads_the_longest_runs_without_tokens_in_any_order():
    live = run("100M", 100_000_000, until=0.3, tokens=np.nan)
    others = [
        run(name, 400_000_000, wsd(steps), tokens=np.nan) for name, steps in (("a", 1000), ("b", 3000), ("c", 2000))
    ]
    for in_some_order in permutations(others):
        assert [known.model for known in fitted(live, in_some_order).runs_] == ["100M", "b", "c"]


def test_family_law_of_a_fractional_number_of_parameters():
    fractional, whole = (
        fitted(run("100M", 100_000_000, until=0.5), [changed(run("400M", 400_000_000), n_parameters=size)])
        for size in (400_000_000.5, 400_000_000)
    )
    ends = [
        law.predict([Target(size, wsd(), FINAL, 500_000)])[0] for law, size in ((fractional, 4e8 + 0.5), (whole, 4e8))
    ]
    assert ends[0].value == pytest.approx(ends[1].value, rel=1e-6)


@pytest.mark.parametrize("share", [0.2, 0.3, 0.5])
def test_the_end_under_a_decay_that_was_not_seen(share):
    whole = run("100M", 100_000_000)
    found = fitted(whole.first(share)).forecast(whole.first(share))
    assert found.low < whole.progress.loss < found.high
    assert found.value == pytest.approx(whole.progress.loss, abs=0.05)


def test_each_of_the_two_laws_counts_by_how_well_it_told_the_losses():
    """A loss that falls as the sum of the rates to the power -0.3 is that of the second model; the other one is usual."""
    whole = run("100M", 100_000_000)
    steps, rates = whole.checkpoint_steps.astype(int), wsd()
    noise = 0.002 * np.random.default_rng(0).normal(size=len(steps))
    slow = replace(whole, checkpoint_losses=2.2 + 2.5 * (np.cumsum(rates / rates.max())[steps] / 100) ** -0.3 + noise)
    of_slow, of_learnt = (fitted(one).weights_[1] for one in (slow, whole.first(0.5)))
    assert of_slow > 0.5
    assert of_learnt < SECOND_WEIGHT


def test_a_size_that_was_not_seen_is_forecast_from_two():
    joint = fitted(run("400M", 400_000_000), [run("100M", 100_000_000)])
    rates = wsd()
    losses, covariance = joint.predict_jointly([Target(1_600_000_000, rates, FINAL, 500_000)])
    truth = float(law(1_600_000_000, rates, [FINAL])[0])
    assert losses[0] == pytest.approx(truth, abs=0.05)
    assert abs(losses[0] - truth) < 2 * covariance[0, 0] ** 0.5


@pytest.mark.parametrize("above", [-0.15, 0.15])
def test_joint_is_not_misled_about_a_run_far_from_its_family(above):
    """What the sizes of the family tell of a larger one is no worse than nothing."""
    live = run("100M", 100_000_000, until=0.5)
    live = replace(live, checkpoint_losses=live.checkpoint_losses + above)
    family = [run(f"{millions}M", millions * 1_000_000) for millions in (12, 25, 50)]
    targets = [live.target(), Target(200_000_000, wsd(), FINAL, 500_000)]
    truth = [law(target.n_parameters, wsd(), [FINAL])[0] for target in targets] + np.array([above, 0.0])
    errors = [np.diff(fitted(live, known).predict_jointly(targets).losses - truth)[0] for known in ([], family)]
    assert abs(errors[1]) < abs(errors[0])


def test_joint_expects_a_run_of_an_unusual_shape_far_from_its_family():
    """A run 0.15 nats above the law of three smaller sizes: the wider its offset, the less it bends that of larger ones."""
    live = run("100M", 100_000_000, until=0.5)
    live = replace(live, checkpoint_losses=live.checkpoint_losses + 0.15)
    family = [run(f"{millions}M", millions * 1_000_000) for millions in (12, 25, 50)]
    targets = [live.target(), Target(200_000_000, wsd(), FINAL, 500_000)]
    truth = [law(target.n_parameters, wsd(), [FINAL])[0] for target in targets] + np.array([0.15, 0.0])
    unknown, usual, unusual = (
        np.diff(fitted(changed(live, aspect_ratio=ratio), family).predict_jointly(targets).losses - truth)[0]
        for ratio in (np.nan, 64.0, 256.0)
    )
    assert usual == unknown
    assert 0 < unusual < 0.6 * usual


def test_family_law_reads_less_of_the_decay_of_another_recipe():
    live, other = (run(name, size) for name, size in (("100M", 100_000_000), ("50M", 50_000_000)))
    live = changed(live.first(0.5), optimizer="adamw")
    same, different = (
        FamilyLaw(PUBLISHED, [live, changed(other, optimizer="adamw", weight_decay=decay)]).posterior().log_b.sd
        for decay in (np.nan, 0.1)
    )
    assert same < different < PUBLISHED.log_b.sd


def test_errors_of_sizes_next_to_one_another_are_shared():
    live = run("100M", 100_000_000, until=0.3)
    targets = [Target(size, wsd(1000), 1000, 500_000) for size in (400_000_000, 440_000_000)]
    _, covariance = fitted(live).predict_jointly(targets)
    assert covariance[0, 1] > 0.8 * np.sqrt(covariance[0, 0] * covariance[1, 1])


def test_a_repeated_fit_has_the_same_bytes():
    live, others = run("100M", 100_000_000, until=0.4), [run("400M", 400_000_000)]
    one, two = (fitted(live, others).forecast(live) for _ in range(2))
    assert one == two


def test_what_the_losses_say_of_the_constants_moves_away_from_the_prior():
    """The planted exponent of the size is 0.3, and L0 = 1.8 + 0.6 N^-0.3 in hundreds of millions."""
    wide = PUBLISHED._replace(log_alpha_n=Gaussian(np.log(0.6), 0.7), share=Gaussian(0.0, 1.0))
    family = [run(f"{n}00M", n * 100_000_000) for n in (1, 2, 4, 8, 16, 32)]
    learnt = fitted(largest_run(family), family, wide).laws_[0].posterior()
    assert learnt.log_alpha_n.sd < 0.5
    assert abs(learnt.log_alpha_n.mean - np.log(0.3)) < abs(np.log(0.6) - np.log(0.3))
    # E / L0 of the largest size, as log-odds
    at = learnt.share.mean + np.exp(wide.log_alpha_n.mean) * np.log(32e8 / 1e8)
    assert at == pytest.approx(np.log(1.8 / (0.6 * 32**-0.3)), abs=0.7)


def test_smaller_runs_tell_how_the_decay_coefficient_changes_with_the_size():
    """The planted one is the same for all sizes, where the prior lets it grow as N^0.4."""
    live, smaller = run("1600M", 1_600_000_000, until=0.5), [run(f"{n}M", n * 1_000_000) for n in (50, 100, 200, 400)]
    truth = float(law(1_600_000_000, wsd(), [FINAL])[0])
    free = PUBLISHED._replace(b_by_size=0.4)
    errors = [
        abs(fitted(live, smaller, prior).forecast(live).value - truth)
        for prior in (free, free._replace(b_by_size_spread=1e-6))
    ]
    assert errors[0] < 0.8 * errors[1]


def test_at_most_two_runs_of_a_size_are_read_and_eight_other_sizes():
    live = run("100M", 100_000_000, until=0.5)
    seeds = [run(f"400M-{seed}", 400_000_000, seed=seed) for seed in range(5)]
    sizes = [run(f"{n}00M", n * 100_000_000) for n in range(2, 14) if n != 4]
    nearest = {"200M", "300M", "400M-0", "400M-1", "500M", "600M", "700M", "800M", "900M"}
    assert {read.model for read in fitted(live, [*seeds, *sizes]).runs_} == {"100M"} | nearest
    replicate = run("again", 100_000_000, seed=1)
    assert {read.model for read in fitted(live, [replicate, *seeds, *sizes]).runs_} == {"100M", "again"} | nearest


def test_intrinsic_time_between_runs_counts_tokens():
    """A run whose steps read twice as many tokens is where the other one is after twice as many steps."""
    live = run("100M", 100_000_000, until=0.5)
    steps = live.checkpoint_steps[live.checkpoint_steps % 2 == 0]
    known = np.isin(live.checkpoint_steps, steps)
    doubled = changed(
        live,
        model="doubled",
        n_parameters=100_000_000,
        tokens_per_step=1_000_000,
        final_step=FINAL // 2,
        learning_rates=wsd(FINAL // 2, warmup=100),
        checkpoint_steps=steps / 2,
        checkpoint_losses=live.checkpoint_losses[known],
    )
    prior = PUBLISHED._replace(b_by_tokens=0.0)
    one = fitted(live, prior=prior).forecast(live)
    both = fitted(live, [doubled], prior).forecast(live)
    assert both.value == pytest.approx(one.value, abs=0.02)
    wrong = fitted(live, [changed(doubled, tokens_per_step=500_000)])
    assert wrong.discrepancy_ > fitted(live, [doubled]).discrepancy_


def test_a_run_without_a_loss_has_no_law():
    live = run("100M", 100_000_000, until=0.5)
    nothing = replace(live, checkpoint_steps=[], checkpoint_losses=[])
    with pytest.raises(NoForecast, match="no loss"):
        fitted(nothing)
    with pytest.raises(NoForecast, match="no loss"):
        largest_run([])


def test_a_first_row_that_is_of_something_else_moves_nothing():
    """In some published logs the first row holds the loss of the end."""
    live = run("100M", 100_000_000, until=0.5)
    losses = live.checkpoint_losses.copy()
    losses[0] = losses[-1] - 0.1
    odd = replace(live, checkpoint_losses=losses)
    clean = replace(live, checkpoint_steps=live.checkpoint_steps[1:], checkpoint_losses=live.checkpoint_losses[1:])
    assert fitted(odd).forecast(odd) == fitted(clean).forecast(clean)


def test_a_target_names_the_run_that_it_is_of():
    live = run("100M", 100_000_000, until=0.5)
    joint = fitted(live)
    own = live.target(live.progress.step + 1)
    _, covariance = joint.predict_jointly([own, own._replace(model="")])
    assert covariance[0, 0] < covariance[1, 1]


def test_a_comparison_reads_the_published_loss_and_leaves_the_forecast_of_the_reference():
    """What the law does not tell of a larger size, the surface does; the difference is known better, not the level."""
    live = run("100M", 100_000_000, until=0.3)
    targets = [live.target(), Target(400_000_000, wsd(1000), 1000, 500_000)]
    joint = fitted(live)
    (alone, wide), (told, narrow) = joint.predict_jointly(targets), joint.compare(targets, 0)
    assert told[0] == pytest.approx(alone[0])
    assert narrow[0, 0] == pytest.approx(wide[0, 0])
    surface = [published_loss(end.n_parameters, end.step * end.tokens_per_step) for end in targets]
    between = sorted([alone[1] - alone[0], surface[1] - surface[0]])
    assert between[0] < told[1] - told[0] < between[1]
    same, _ = joint.compare([live.target(), live.target()], 0)
    assert same == pytest.approx(alone[[0, 0]])
    contrast = np.array([1, -1])
    assert contrast @ narrow @ contrast < contrast @ wide @ contrast


def test_a_text_that_is_repeated_costs_what_runs_on_c4_lost():
    """0.0185 (44 - 1)^0.88 (N / unique tokens)^0.66 nats more after 44 epochs, and nothing in the first one."""
    live = run("100M", 100_000_000, until=0.3)
    tokens = FINAL * 500_000
    ends = []
    for epochs in (1, 44):
        of = replace(live, facts=replace(live.facts, unique_tokens=tokens / epochs))
        law = FamilyLaw(PUBLISHED, [of])
        repeated = np.exp(np.log(0.0185) + law._log_repeated(live.target(), np.array([FINAL // 88, FINAL])))
        assert repeated[0] < 1e-6
        ends.append(repeated[1])
    assert ends == pytest.approx([0, 0.0185 * 43**0.88 * (44e8 / tokens) ** 0.66], rel=1e-3, abs=1e-6)


def test_the_check_is_part_of_fitting():
    """From its first half the law forecasts a curve that jumps up badly: intervals are wider, or there is none."""
    live = run("100M", 100_000_000, until=0.5)
    wide, narrow = Joint().fit(jumped(live, 0.1)), fitted(jumped(live, 0.1))
    assert wide.inflation_ > narrow.inflation_ == 1
    ends = [law.forecast(live) for law in (wide, narrow)]
    assert ends[0].value == ends[1].value
    assert ends[0].deviation > ends[1].deviation
    with pytest.raises(NoForecast, match="does not follow the law"):
        Joint().fit(jumped(live, 0.3))
    assert fitted(jumped(live, 0.3)).runs_


def jumped(sound, by):
    """The run with a loss that is `by` nats higher in its second half."""
    second = sound.checkpoint_steps > sound.checkpoint_steps[-1] / 2
    return replace(sound, checkpoint_losses=sound.checkpoint_losses + by * second)


def test_published_law_reads_no_run():
    law, target = PublishedLaw(), run("any", 100_000_000).target()
    assert isinstance(law, Law)
    before = law.predict([target])
    assert law.fit(run("any", 100_000_000), [run("other", 25_000_000)]).predict([target]) == before


@pytest.mark.parametrize("seen", [200, 400, 800])
def test_a_young_run_is_expected_to_lose_more_than_an_old_one(seen):
    """A power law that has 2 nats to lose after 10 million tokens: with 0.45 nats at any age it ends 0.5 nats too high."""
    steps = np.arange(20, 4001, 20)
    losses = 3.0 + 2.0 * (steps / 400) ** -0.5
    whole = changed(
        run("134M", 134_000_000, np.full(4001, 1e-3), tokens=24_576),
        checkpoint_steps=steps,
        checkpoint_losses=losses,
        provenance="given",
    )
    end = fitted(whole.first(seen / 4000)).forecast(whole)
    assert end.low < losses[-1] < end.high
    assert end.value == pytest.approx(losses[-1], abs=0.25)


def test_what_is_left_to_lose_falls_with_the_tokens_to_a_least():
    assert l0_below_loss(6.0, 1e7) == pytest.approx(0.5 * 410.7 / 1e7**0.28)
    assert l0_below_loss(2.0, 1e7) == 1.0  # no more than half of the loss
    assert l0_below_loss(3.0, 1e11) == l0_below_loss(3.0, np.nan) == 0.45


def test_sizes_nearer_than_half_as_much_again_are_not_read():
    live = run("100M", 100_000_000, until=0.5)
    near = [run(f"{n}M", n * 1_000_000) for n in (70, 120, 149)]
    assert fitted(live, near).runs_ == [live]
    far = [run(f"{n}M", n * 1_000_000) for n in (66, 150)]
    assert {read.model for read in fitted(live, [*near, *far]).runs_} == {"100M", "66M", "150M"}


@pytest.mark.parametrize(
    ("optimizer", "applies"), [("adamw", False), ("muon", False), ("normed", False), ("lion", True)]
)
def test_forecast_reasons_name_an_optimizer_without_runs(optimizer, applies):
    now = changed(run("now", 100_000_000, until=0.5), optimizer=optimizer)
    reasons = [reason for reason in forecast_reasons(now, Joint(check=False).fit(now)) if optimizer in reason]
    assert bool(reasons) == applies


def test_log_b_of_a_normed_optimizer_is_larger_and_wider():
    of = {name: PUBLISHED.log_b_of(1e-3, 5e5, 1e8, name) for name in ("adamw", "muon", "normed", "lion")}
    assert of["normed"].mean > of["muon"].mean == of["adamw"].mean
    assert of["adamw"].sd < of["muon"].sd < of["normed"].sd < of["lion"].sd


def test_joint_expects_more_of_a_decay_where_weights_are_averaged():
    now = run("now", 100_000_000, until=0.5)
    ends = [Joint(check=False).fit(each).forecast(each) for each in (now, changed(now, weight_average="ema"))]
    stated = changed(now, weight_average="none")
    assert ends[1].value < ends[0].value
    assert ends[1].deviation > ends[0].deviation
    assert Joint(check=False).fit(stated).forecast(stated) == ends[0]


@pytest.mark.parametrize(("epochs", "is_refused"), [(7.5, False), (12.0, True)])
def test_joint_refuses_a_decay_to_come_above_eight_epochs(epochs, is_refused):
    whole = run("whole", 100_000_000)
    unique = whole.cost.tokens(whole.final_step) / epochs
    now = changed(run("whole", 100_000_000, until=0.5), unique_tokens=unique)
    if is_refused:
        with pytest.raises(NoForecast, match="reads its text 12 times"):
            refuse_run(now)
    else:
        refuse_run(now)
    constant = changed(run("flat", 100_000_000, np.full(FINAL + 1, 1e-3), until=0.5), unique_tokens=unique)
    refuse_run(constant)
