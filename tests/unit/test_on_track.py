"""Whether a run is where its family says: on planted families, with and without a fault."""

from dataclasses import replace

import numpy as np
import pytest

from planted_laws import run
from toposcale.decision.advice import advise_on
from toposcale.decision.on_track import on_track

SIZES = (25_000_000, 50_000_000, 200_000_000)


@pytest.fixture(scope="module")
def family():
    return [run(str(size), size) for size in SIZES]


def test_a_run_of_the_family_is_on_track(family):
    track = on_track(run("100M", 100_000_000).first(0.4), family)
    assert track.is_on_track
    assert track.low < track.loss < track.high
    assert abs(track.z) < 2


def test_a_fault_is_seen_with_its_step(family):
    sound = run("100M", 100_000_000).first(0.6)
    at = 0.3 * sound.final_step
    broken = replace(
        sound,
        losses=sound.losses + 0.4 * (sound.steps > at),
        checkpoint_losses=sound.checkpoint_losses + 0.4 * (sound.checkpoint_steps > at),
    )
    track = on_track(broken, family)
    assert track.z > 2
    assert not track.is_on_track
    assert 0.8 * at < track.since < 1.4 * at


def test_two_sizes_say_nothing(family):
    assert on_track(run("100M", 100_000_000).first(0.4), family[:2]) is None


def test_the_advice_tells_it(family):
    advice = advise_on(run("100M", 100_000_000).first(0.4), family)
    assert "On track   yes" in str(advice)
    assert advice["on_track"]["since"] is None
    assert np.isclose(advice["on_track"]["z"], on_track(run("100M", 100_000_000).first(0.4), family).z)
