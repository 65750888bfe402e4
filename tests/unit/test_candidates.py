"""What could be done with the compute that is left."""

import numpy as np
import pytest

from planted_laws import FINAL, SIZES, run, wsd
from toposcale.forecasting.decision.candidates import (
    LONGEST_START,
    SHORTEST_START,
    DroppedCandidate,
    Request,
    all_candidates,
    candidates,
    decide,
)
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.learning_rate_schedule import rescaled
from toposcale.io.errors import UserError


def test_compute_is_six_n_d():
    history = run("a", 7_000, tokens=100)
    assert history.flop_of_steps(7) == 6 * 7_000 * 100 * 7
    assert history.first(0.25).flop_left == pytest.approx(6 * 7_000 * 100 * 3000, rel=0.02)


def test_what_can_be_done_with_the_runs_own_rest():
    live = run("100M", 100_000_000, until=0.5)
    found = {c.name: c for c in candidates(live, SIZES[1:], Request(None, [2]))}
    assert set(found) == {"continue", "scale up to 400M", "scale up to 2 x 100M"}
    rest = live.flop_left
    assert found["continue"].steps == FINAL - live.progress.step
    assert found["continue"].compute == pytest.approx(rest)
    # A quarter of the steps at four times the size, on the same course of the rate.
    assert found["scale up to 400M"].steps == pytest.approx(found["continue"].steps / 4, abs=1)
    assert found["scale up to 400M"].compute == pytest.approx(rest, rel=0.01)
    rates = found["scale up to 400M"].target.learning_rates
    assert rates.max() == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(wsd()[-1])


def test_candidates_extend_with_more_compute():
    live = run("100M", 100_000_000, until=0.5)
    found = {c.name: c for c in candidates(live, [], Request(3 * live.flop_left, [4]))}
    assert found["extend"].steps == 3 * found["continue"].steps
    assert found["scale up to 4 x 100M"].compute == pytest.approx(3 * live.flop_left, rel=0.01)
    rates = found["extend"].target.learning_rates
    np.testing.assert_allclose(rates[: live.progress.step], wsd()[: live.progress.step])
    assert rates[-1] == pytest.approx(wsd()[-1])


def test_less_compute_presses_the_rest_of_the_plan_together():
    live = run("100M", 100_000_000, until=0.5)
    [finish] = candidates(live, [], Request(0.5 * live.flop_left, []))
    assert finish.name == "continue"
    assert finish.steps == (FINAL - live.progress.step) // 2
    assert finish.target.learning_rates[-1] == pytest.approx(wsd()[-1])


def test_candidates_size_has_the_run_of_its_schedule():
    live = run("small", 100_000_000, until=0.5)
    flat = np.minimum((np.arange(FINAL + 1) + 1) / 200, 1.0) * 1e-3
    others = [run("aaa", 400_000_000, flat), run("zzz", 400_000_000)]
    assert live.schedule.has_shape_of(others[1].schedule)
    assert not live.schedule.has_shape_of(others[0].schedule)
    assert "scale up to zzz" in {c.name for c in candidates(live, others, Request(None, []))}


def test_stretching_keeps_the_course():
    rates = wsd()
    longer = rescaled(rates, 10 * FINAL)
    assert len(longer) == 10 * FINAL + 1
    np.testing.assert_allclose(longer[::10], rates)


def test_what_goes_on_is_the_run_itself_and_a_start_is_none():
    live = run("100M", 100_000_000, until=0.5)
    models = {c.name: c.target.model for c in candidates(live, [], Request(2 * live.flop_left, [2]))}
    assert models == {"continue": "100M", "extend": "100M", "scale up to 2 x 100M": ""}


def dropped(run, others, *request):
    every_candidate = all_candidates(run, others, Request(*request))
    return [candidate for candidate in every_candidate if isinstance(candidate, DroppedCandidate)]


def test_what_is_left_out_is_named_with_its_own_reason():
    live = run("100M", 100_000_000, until=0.5)
    others = [live.unstarted(model=name, n_parameters=size) for name, size in (("100B", 10**11), ("same", 10**8))]
    [large, same] = dropped(live, others, None, (2,))
    assert large.name == "scale up to 100B"
    assert f"pays for {(FINAL - live.progress.step) // 1000} steps" in large.reason
    assert f"at least {SHORTEST_START}" in large.reason
    assert same == ("start same", "it has the size of this run")
    assert {c.name for c in candidates(live, others, Request(None, (2,)))} == {"continue", "scale up to 2 x 100M"}
    endless = dropped(live, [], 1e30, (2,))
    assert [c.name for c in endless] == ["extend", "scale up to 2 x 100M"]
    assert all(f"at most {LONGEST_START:,}" in c.reason for c in endless)


def test_a_candidate_of_an_implausible_forecast_is_named(monkeypatch):
    monkeypatch.setattr("toposcale.forecasting.laws.prediction.MAX_LOSS_RATIO", 1.3)
    live = run("100M", 100_000_000, until=0.5)
    decision = decide(Joint(check=False).fit(live), live, all_candidates(live, [], Request(multiples=(2, 30))))
    assert [c.candidate.name for c in decision.candidates if c.candidate.from_scratch] == ["scale up to 2 x 100M"]
    [dropped] = decision.dropped
    assert dropped.name == "scale up to 30 x 100M"
    assert "is not plausible" in dropped.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("multiples", value) for value in [(0,), (2, -1), (np.nan,), (np.inf,), ("two",), (None,), None]),
        *(("remaining", value) for value in [-1, np.nan, np.inf, "much"]),
        *(("target_loss", value) for value in [0, -1, np.nan, "low"]),
    ],
)
def test_a_request_that_is_no_number_is_refused_by_name(field, value):
    with pytest.raises(UserError, match=f"^{field}: "):
        Request(**{field: value})


def test_a_request_takes_numbers_of_any_kind():
    request = Request(np.float32(2), np.array([2, 4]), "2.5")
    assert (request.remaining, request.multiples, request.target_loss) == (2.0, (2.0, 4.0), 2.5)
    assert (Request(multiples=3).multiples, Request(multiples="4").multiples) == ((3.0,), (4.0,))
