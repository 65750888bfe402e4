"""What is known of a run at a cut, and nothing after it."""

from dataclasses import replace

import numpy as np
import pytest

from made_runs import changed
from planted_runs import FINAL, WARMUP, run
from toposcale.forecasting.runs.checks import broken_steps
from toposcale.forecasting.runs.training_run import TrainingRun


def test_first_keeps_rows_to_a_step_and_the_schedule():
    whole = run(0)
    cut = whole.first(0.3)
    assert cut.steps[-1] == 300
    assert cut.checkpoint_steps[-1] == 300
    assert len(cut.features["weights/persistence_image"]) == len(cut.checkpoint_steps) == 7
    np.testing.assert_array_equal(cut.schedule.rates, whole.schedule.rates)
    assert not cut.is_finished
    assert whole.progress.loss == whole.checkpoint_losses[-1]


def test_a_history_cannot_be_written_to():
    history = run(0)
    with pytest.raises(ValueError, match="read-only"):
        history.losses[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        history.features["weights/h0_total"][0] = 1.0


@pytest.mark.parametrize("steps", [[-100, 0, 100], [0, 0, 100], [100, 50, 200], [0, np.nan, 200], [[0, 1, 2]] * 3])
def test_steps_count_up_from_0(steps):
    with pytest.raises(ValueError, match="steps: at least 0 and strictly increasing in "):
        TrainingRun(run(0).facts, run(0).schedule, steps=np.array(steps), losses=np.ones(3))


def test_the_loss_curve_is_the_smoothed_log_moved_to_the_metric():
    history = run(0, noise=0.0)
    steps, losses = history.loss_curve
    assert steps[0] >= WARMUP
    # the metric lies 0.03 above the training loss; averaging a curve in bins of 8% leaves 1e-3 of bias
    np.testing.assert_allclose(losses, 6.0 * steps**-0.35 + 2.03, atol=3e-3)


def test_the_noise_of_a_row_is_that_of_the_log():
    """A smooth curve has 0.0000 of it; without a log it is that of the metric, here a tenth of it."""
    noisy = run(0, noise=0.05)
    assert noisy.noise == pytest.approx(0.05, rel=0.15)
    assert run(0, noise=0.0).noise < 1e-4
    alone = replace(noisy, steps=np.empty(0), losses=np.empty(0), gradient_norms=np.empty(0))
    assert alone.noise < 0.02
    assert np.isnan(replace(alone, checkpoint_losses=np.full(len(alone.checkpoint_steps), np.nan)).noise)


def test_loss_curve_without_a_log_is_the_metric():
    history = replace(run(0), steps=np.empty(0), losses=np.empty(0), gradient_norms=np.empty(0))
    steps, losses = history.loss_curve
    np.testing.assert_array_equal(steps, history.checkpoint_steps[1:])
    np.testing.assert_array_equal(losses, history.checkpoint_losses[1:])


def test_progress_of_a_checkpoint_without_a_loss():
    whole = run(0)
    added = changed(
        whole,
        final_step=whole.final_step + 1,
        checkpoint_steps=np.append(whole.checkpoint_steps, whole.final_step + 1),
        checkpoint_losses=np.append(whole.checkpoint_losses, np.nan),
        features={},
    )
    assert added.is_finished
    assert added.progress.loss == whole.progress.loss


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"losses": np.ones(3)}, "losses"),
        ({"losses": np.ones((FINAL, 1)), "steps": np.arange(FINAL), "gradient_norms": np.empty(0)}, "losses"),
        ({"checkpoint_losses": np.ones(3)}, "checkpoint_losses"),
        ({"steps": np.ones(FINAL)}, "steps"),
        ({"features": {"weights/h0_total": np.ones(2)}}, "h0_total"),
    ],
)
def test_a_malformed_history_is_named(change, named):
    with pytest.raises(ValueError, match=named):
        replace(run(0), **change)


N = np.nan


@pytest.mark.parametrize(
    ("losses", "last_step", "broken"),
    [
        ([4, 3, 2, N, N, N], 60, 3),  # a loss in every row, and then in none
        ([4, 3, 2, np.inf, N, N], 60, 3),
        ([4, 3, 2, N], 60, 0),  # the row that is being written
        ([4, N, N, 3, N, N, 2, N, N], 60, 0),  # a loss in every third row
        ([4, N, N, 3, N, N, 2, N, N, N, N], 60, 4),
        ([4, 3, 2, N, N, N], FINAL, 0),  # the rows of a plan, to its end
        ([4, 3, np.inf], 60, 1),
    ],
)
def test_broken_steps_are_rows_without_a_loss(losses, last_step, broken):
    steps = np.append(np.arange(len(losses) - 1) + 1, last_step)
    history = replace(run(0), steps=steps, losses=np.array(losses, float), gradient_norms=np.empty(0))
    assert broken_steps(history).tolist() == steps[len(steps) - broken :].tolist()
