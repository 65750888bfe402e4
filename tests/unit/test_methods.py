"""What holds for every method: no leak from the future, a reason where there is no forecast, a known plan."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_runs import changed, training_run
from planted_runs import FINAL, WARMUP, cosine, family, forecast, run
from toposcale.analysis import methods as every
from toposcale.analysis.forecasts import forecast_table, trainings_from_tables
from toposcale.analysis.methods import METHODS, Family, make
from toposcale.analysis.ridge import Ridge, ridge_weights
from toposcale.forecasting import Prediction


@pytest.mark.parametrize("method", METHODS)
def test_what_comes_after_the_cut_moves_nothing(method):
    """Later rows of every model are replaced by nonsense, the model's own final loss by NaN."""
    histories = family()
    spoiled = []
    for history in histories:
        late, late_checkpoint = history.steps > 300, history.checkpoint_steps > 300
        features = {
            name: np.where(late_checkpoint.reshape(-1, *[1] * (values.ndim - 1)), 1e6, values)
            for name, values in history.features.items()
        }
        spoiled.append(
            replace(
                history,
                losses=np.where(late, 99.0, history.losses),
                gradient_norms=np.where(late, np.nan, history.gradient_norms),
                checkpoint_losses=np.where(late_checkpoint, -5.0, history.checkpoint_losses),
                features=features,
            )
        )
    finished = {history.model: history for history in histories}
    others = {name: history for name, history in finished.items() if name != "model-2"}
    cut, spoiled_cut = ([h.first(0.3) for h in runs] for runs in (histories, spoiled))
    target = [cut[2].target()]
    [expected] = make(method, Family(cut, finished)).fit(cut[2], cut).predict(target)
    [found] = make(method, Family(spoiled_cut, others)).fit(spoiled_cut[2], spoiled_cut).predict(target)
    assert np.isfinite(expected.value)
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)


def test_ridge_reads_no_loss_of_the_same_size():
    histories = [*family(), changed(run(2, seed=1), model="model-2.seed1", seed=1)]
    cut = [history.first(0.3) for history in histories]
    finished = {history.model: history for history in histories}
    high = replace(histories[-1], checkpoint_losses=histories[-1].checkpoint_losses + 70)
    expected = Ridge("ridge_all", cut, finished).fit(cut[2]).predict([cut[2].target()])
    found = Ridge("ridge_all", cut, finished | {"model-2.seed1": high}).fit(cut[2]).predict([cut[2].target()])
    assert found == expected


@pytest.mark.parametrize("method", METHODS)
def test_on_planted_runs_every_method_is_in_the_right_place(method):
    """A power law at a constant rate: the methods that know the form are close, all are within 0.3 of 2.56."""
    histories = [changed(history, learning_rates=np.full(FINAL + 1, 3e-3)) for history in family()]
    prediction = forecast(method, histories, 0.5, number=1)
    close = {"power_law": 0.02, "chinchilla": 0.02, "multi_power_law": 0.1, "joint": 0.1, "ridge_loss": 0.05}
    assert prediction.value == pytest.approx(histories[1].progress.loss, abs=close.get(method, 0.3))
    assert prediction.low <= prediction.value <= prediction.high


def test_the_joint_law_is_refused_before_its_intervals_hold():
    early, later = (forecast("joint", family(), share) for share in (0.1, 0.12))
    assert early.reason.startswith("100 steps are too few for a forecast, whose intervals hold from 120 steps on")
    assert later.low < later.value < later.high


BROKEN = {
    "nothing": {"steps": [], "losses": [], "checkpoint_steps": [], "checkpoint_losses": [], "features": {}},
    "no losses": {"losses": np.full(FINAL, np.nan), "checkpoint_losses": np.full(21, np.nan)},
    "no features": {"features": {}},
    "no schedule": {"learning_rates": []},
    "flat": {
        "losses": np.full(FINAL, 3.0),
        "checkpoint_losses": np.full(21, 3.0),
        "gradient_norms": np.ones(FINAL),
        "features": {"weights/neural_persistence": np.ones(21)},
    },
    "features of NaN": {"features": {"weights/neural_persistence": np.full(21, np.nan)}},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_forecast_that_cannot_be_made_is_nan_with_a_reason(method, case, everywhere):
    change = dict(BROKEN[case])
    if case == "nothing":
        change["gradient_norms"] = []
    histories = [changed(h, **change) if everywhere or i == 0 else h for i, h in enumerate(family(4))]
    prediction = forecast(method, histories, 0.3)
    if np.isfinite(prediction.value):
        assert prediction.low <= prediction.value <= prediction.high
    else:
        assert prediction.reason
        assert np.isnan(prediction.low)
        assert np.isnan(prediction.high)


@settings(max_examples=25)
@given(
    values=st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(np.nan), st.just(np.inf)), min_size=0, max_size=12),
    method=st.sampled_from(["power_law", "multi_power_law", "topology_rate", "combined", "gradient_norm"]),
)
def test_no_short_series_is_an_error(values, method):
    steps = np.arange(len(values)) * 10
    history = training_run(
        "short",
        10,
        10,
        200,
        learning_rates=np.ones(201),
        checkpoint_steps=steps,
        checkpoint_losses=values,
        features={"weights/neural_persistence": np.array(values)[::-1]},
    )
    prediction = every.forecast(make(method), history)
    assert np.isfinite(prediction.value) or prediction.reason


def test_an_unknown_method_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="power_law"):
        make("crystal_ball")


def test_three_rows_of_forty_change_nothing_much():
    """Spikes among the rows; a median of each bin and rows far above their neighbours keep them out."""
    clean = run(0)
    losses = clean.losses.copy()
    losses[[150, 151, 240]] = 40.0
    for method in ("power_law", "multi_power_law"):
        expected, found = (every.forecast(make(method), h.first(0.3)) for h in (clean, replace(clean, losses=losses)))
        assert found.value == pytest.approx(expected.value, abs=0.02)
        assert found.low > 0
        assert found.high < 5


