"""The first answers about a training: they say what their numbers say, and name what is missing."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.analysis.own_run import CHANGED, FINISHED, ODD, run_answers
from toposcale.analysis.transitions import largest_change

NO_METRICS = pd.DataFrame({"model": [], "step": [], "metric": [], "value": []})
NO_FEATURES = pd.DataFrame({"model": [], "step": [], "source": [], "layer": [], "feature": [], "value": []})
NO_LOG = pd.DataFrame({"step": [], "loss": [], "learning_rate": []})


def metrics_of(steps, **curves):
    return pd.concat(
        pd.DataFrame({"model": "a", "step": steps, "metric": name, "value": values}) for name, values in curves.items()
    )


def features_of(steps, layers, feature="frobenius_norm"):
    return pd.DataFrame(
        [
            {"model": "a", "step": step, "source": "weights", "layer": layer, "feature": feature, "value": value}
            for layer, values in layers.items()
            for step, value in zip(steps, values, strict=True)
        ]
    )


def texts(metrics=NO_METRICS, features=NO_FEATURES, log=NO_LOG):
    return {answer.question: answer.text for answer in run_answers(metrics, features, log)}


STEPS = np.arange(100, 1001, 100)


def test_run_answers_gain_of_a_further_tenth_is_exact_of_a_log_law():
    falling = texts(metrics_of(STEPS, validation_loss=5 - 0.3 * np.log(STEPS)))[FINISHED]
    assert falling.startswith(
        f"Still learning: at the present slope a further tenth of the steps would gain {0.3 * np.log(1.1):.2g}, 0.97% of"
    )
    assert "a line through 6 validation loss values since step 500" in falling
    assert "The lowest validation loss is the last one, 2.928 at step 1,000." in falling
    almost = texts(metrics_of(STEPS, validation_loss=5 - 0.03 * np.log(STEPS)))[FINISHED]
    assert almost.startswith("Almost: ")
    noise = np.where(np.arange(10) % 2, 0.05, -0.05)
    assert texts(metrics_of(STEPS, validation_loss=3 + noise))[FINISHED].startswith("Not falling beyond noise: ")


def test_run_answers_name_overfitting_only_where_the_training_loss_falls():
    steps = np.arange(10, 401, 10)
    turned = 2 + np.abs(np.log(steps / 150))
    falling, rising = 4 - 0.3 * np.log(steps), 2 + 0.1 * np.log(steps)
    for training, ending in ((falling, "fallen since: overfitting."), (rising, "not fallen since.")):
        text = texts(metrics_of(steps, validation_loss=turned, training_loss=training))[FINISHED]
        assert text.startswith("It no longer improves: the validation loss has risen beyond noise")
        assert (
            "The lowest validation loss was 2 at step 150; the last one is 2.981, and the training loss has " + ending
            in text
        )
    alone = texts(metrics_of(steps, validation_loss=turned))[FINISHED]
    assert "Whether that is overfitting is not known: no training loss" in alone


def test_run_answers_say_what_is_missing():
    nothing = texts()
    assert nothing[FINISHED].startswith("Not known: there is no loss; name a file of losses")
    assert nothing[ODD] == "Weights were not measured."
    assert nothing[CHANGED] == "Not known: it needs two checkpoints with weights."
    few = texts(metrics_of([100, 200], validation_loss=[3.0, 2.0]))[FINISHED]
    assert few.startswith("Not known: a slope needs 5 losses in the second half of the steps.")
    assert "When the large changes were over is not known" in few


def test_run_answers_slope_of_a_log_stands_in_for_few_validation_losses():
    rows = np.arange(1, 1001)
    log = pd.DataFrame({"step": rows, "loss": 5 - 0.3 * np.log(rows), "learning_rate": np.linspace(1e-3, 1e-4, 1000)})
    text = texts(metrics_of([500, 1000], validation_loss=[3.2, 2.9]), log=log)[FINISHED]
    assert text.startswith("Still learning: ")
    assert "10 medians of the training loss values" in text
    assert "The learning rate is at 10% of its peak" in text


def test_run_answers_odd_matrix_is_named_with_its_reason():
    layers = {f"h.{block}.mlp.c_fc.weight": [1.0 + 0.01 * block] for block in range(8)}
    assert texts(features=features_of([5], layers))[ODD] == (
        "Nothing: of 8 matrices none is an outlier among the same ones of other blocks, at step 5."
    )
    layers["h.3.mlp.c_fc.weight"] = [9.0]
    assert texts(features=features_of([5], layers))[ODD].startswith(
        "Yes, at step 5: h.3.mlp.c_fc.weight: frobenius_norm 9, above"
    )
    layers["h.5.mlp.c_fc.weight"] = [np.nan]
    odd = texts(features=features_of([5], layers))[ODD]
    assert odd.startswith("Yes: at step 5 there are NaN or infinity in h.5.mlp.c_fc.weight. Also, at step 5: h.3.")
    assert texts(features=features_of([5], {"a": [1.0]}))[ODD].startswith("Not known: fewer than 5 blocks")


def test_run_answers_name_what_moved_most_and_when():
    features = pd.concat(
        [
            features_of([0, 10, 20], {"a": [1.0, 2.0, 3.0], "b": [1.0, 0.5, 0.1], "all": [1.4, 2.1, 3.0]}),
            features_of([10, 20], {"a": [0.2, 0.3], "b": [0.9, 0.1], "all": [0.5, 0.01]}, "relative_change"),
        ]
    )
    answers = texts(features=features)
    assert answers[CHANGED] == (
        "The norm of b, x 0.1, from step 0 to 20. Between two checkpoints b moved most, by 90% of its norm, up to step 10. "
        "Of the whole model: weight norm x 2.14."
    )
    assert "fell below 10% of the largest: at step 20 (weights)" in answers[FINISHED]


@settings(max_examples=60)
@given(st.lists(st.floats(0.5, 8.0), min_size=1, max_size=14), st.lists(st.floats(0.5, 8.0), min_size=14, max_size=14))
def test_run_answers_never_contradict_their_numbers(validation, training):
    steps = np.arange(10, 10 * len(validation) + 1, 10)
    metrics = metrics_of(steps, validation_loss=validation, training_loss=training[: len(steps)])
    text = texts(metrics)[FINISHED]
    values = np.array(validation)
    last_is_lowest = re.search(r"is the last one, (\S+) at step (\S+)\.", text)
    earlier = re.search(r"was (\S+) at step ([\d,]+); the last one is (\d+(?:\.\d+)?)", text)
    assert (last_is_lowest is None) != (earlier is None)
    if earlier:
        lowest, step, last = (float(number.replace(",", "")) for number in earlier.groups())
        assert lowest == pytest.approx(values.min(), rel=1e-3)
        assert steps[int(np.argmin(values))] == step
        assert last == pytest.approx(values[-1], rel=1e-3)
    else:
        assert values[-1] == values.min()
        assert "no longer improves" not in text
        assert "overfitting" not in text
    slope = re.search(
        r"would (gain|lose) (\S+), [\d.]+% of the loss \(a line through (\d+) validation loss values since step (\d+)",
        text,
    )
    if slope:
        recent = steps >= int(slope[4])
        assert recent.sum() == int(slope[3]) >= 5
        gain = -np.polyfit(np.log(steps[recent]), values[recent], 1)[0] * np.log(1.1)
        assert float(slope[2]) == pytest.approx(abs(gain), rel=0.06, abs=1e-12)
        assert not text.startswith("Still learning") or (slope[1] == "gain" and gain > 0)
        assert not text.startswith("The loss is rising") or slope[1] == "lose"
    settled = re.search(r"of the largest: at step (\d+) \(validation loss\)", text)
    if settled:
        assert largest_change(steps, values).settled_step == int(settled[1])
