"""The laws of the benchmark: on curves that follow each of them, and against slow sums of their formulas."""

from itertools import pairwise

import numpy as np
import pytest

from toposcale.datasets import PublishedRun
from toposcale.datasets.contestants import CONTESTANTS, JOINT
from toposcale.forecasting import LearningRateSchedule, NoForecast, RunFacts
from toposcale.forecasting.laws.annealing_area import AnnealingArea
from toposcale.forecasting.laws.baselines import LastValue, PurePowerLaw, SourcesChinchilla
from toposcale.forecasting.laws.collapse import Collapse
from toposcale.forecasting.laws.functional_scaling_law import FunctionalScalingLaw
from toposcale.forecasting.runs.schedules import Schedule

STEPS, WARMUP = 4000, 100
WSD = Schedule("wsd", 1e-3, STEPS, WARMUP, 0.0, 2400).rates()
COSINE = Schedule("cosine", 1e-3, STEPS, WARMUP, 1e-4).rates()


def a_run(losses_at, rates=WSD, name="r", size=10**8, source="s", tokens=5e5):
    """A run whose losses are a function of the step."""
    steps = np.unique(np.geomspace(120, len(rates) - 1, 300).round())
    losses = losses_at(steps)
    columns = {"steps": steps, "losses": losses, "checkpoint_steps": steps, "checkpoint_losses": losses}
    schedule = LearningRateSchedule(len(rates) - 1, rates)
    return PublishedRun(RunFacts(name, size, tokens, "f"), schedule, **columns, source=source, size=name, shape="wsd")


def at_peak(rates):
    """Rates in units of the peak, those of the warm-up at the peak."""
    return np.concatenate([np.ones(WARMUP), (rates / rates.max())[WARMUP:]])


def annealing_losses(rates, c, decay=0.999, alpha=0.4):
    """A function of the step, by the recursion of the paper: a momentum of the decreases, and its sum."""
    eta = at_peak(rates)
    momentum, area, areas = 0.0, 0.0, [0.0]
    for before, after in pairwise(eta):
        momentum = decay * momentum + (before - after)
        area += momentum
        areas.append(area)
    forward = np.cumsum(eta)
    losses = 2.0 + 12.0 * forward**-alpha - c * (1 - decay) * np.array(areas)
    return lambda steps: losses[steps.astype(int)]


def functional_losses(rates, b, unit=200.0, beta=2.0, s=0.4):
    """A function of the step, by the convolution of the paper, as a sum over steps: noise decays with intrinsic time."""
    eta = at_peak(rates)
    time = np.cumsum(eta)
    kernel = 2 - 1 / beta
    noise = [np.sum(eta[: k + 1] ** 2 * (1 + (time[k] - time[: k + 1]) / unit) ** -kernel) for k in range(len(eta))]
    losses = 2.0 + 12.0 * time**-s + b * (kernel - 1) / unit * np.array(noise)
    return lambda steps: losses[steps.astype(int)]


@pytest.mark.parametrize("beta", [1.5, 2.0, 3.0])
def test_functional_scaling_law_has_the_published_best_schedule(beta):
    """Of those of one sum of rates power 2 beta - 1 of the steps to come is best (Li et al. 2026, arXiv 2602.06797).

    In short runs, as here, a rate is left at the end.
    """
    law, intrinsic_time, left = FunctionalScalingLaw(unit=5, beta=beta), 1000, 1 - np.arange(STEPS) / STEPS
    noise = {}
    for power in 2 * beta - 1 + np.array([-1, -0.5, -0.1, 0, 0.1, 0.5, 1]):
        rates = (1 + ((1 + intrinsic_time / law.unit) ** (1 / (power + 1)) - 1) * left) ** power
        rates *= intrinsic_time / rates.sum()
        constant = rates[0] * (1 - (1 + intrinsic_time / law.unit) ** (1 / beta - 1))
        noise[power] = law.term(rates, np.array([STEPS - 1]))[0] + constant
    assert min(noise, key=noise.get) == 2 * beta - 1


@pytest.mark.parametrize("rates", [WSD, COSINE])
@pytest.mark.parametrize(
    ("law", "losses"), [(AnnealingArea, annealing_losses), (FunctionalScalingLaw, functional_losses)]
)
def test_schedule_law_follows_its_own_formula(law, losses, rates):
    """From a curve that shows the decay, up to 80% of the run, the end is forecast."""
    run = a_run(losses(rates, 0.2), rates)
    [end] = law().fit(run.first(0.8)).predict([run.target()])
    assert end.value == pytest.approx(run.losses[-1], abs=0.006)
    assert end.low < run.losses[-1] < end.high