def test_a_curve_of_spikes_is_refused():
    losses = run(0).losses.copy()
    losses[WARMUP + 9 :: 4] = 40.0
    found = every.forecast(make("power_law"), replace(run(0), losses=losses).first(0.5))
    assert "spikes" in found.reason


def test_a_forecast_above_the_present_loss_under_a_falling_rate_is_refused():
    history = run(0).first(0.5)

    class Rising:
        def fit(self, run, others):
            return self

        def predict(self, targets):
            return [Prediction(9.0, 8.0, 10.0) for _ in targets]

    found = every.forecast(Rising(), history)
    assert "above the present" in found.reason
    flat = changed(history, learning_rates=np.full(FINAL + 1, 1e-3))
    assert every.forecast(Rising(), flat).value == 9.0


def test_rows_without_a_loss_are_the_plan_and_no_progress():
    """A table with rates to the end and losses up to 30%: it has come to 30%, and the rest of its plan is known."""
    whole = run(0)
    losses = np.where(whole.steps <= 300, whole.losses, np.nan)
    tailed = replace(whole.first(0.3), steps=whole.steps, losses=losses, gradient_norms=np.full(FINAL, np.nan))
    assert tailed.progress.step == 300
    assert not tailed.is_finished
    assert tailed.schedule.is_known


def test_the_method_to_trust_follows_from_the_plan():
    assert every.default_method(run(0)) == "joint"
    assert every.default_method(changed(run(0), learning_rates=cosine()[:300])) == "power_law"


@pytest.mark.parametrize("known", [{"learning_rates": cosine()}, {"stated_warmup": WARMUP}])
def test_power_law_time_starts_at_half_of_the_warmup(known):
    """Of a linear warm-up half the steps count: L = 5 (step - 20)^-0.4 + 2 is found exactly after 40 steps of it."""
    steps = np.arange(WARMUP, 500)
    history = training_run(
        "moved", 1, 1, FINAL, checkpoint_steps=steps, checkpoint_losses=5 * (steps - WARMUP / 2) ** -0.4 + 2, **known
    )
    [found] = make("power_law").fit(history).predict([history.target()])
    assert found.value == pytest.approx(5 * (FINAL - WARMUP / 2) ** -0.4 + 2, abs=1e-6)


def test_a_run_under_way_has_rows_up_to_where_it_has_come():
    histories = [run(0).first(0.3), *family(3)[1:]]
    table = forecast_table(histories, fractions=[0.2, 0.5], methods=["power_law"])
    assert set(table[table["model"] == "model-0"]["fraction"]) == {0.2}
    assert set(table[table["model"] == "model-1"]["fraction"]) == {0.2, 0.5}


def test_forecast_table_of_sizes_that_have_not_started():
    # L0 falls as N^-0.3 from 1 above what no size gets below, in the place of 0.2 a size.
    moved = [0.2 * number + 3 ** (-0.3 * number) - 1 for number in range(3)]
    histories = [
        *(
            replace(h, losses=h.losses + more, checkpoint_losses=h.checkpoint_losses + more)
            for h, more in zip(family(3), moved, strict=True)
        ),
        training_run("planned", 3000 * 27, 1024, FINAL, learning_rates=cosine(), family="planted"),
    ]
    table = forecast_table(histories, fractions=[0.5], methods=["power_law", "joint"])
    planned = table[table["model"] == "planned"]
    assert list(zip(planned["fraction"], planned["method"], strict=True)) == [(0.0, "joint")]
    assert planned["low"].item() < 6 * FINAL**-0.35 + 1.03 + 3**-0.9 < planned["high"].item()
    other = [changed(h, family="another") if h.model == "planned" else h for h in histories]
    table = forecast_table(other, fractions=[0.5], methods=["joint"])
    assert "no loss" in table[table["model"] == "planned"]["reason"].item()


def test_entries_of_a_vector_share_one_scale():
    """A pixel that hardly moves in the models that are learnt from must not blow up in the one that is forecast."""
    design = np.array([[0.0, 1e-30], [1.0, 2e-30], [2.0, 0.5e-30], [3.0, 1e-30]])
    targets = design[:, 0]
    row = np.array([[1.5, 0.01]])  # the second entry is 1e28 of its own standard deviations away
    as_features = ridge_weights(design, row, np.array([1e-3])) @ targets
    as_vector = ridge_weights(design, row, np.array([1e-3]), np.array([0, 0])) @ targets
    assert abs(as_features[0, 0] - 1.5) > 1e3
    assert as_vector[0, 0] == pytest.approx(1.5, abs=0.01)


def test_vectors_are_matched_to_checkpoints_by_their_step():
    """A checkpoint that was left out of the tables (a duplicate) leaves its vector out as well."""
    metrics = pd.DataFrame(
        [("m", step, "validation_loss", 3.0 - step / 10) for step in (0, 2)],
        columns=["model", "step", "metric", "value"],
    )
    models = pd.DataFrame([{"model": "m", "n_parameters": 10, "tokens_per_step": 1, "final_step": 2}])
    nothing = pd.DataFrame()
    images = pd.DataFrame(
        [("m", step, "weights", "persistence_image", index, step + index / 2) for step in range(3) for index in (0, 1)],
        columns=["model", "step", "source", "vector", "index", "value"],
    )
    [history] = trainings_from_tables(nothing, metrics, nothing, models, vectors=images)
    assert history.features["weights/persistence_image"].tolist() == [[0.0, 0.5], [2.0, 2.5]]
