"""Whether a run is where its family and published runs say: on planted curves, with and without a fault."""

from dataclasses import replace

import numpy as np
import pytest

from planted_laws import run
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.decision.on_track import Reference, tracks_of
from toposcale.forecasting.laws.published_law import published_loss, published_tokens
from toposcale.forecasting.runs.training_run import TrainingRun

SIZES = (25_000_000, 50_000_000, 200_000_000)


@pytest.fixture(scope="module")
def family():
    return [run(str(size), size) for size in SIZES]


def test_a_run_of_the_family_is_on_track(family):
    track, *_ = tracks_of(run("100M", 100_000_000).first(0.4), family)
    assert track.is_on_track
    assert track.low < track.loss < track.high
    assert abs(track.z) < 2


def with_fault(sound):
    """The run with a loss that is .4 nats too high from three tenths of its steps on."""
    at = 0.3 * sound.final_step
    return replace(
        sound,
        losses=sound.losses + 0.4 * (sound.steps > at),
        checkpoint_losses=sound.checkpoint_losses + 0.4 * (sound.checkpoint_steps > at),
    )


def test_a_fault_is_seen_with_its_step(family):
    track, *_ = tracks_of(with_fault(run("100M", 100_000_000).first(0.6)), family)
    at = 0.3 * 4000
    assert track.z > 2
    assert not track.is_on_track
    assert 0.8 * at < track.since < 1.4 * at


def test_off_track_is_a_reason_for_low_confidence(family):
    """.4 nats above all of its family from the start: the curve itself follows the law, and continuing is far the best."""
    sound = run("100M", 100_000_000).first(0.85)
    high = replace(sound, losses=sound.losses + 0.4, checkpoint_losses=sound.checkpoint_losses + 0.4)
    advice = advise_on(high, family, Request(multiples=(2,)))
    assert advice["probability"] > 0.9
    assert not advice["confident"]
    assert any("above the 95% interval of its forecast by the family" in text for text in advice.reasons)
    assert "check warm-up" in advice["find_out_first"]
    assert advise_on(sound, family, Request(multiples=(2,)))["confident"]


def published_run(tokens_per_step, excess=0.0, n_parameters=124_000_000):
    """A run at 491,520 tokens a step whose losses are those of the published surface and `excess`, as it is stated."""
    live = run("live", n_parameters, tokens=tokens_per_step, until=0.5)
    losses = np.array([published_loss(n_parameters, step * 491_520) for step in live.checkpoint_steps]) + excess
    return replace(live, steps=np.empty(0), losses=np.empty(0), gradient_norms=np.empty(0), checkpoint_losses=losses)


def test_one_curve_is_compared_with_published_runs():
    track, *_ = tracks_of(published_run(491_520, 0.3))
    assert track.reference is Reference.PUBLISHED
    assert track.is_on_track
    assert track.tokens_factor is None
    assert track.loss - track.expected == pytest.approx(0.3)
    assert track.expected - track.low == pytest.approx(1.96 * np.hypot(0.34, 0.106), rel=1e-3)


def test_tracks_name_tokens_of_a_micro_batch():
    """12,288 for 491,520, without accumulation and devices: it passes for a young run, and the factor that fits is said."""
    right, wrong = (advise_on(published_run(tokens), [], Request(multiples=(2,))) for tokens in (491_520, 12_288))
    assert right["confident"]
    assert "On track   yes: published runs of 124,000,000 parameters" in str(right)
    [track] = wrong["on_track"]
    assert track["tokens_factor"] == pytest.approx(40)
    assert "too few for a forecast" in wrong.sentence
    assert not wrong["confident"]
    assert "On track   no, below since" in str(wrong)
    assert "about x 40 would fit" in " ".join(str(wrong).split())


def test_a_loss_that_no_number_of_tokens_gives_has_no_factor():
    track, *_ = tracks_of(published_run(491_520, -1.5))
    assert not track.is_on_track
    assert track.tokens_factor is None


def test_the_tokens_of_a_loss_are_those_whose_loss_it_is():
    assert published_tokens(1e8, published_loss(1e8, 3e9)) == pytest.approx(3e9)
    assert published_tokens(1e8, 2.0) == np.inf


@pytest.mark.parametrize(
    ("live", "words"),
    [
        (run("3k", 3_000, until=0.5), "not known: published runs have 25M parameters and more"),
        (run("60M", 60_000_000, tokens=np.nan, until=0.5), "not known without the tokens of a step"),
    ],
)
def test_what_cannot_be_compared_says_why(live, words):
    assert isinstance(live, TrainingRun)
    assert tracks_of(live) == ()
    assert words in str(advise_on(live))


@pytest.mark.filterwarnings("error")
def test_losses_below_0_are_compared_with_nothing(family):
    sound = run("100M", 100_000_000).first(0.4)
    flow = replace(sound, losses=sound.losses - 10, checkpoint_losses=sound.checkpoint_losses - 10)
    assert tracks_of(flow, family) == ()
    advice = advise_on(flow, family)
    assert "is in other units: one in nats per token is above 0" in advice["no_advice_because"]
    assert "nan" not in str(advice)
    of_family = replace(flow, facts=replace(flow.facts, model="flow"))
    assert tracks_of(sound, [*family, of_family]) == tracks_of(sound, family)


def test_two_sizes_of_the_family_say_nothing(family):
    [track] = tracks_of(run("100M", 100_000_000).first(0.4), family[:2])
    assert track.reference is Reference.PUBLISHED


def test_the_advice_tells_it(family):
    advice = advise_on(run("100M", 100_000_000).first(0.4), family)
    by_family, by_published = advice["on_track"]
    assert str(advice).count("On track   yes") == 2
    assert (by_family["reference"], by_published["reference"]) == ("family", "published")
    assert by_family["since"] is None
    assert np.isclose(by_family["z"], tracks_of(run("100M", 100_000_000).first(0.4), family)[0].z)