@pytest.mark.parametrize(
    ("law", "losses"), [(AnnealingArea, annealing_losses), (FunctionalScalingLaw, functional_losses)]
)
def test_schedule_law_learns_the_decay_from_other_sources(law, losses):
    """Before the decay the curve tells nothing of it; five other sources do."""
    run = a_run(losses(WSD, 0.2))
    others = [
        a_run(losses(rates, 0.19 + 0.01 * (number % 3)), rates, name=f"o{number}", source=f"o{number}")
        for number, rates in enumerate([WSD, COSINE, WSD, COSINE, WSD])
    ]
    with pytest.raises(NoForecast, match="not plausible"):
        law().fit(run.first(0.5)).predict([run.target()])
    [learnt] = law().learn(others, left_out="s").fit(run.first(0.5)).predict([run.target()])
    assert learnt.value == pytest.approx(run.losses[-1], abs=0.03)
    assert learnt.low < run.losses[-1] < learnt.high < run.first(0.5).losses[-1]


def test_power_law_without_offset_is_a_line_in_logarithms():
    run = a_run(lambda steps: 9 * steps**-0.12, np.full(STEPS + 1, 1e-3))
    law = PurePowerLaw().fit(run.first(0.3))
    assert law.exponent_ == pytest.approx(0.12, abs=5e-4)  # of bins of the curve
    [end] = law.predict([run.target()])
    assert end.value == pytest.approx(9 * STEPS**-0.12, rel=2e-3)


def test_power_law_without_offset_covers_the_ends_of_noisy_lines():
    rng, inside = np.random.default_rng(0), []
    for _ in range(200):
        run = a_run(lambda steps: 9 * steps**-0.12 * np.exp(rng.normal(0, 0.01, len(steps))), np.full(STEPS + 1, 1e-3))
        [end] = PurePowerLaw().fit(run.first(0.3)).predict([run.target()])
        inside.append(end.low <= 9 * STEPS**-0.12 <= end.high)
    assert 0.9 < np.mean(inside) <= 1.0


def test_last_value_interval_is_the_last_movement():
    run = a_run(lambda steps: 5 - 0.3 * np.log(steps), np.full(STEPS + 1, 1e-3))
    now = run.first(0.2)
    [end] = LastValue().fit(now).predict([run.target()])
    assert end.value == pytest.approx(now.loss_curve.level)
    assert end.value - end.low == pytest.approx(0.3 * np.log(5), rel=0.15)


def test_collapse_is_the_curve_of_the_smaller_run():
    losses = annealing_losses(WSD, 0.2)
    smaller = a_run(lambda steps: 1.1 * losses(steps), name="small", size=5 * 10**7, tokens=2.5e5)
    run = a_run(losses)
    [end] = Collapse().fit(run.first(0.5), [smaller]).predict([run.target()])
    assert end.value == pytest.approx(run.losses[-1], rel=1e-3)
    for others, reason in (([], "no smaller run"), ([a_run(losses, name="small", size=10**7)], "tokens per parameter")):
        with pytest.raises(NoForecast, match=reason):
            Collapse().fit(run.first(0.5), others)


def test_chinchilla_of_other_sources_is_fitted_to_their_ends():
    def loss(size, tokens):
        return 1.7 + 400 * size**-0.34 + 410 * tokens**-0.28

    runs = [
        a_run(lambda steps, n=size, t=tokens: loss(n, steps * t), name=f"{size}/{tokens}", size=size, tokens=tokens)
        for size in (10**7, 10**8, 10**9)
        for tokens in (1e5, 1e6, 4e6)
    ]
    law = SourcesChinchilla().learn(runs, left_out="x")
    assert law.law_.constants["alpha"] == pytest.approx(0.34, abs=0.01)
    [end] = law.predict([runs[4].target()])
    assert end.value == pytest.approx(runs[4].losses[-1], rel=1e-3)


@pytest.mark.parametrize("name", [name for name in CONTESTANTS if name not in (JOINT, "collapse")])
def test_contestant_forecasts_other_sizes_if_it_knows_them(name):
    run = a_run(annealing_losses(WSD, 0.2))
    larger = run.target()._replace(n_parameters=4e8, model="")
    others = [
        a_run(
            annealing_losses(WSD, 0.1 + n / 50),
            name=f"o{n}",
            source=f"o{n}",
            size=10**7 * 2**n,
            tokens=1e5 * 3 ** (n % 3),
        )
        for n in range(7)
    ]
    law = CONTESTANTS[name]()
    if hasattr(law, "learn"):
        law.learn(others, "s")
    law.fit(run.first(0.5))
    [end] = law.predict([run.target()])
    assert end.low <= end.value <= end.high
    if name.startswith("chinchilla"):
        assert law.predict([larger])[0].value < end.value
    else:
        with pytest.raises(NoForecast, match="no other size"):
            law.predict([run.target(), larger])


def test_schedule_law_refuses_a_forecast_that_is_not_plausible():
    """Losses that scatter by a third determine no exponent."""
    rng = np.random.default_rng(0)
    run = a_run(lambda steps: 4 * np.exp(rng.normal(0, 0.3, len(steps))))
    with pytest.raises(NoForecast, match="is not plausible"):
        AnnealingArea().fit(run.first(0.2)).predict([run.target()])
