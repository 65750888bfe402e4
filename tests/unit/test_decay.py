"""When to decay: on planted laws whose best decay is known, and where there is nothing to decide."""

import numpy as np
import pytest

from planted_laws import FINAL, law, run, wsd
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.decay import has_not_decayed, when_to_decay
from toposcale.forecasting.laws.joint import Joint

CONSTANT = np.minimum(1e-3, 1e-3 * np.arange(1, FINAL + 2) / 200)


@pytest.fixture(scope="module")
def now():
    return run("100M", 100_000_000, CONSTANT, until=0.5)


@pytest.fixture(scope="module")
def decision(now):
    return when_to_decay(Joint().fit(now), now)


def test_options_end_with_the_training_and_are_sorted_by_regret(now, decision):
    regrets = [candidate.expected_regret for candidate in decision.candidates]
    assert regrets == sorted(regrets)
    assert all(now.progress.step <= weighed.candidate.decay_start < now.final_step for weighed in decision.candidates)
    assert sum(candidate.probability for candidate in decision.candidates) == pytest.approx(1)
    assert {weighed.candidate.decay_start for weighed in decision.candidates} >= {now.progress.step}


def test_when_to_decay_covers_the_measured_end(now, decision):
    best = decision.best
    assert best.loss.value < Joint().fit(now).forecast(now).value
    if best.candidate.name == "linear":
        down = np.clip((np.arange(FINAL + 1) - best.candidate.decay_start) / (FINAL - best.candidate.decay_start), 0, 1)
        truth = law(100_000_000, CONSTANT * (1 - down), [FINAL])[0]
        assert best.loss.low < truth < best.loss.high


def test_when_to_decay_now_and_later(now, decision):
    assert decision.cooldown_loss.value < now.loss_curve.level
    assert decision.nats_per_billion_tokens > 0


def test_nothing_is_decided_once_the_rate_decays():
    decaying = run("100M", 100_000_000, wsd(), until=0.9)
    assert not has_not_decayed(decaying)
    assert when_to_decay(Joint().fit(decaying), decaying) is None
    warming = run("100M", 100_000_000, wsd(warmup=3000), until=0.5)
    assert not has_not_decayed(warming)


def test_the_advice_tells_it(now):
    advice = advise_on(now)
    assert "  Decay      start " in str(advice)
    assert advice["decay"]["candidates"][0]["start"] == advice.decay.best.candidate.decay_start
    assert advice["decay"]["cooled_loss"] < now.loss_curve.level
