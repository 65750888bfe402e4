"""Rows of several things in one log, and rows out of order."""

import re

import numpy as np
import pandas as pd
import pytest

from toposcale.forecasting.logs import loss_curves
from toposcale.io.errors import UserError

STEPS = np.arange(0, 7600, 50)
LOSSES = 3 + 8 / (1 + STEPS / 200)
BASE = pd.DataFrame({"step": STEPS, "loss": LOSSES, "lr": 1e-3})
EVALUATED = BASE[BASE["step"] % 500 == 0].drop(columns="lr")


def curve_of(*frames):
    return loss_curves.of_columns(pd.concat(frames, ignore_index=True))


def interleaved(column, labels, apart=0.1):
    """Rows of every label at each step."""
    frames = [BASE.assign(**{column: label, "loss": LOSSES + apart * at}) for at, label in enumerate(labels)]
    return pd.concat(frames).sort_values("step", kind="stable")


def validation_of(curve):
    return curve.metric_series().get("validation_loss", ((), ()))[1]


@pytest.mark.parametrize(
    ("column", "training", "evaluation"),
    [
        ("split", "train", "val"),
        ("event", "log", "eval"),
        ("Phase", "training_step", "valid"),
        ("set", "train", "test"),
    ],
)
def test_losses_of_evaluations_are_validation_losses(column, training, evaluation):
    rows = pd.concat([BASE.assign(**{column: training}), EVALUATED.assign(**{column: evaluation, "loss": 9.0})])
    curve = loss_curves.of_columns(rows.sort_values("step", kind="stable"))
    assert curve.log()["loss"].tolist() == LOSSES.tolist()
    assert set(validation_of(curve)) == {9.0}
    assert curve.notes == (f"column {column}: {len(EVALUATED)} losses are validation losses",)


def test_a_test_set_beside_a_validation_set_is_left_out():
    curve = loss_curves.of_columns(interleaved("set", ["train", "val", "test"]))
    assert validation_of(curve) == pytest.approx(LOSSES + 0.1)
    assert curve.notes[1] == "column set: the losses of test were left out"


def test_stages_one_after_the_other_are_one_training():
    curve = loss_curves.of_columns(BASE.assign(stage=np.where(STEPS < 5000, "stable", "decay")))
    assert curve.log()["loss"].tolist() == LOSSES.tolist()
    assert curve.notes == ()


@pytest.mark.parametrize(
    ("name", "value"), [("metric", "value"), ("tag", "Value"), ("key", "value"), ("metricName", "metricValue")]
)
def test_one_metric_a_row(name, value):
    rows = (
        BASE.rename(columns={"loss": "train/loss"}).assign(grad_norm=0.5).melt("step", var_name=name, value_name=value)
    )
    validation = EVALUATED.rename(columns={"loss": value}).assign(**{name: "val/loss"})
    curve = curve_of(rows, validation)
    assert curve.log()["loss"].tolist() == LOSSES.tolist()
    assert set(curve.log()["gradient_norm"].tolist()) == {0.5}
    assert len(validation_of(curve)) == len(EVALUATED)
    assert curve.notes[0].startswith(f"columns {name} and {value}: one metric a row")


@pytest.mark.parametrize("in_turn", [True, False])
def test_of_processes_the_mean_is_read(in_turn):
    rows = interleaved("rank", [0, 1, 2])
    curve = loss_curves.of_columns(rows if in_turn else rows.sort_values("rank", kind="stable"))
    assert curve.log()["loss"].tolist() == pytest.approx(LOSSES + 0.1)
    assert curve.notes == ("column rank: the mean of 3 (0, 1, 2) is read at each step",)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (interleaved("run", ["a", "b"]), r"column run has 2 runs \(a, b\)"),
        (interleaved("seed", [1, 2, 3]).sort_values("seed", kind="stable"), r"column seed has 3 runs \(1, 2, 3\)"),
        (
            interleaved("x", [0, 1, 2]).drop(columns="x"),
            "152 steps have several losses, the first at row 1 and row 2; give one loss per step",
        ),
        (interleaved("shard", ["x", "y", "z"]), "152 steps have several losses"),
        (interleaved("phase", ["x", "y"]), "column phase has several kinds of rows .* which are of the training"),
        (
            BASE.assign(Name=[*"abcd"] * 38, State="finished", Created=1, User="me"),
            "a table of 152 runs, one row a run",
        ),
        (
            pd.DataFrame({"run_id": [*"abc"], "step": [1, 2, 3], "loss": [3.1, 3.2, 3.3]}),
            "a table of 3 runs, one row a run",
        ),
        (pd.DataFrame({"run_id": [*"abc"], "step": 9, "loss": [3.1, 3.2, 3.3]}), "a table of 3 runs, one row a run"),
        (
            pd.DataFrame({"epoch": np.repeat(range(4), 38), "step": np.tile(range(38), 4), "loss": LOSSES}),
            "start again in each epoch",
        ),
    ],
)
def test_several_runs_are_refused_by_the_column_that_labels_them(rows, said):
    with pytest.raises(UserError, match=said):
        loss_curves.of_columns(rows)


@pytest.mark.parametrize("apart", [0.1, 0.0])
def test_evaluations_that_an_unknown_column_labels_are_refused(apart):
    """A row that only repeats the loss is none."""
    evaluated = EVALUATED.assign(loss=EVALUATED["loss"] + apart, is_train=False)
    rows = pd.concat([BASE.assign(is_train=True), evaluated]).sort_values("step", kind="stable")
    if apart:
        with pytest.raises(
            UserError, match=r"16 steps have several losses, the first at row 1 and row 2; .* call it val_loss"
        ):
            loss_curves.of_columns(rows)
    else:
        np.testing.assert_array_equal(loss_curves.of_columns(rows).columns["loss"], LOSSES)


def test_rows_that_a_restart_made_void_are_left_out():
    """Also those past the present end, and the validation losses among them."""
    abandoned = BASE.iloc[60:100].assign(loss=7.0, val_loss=LOSSES[60:100] + 4)
    curve = curve_of(BASE.iloc[:60], abandoned, BASE.iloc[60:80])
    assert curve.log()["loss"].tolist() == LOSSES[:80].tolist()
    assert len(validation_of(curve)) == 0
    assert curve.notes == ("the log goes back to step 3,000, as after a restart: 40 rows before that were left out",)
    twice = curve_of(BASE.iloc[:70], BASE.iloc[50:90], BASE.iloc[80:])
    assert "goes back 2 times, at last to step 4,000, as after a restart: 30 rows" in twice.notes[0]


@pytest.mark.parametrize("second", [BASE.iloc[:60], BASE.iloc[90:].assign(step=STEPS[:62])])
def test_steps_that_start_again_are_another_run_that_is_chosen_by_its_number(second):
    rows = pd.concat([BASE, second], ignore_index=True)
    ends = [f"losses {losses.iloc[0]:.4g} to {losses.iloc[-1]:.4g}" for losses in (BASE["loss"], second["loss"])]
    listed = (
        f"2 runs (run 1: 152 rows, steps 0 to 7,550, {ends[0]}; run 2: {len(second)} rows, steps 0 to "
        f"{second['step'].iloc[-1]:,}, {ends[1]})"
    )
    with pytest.raises(UserError, match=re.escape(f"{listed}; choose one with --run (run)")):
        loss_curves.of_columns(rows)
    for number, own in enumerate((BASE, second), 1):
        curve = loss_curves.of_columns(rows, run=number)
        assert curve.log()["loss"].tolist() == own["loss"].tolist()
        assert curve.notes == (f"run {number} of {listed} is read",)
    with pytest.raises(UserError, match=re.escape("no run 3 (--run): it has 2 runs")):
        loss_curves.of_columns(rows, run=3)


def test_a_resumed_run_whose_total_changed_is_another_run():
    rows = pd.concat([BASE.iloc[:100].assign(total_steps=9000), BASE.iloc[80:].assign(total_steps=4000)])
    with pytest.raises(UserError, match="2 runs"):
        loss_curves.of_columns(rows)
    curve = loss_curves.of_columns(rows, run=2)
    assert (curve.columns["step"].min(), curve.facts.final_step) == (STEPS[80], 4000)


def test_a_part_at_another_level_is_another_run():
    rows = pd.concat([BASE.iloc[:100], BASE.iloc[50:].assign(loss=0.7 * LOSSES[50:])])
    with pytest.raises(UserError, match=r"2 runs .* choose one with --run"):
        loss_curves.of_columns(rows)


def test_descending_rows_are_read_and_rows_behind_them_are_one_series():
    assert loss_curves.of_columns(BASE[::-1]).log()["loss"].tolist() == LOSSES.tolist()
    curve = curve_of(BASE, EVALUATED.rename(columns={"loss": "val_loss"}))
    assert curve.log()["loss"].tolist() == LOSSES.tolist()
    assert len(validation_of(curve)) == len(EVALUATED)
    assert curve.notes == ()


@pytest.mark.parametrize(
    "rows",
    [
        BASE.sample(frac=1, random_state=0),
        BASE.sort_values("step", key=lambda steps: steps.astype(str)),
        pd.concat([BASE.iloc[80:], BASE.iloc[:80]]),
        pd.concat([BASE.assign(step=STEPS + 25), BASE]).sort_index(kind="stable"),
    ],
    ids=["shuffled", "as texts", "two halves", "two runs in turn"],
)
def test_rows_in_no_order_are_never_sorted(rows):
    with pytest.raises(UserError, match=r"steps go back|2 runs"):
        loss_curves.of_columns(rows)


@pytest.mark.parametrize(("step", "loss"), [(0, LOSSES[-1] + 0.01), (3, LOSSES[-1] + 0.02)])
def test_a_last_row_whose_step_goes_back_is_another_run(step, loss):
    """A final test, or one with an epoch as its step."""
    rows = pd.concat([BASE, pd.DataFrame({"step": [step], "loss": [loss]})], ignore_index=True)
    with pytest.raises(UserError, match=f"run 2: 1 row, steps {step} to {step}, .*--run"):
        loss_curves.of_columns(rows)
    assert loss_curves.of_columns(rows, run=1).log()["loss"].tolist() == LOSSES.tolist()


def test_the_first_row_of_a_second_run_is_another_run():
    with pytest.raises(UserError, match=r"run 2: 1 row, steps 0 to 0, losses 10.9 to 10.9"):
        curve_of(BASE, pd.DataFrame({"step": [0], "loss": [10.9]}))


def test_evaluations_with_steps_of_their_own_are_refused():
    """A counter that began again when the training was resumed, and epochs in the place of steps."""
    frames = [BASE.iloc[start : start + 10] for start in range(0, 150, 10)]
    for steps in ([*range(500, 4000, 500), *range(500, 4500, 500)], range(1, 16)):
        evaluations = [pd.DataFrame({"step": [step], "val_loss": [4.0 - 0.01 * at]}) for at, step in enumerate(steps)]
        rows = [frame for pair in zip(frames, evaluations, strict=True) for frame in pair]
        with pytest.raises(UserError, match=r"the (steps of the )?validation losses .* naming it with --loss-column"):
            curve_of(*rows, BASE.iloc[150:])
        named = loss_curves.of_columns(pd.concat([*rows, BASE.iloc[150:]], ignore_index=True), loss_column="loss")
        assert named.log()["loss"].tolist() == LOSSES.tolist()


def test_a_second_run_whose_steps_go_on_is_another_run_and_a_spike_is_none():
    second = BASE.iloc[:60].assign(step=8000 + 2 * STEPS[:60])
    with pytest.raises(UserError, match=r"2 runs .* run 2: 60 rows, steps 8,000 to 13,900"):
        curve_of(BASE, second)
    for n in (1, 2, 10):
        spike = np.where(np.isin(STEPS, 5000 + 50 * np.arange(n)), 9.0, LOSSES)
        assert loss_curves.of_columns(BASE.assign(loss=spike)).log()["loss"].tolist() == spike.tolist()
        end = np.where(np.arange(len(BASE)) >= len(BASE) - n, 9.0, LOSSES)
        assert loss_curves.of_columns(BASE.assign(loss=end)).log()["loss"].tolist() == end.tolist()


@pytest.mark.parametrize("factor", [4, 0.01])
def test_evaluations_behind_the_training_in_another_unit_are_refused(factor):
    """Micro-steps, and hundreds of steps."""
    evaluated = EVALUATED.rename(columns={"loss": "val_loss"}).assign(step=(EVALUATED["step"] * factor).astype(int))
    with pytest.raises(UserError, match="the validation losses have steps of their own"):
        curve_of(BASE, evaluated)


@pytest.mark.parametrize("column", ["tokens", "consumed_samples", "epoch", "epoch_time"])
def test_loss_without_a_step_is_refused_with_the_ways_to_one(column):
    with pytest.raises(
        UserError, match=r"name it: --step-column .* steps are tokens / tokens of a step, or epoch x steps"
    ):
        loss_curves.of_columns({column: STEPS, "loss": LOSSES})


@pytest.mark.parametrize(("loss", "is_total"), [("loss", True), ("train_loss", True), ("lm_loss", False)])
def test_a_loss_beside_its_parts_may_be_a_total(loss, is_total):
    curve = loss_curves.of_columns(
        {"step": STEPS, loss: LOSSES, "z_loss": 0.01 + 0 * LOSSES, "aux_loss": 0.04 + 0 * LOSSES}
    )
    said = [
        reason for reason in curve.low_confidence_reasons if reason.startswith(f"{loss} may include z_loss, aux_loss")
    ]
    assert len(said) == is_total


def test_of_the_micro_batches_of_a_step_the_mean_is_read():
    curve = loss_curves.of_columns(interleaved("micro_step", [1, 2, 3]))
    assert curve.log()["loss"] == pytest.approx(LOSSES + 0.1)
    assert curve.notes == ("column micro_step: the mean of 3 (1, 2, 3) is read at each step",)


def test_the_number_of_micro_batches_is_not_the_last_step(tmp_path):
    path = tmp_path / "train.log"
    rows = [(step, part) for step in range(10, 400, 10) for part in (1, 2)]
    path.write_text("".join(f"step {step} micro_step {part}/2 loss {5 - step / 400:.4f}\n" for step, part in rows))
    assert loss_curves.read(path).facts.final_step is None


@pytest.mark.parametrize("first", [0, 500])
def test_an_evaluation_that_is_carried_forward_is_read_once(first):
    evaluated = np.where((STEPS % 500 == 0) & (first <= STEPS), LOSSES + 0.1, np.nan)
    column = pd.Series(evaluated).ffill().bfill().to_numpy()
    curve = loss_curves.of_columns(BASE.assign(val_loss=column))
    assert validation_of(curve).tolist() == evaluated[np.isfinite(evaluated)].tolist()
    steps = curve.metric_series()["validation_loss"][0]
    assert steps.tolist() == STEPS[np.isfinite(evaluated)].tolist()
    assert "val_loss repeats the value of the row before in" in " ".join(curve.notes)


def test_an_evaluation_that_is_carried_forward_is_read_once_where_it_is_named_as_the_loss():
    evaluated = np.where(STEPS % 500 == 0, LOSSES + 0.1, np.nan)
    rows = BASE.assign(val_loss=pd.Series(evaluated).ffill())
    losses = loss_curves.of_columns(rows, loss_column="val_loss").log()["loss"]
    assert losses[np.isfinite(losses)].tolist() == evaluated[np.isfinite(evaluated)].tolist()


def test_a_value_that_two_evaluations_share_is_read_twice():
    rounded = np.round(LOSSES, 2)
    curve = loss_curves.of_columns(BASE.assign(val_loss=rounded))
    assert len(np.unique(rounded)) < len(rounded)
    assert validation_of(curve).tolist() == rounded.tolist()


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf])
def test_evaluations_that_were_not_made_are_no_measurement(value):
    """NaN between evaluations too, which the readers hold as infinite."""
    at = np.arange(len(BASE)) % 10 == 9
    curve = loss_curves.of_columns(BASE.assign(val_loss=np.where(at, LOSSES + 0.1, value)))
    assert len(validation_of(curve)) == at.sum()
    assert len(curve.notes) == 1
    broken = loss_curves.of_columns(
        BASE.assign(val_loss=np.where(at & (STEPS < 4000), LOSSES, np.where(at, np.inf, np.nan)))
    )
    assert "the validation loss is not a number since step" in broken.notes[0]


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ({"loss": LOSSES + 0.3, "lm_loss": LOSSES, "aux_loss": 0.3}, "lm_loss"),
        ({"total_loss": LOSSES + 0.3, "train/ce_loss": LOSSES}, "train/ce_loss"),
        ({"loss/total": LOSSES + 0.3, "logits_loss": LOSSES, "z_loss": 0.3}, "logits_loss"),
        ({"avg_loss": LOSSES + 0.3, "loss": LOSSES}, "loss"),
        ({"loss": LOSSES, "train_loss": LOSSES}, "loss"),
        ({"loss": LOSSES + 0.3, "lm_loss": LOSSES}, ""),
        ({"loss": LOSSES + 0.3, "train_loss": LOSSES}, ""),
        ({"total_loss": LOSSES + 0.3, "loss": LOSSES}, ""),
    ],
)
def test_of_two_losses_the_one_without_additions_counts_or_the_user_is_asked(columns, read):
    rows = pd.DataFrame({"step": STEPS, **columns})
    if read:
        assert loss_curves.of_columns(rows).names["loss"] == read
        assert loss_curves.of_columns(rows).log()["loss"].tolist() == LOSSES.tolist()
    else:
        with pytest.raises(UserError, match=r"both hold the loss; .* --loss-column \(loss_column\)"):
            loss_curves.of_columns(rows)
        named = loss_curves.of_columns(rows, loss_column=[*columns][1])
        assert named.log()["loss"].tolist() == columns[[*columns][1]].tolist()


@pytest.mark.parametrize(
    ("counters", "read"),
    [
        ({"step": 4 * STEPS, "optimizer_step": STEPS}, "optimizer_step"),
        ({"iteration": 8 * STEPS, "update": STEPS}, "update"),
        ({"_step": STEPS // 50, "trainer/global_step": STEPS}, "trainer/global_step"),
        ({"iter": STEPS + 1, "step": STEPS}, "step"),
        ({"step": STEPS, "steps": 2 * STEPS}, ""),
        ({"optimizer_step": 4 * STEPS, "step": STEPS}, ""),
    ],
)
def test_of_two_counters_that_of_the_updates_counts_or_the_user_is_asked(counters, read):
    rows = pd.DataFrame({**counters, "loss": LOSSES})
    if read:
        curve = loss_curves.of_columns(rows)
        assert curve.names["step"] == read
        assert curve.columns["step"].tolist() == STEPS.tolist()
    else:
        with pytest.raises(UserError, match=r"count differently; name one with --step-column \(step_column\)"):
            loss_curves.of_columns(rows)


def test_a_restart_that_goes_back_further_makes_one_before_it_void():
    curve = curve_of(BASE, BASE.iloc[100:110], BASE.iloc[20:40])
    assert curve.columns["step"].tolist() == STEPS[:40].tolist()
    assert "goes back 2 times, at last to step 1,000" in curve.notes[0]


@pytest.mark.parametrize("change", [1.0, 0.9])
def test_a_drop_after_a_restart_is_a_reason_for_low_confidence(change):
    noise = np.random.default_rng(0).normal(1, 0.005, len(BASE))
    curve = curve_of(
        BASE.assign(loss=LOSSES * noise), BASE.iloc[100:].assign(loss=change * (LOSSES * noise[::-1])[100:])
    )
    assert [text[:39] for text in curve.low_confidence_reasons] == ["the loss dropped abruptly at step 5,000"] * (
        change < 1
    )


@pytest.mark.parametrize("other", [{}, {"time": 1.0}])
def test_empty_losses_at_the_end_are_a_run_that_failed(other):
    rows = BASE[["step", "loss"]].assign(**other)
    rows.loc[150:, "loss"] = np.nan
    assert loss_curves.of_columns(rows).columns["loss"][-2:].tolist() == [np.inf, np.inf]


def test_a_row_of_something_else_at_the_end_is_no_loss():
    curve = curve_of(BASE, pd.DataFrame({"step": [7600], "total_flops": [1e18]}))
    assert curve.log()["loss"].tolist() == LOSSES.tolist()


def test_whether_losses_are_in_bits_is_asked_where_a_perplexity_is_two_to_the_loss():
    columns = {"step": STEPS, "loss": LOSSES, "ppl": 2**LOSSES}
    with pytest.raises(UserError, match=r"ppl is 2\^loss: .* multiply them by 0.6931; .* --loss-column loss"):
        loss_curves.of_columns(columns)
    assert loss_curves.of_columns(columns, loss_column="loss").log()["loss"].tolist() == LOSSES.tolist()
    assert loss_curves.of_columns({"step": STEPS, "loss": LOSSES, "ppl": np.exp(LOSSES)}).notes == ()


def test_bits_are_recognised_by_a_name():
    bits = LOSSES / np.log(2)
    for name, chosen in (("val_bpb", None), ("bits_per_byte", "bits_per_byte")):
        with pytest.raises(UserError, match=f"column {name} is in bits by its name"):
            loss_curves.of_columns({"step": STEPS, name: bits}, loss_column=chosen)


def test_tensors_are_numbers():
    torch = pytest.importorskip("torch")
    losses = torch.tensor(LOSSES, requires_grad=True)
    for column in (losses, list(losses)):
        assert (
            loss_curves.of_columns({"step": torch.tensor(STEPS), "loss": column}).log()["loss"].tolist()
            == LOSSES.tolist()
        )


@pytest.mark.parametrize("name", ["consumed_tokens", "train/num_input_tokens_seen", "batch_size"])
@pytest.mark.parametrize("change", [1.0, 1.02, 1.5, 0.5])
def test_a_batch_that_changes_by_its_own_log_is_a_reason_for_low_confidence(name, change):
    steps = np.arange(100, 4100, 100)
    of_a_step = np.where(steps > 2000, 1e5 * change, 1e5)
    told = of_a_step if name == "batch_size" else np.cumsum(100 * of_a_step)
    curve = loss_curves.of_columns({"step": steps, "loss": 3 + steps**-0.5, name: told})
    reasons = [reason for reason in curve.low_confidence_reasons if name in reason]
    assert len(reasons) == (abs(change - 1) > 0.05)


def test_a_column_of_tokens_that_goes_back_or_is_empty_says_nothing_of_the_batch():
    steps = np.arange(100, 4100, 100)
    for told in (np.full(40, np.nan), np.where(steps > 2000, steps - 2000, steps) * 1e5, np.zeros(40)):
        curve = loss_curves.of_columns({"step": steps, "loss": 3 + steps**-0.5, "tokens": told})
        assert curve.low_confidence_reasons == ()


LOGGED = np.arange(0.0, 500, 50)


@pytest.mark.parametrize(
    ("name", "values", "tokens"),
    [
        ("tokens", 524_288 * LOGGED, 524_288),
        ("Tokens_Seen", 524_288 * (LOGGED + 1), 524_288),  # counted after the step
        ("tokens_per_step", np.full(10, 524_288.0), 524_288),
        ("tokens", np.full(10, 524_288.0), None),  # of a step, of a row, or of all: unknown
        ("tokens", 0.524288 * LOGGED, None),  # in millions
        ("consumed_samples", 512 * LOGGED, None),
        ("tokens", 1024 * LOGGED**2, None),
        ("tokens", np.full(10, np.nan), None),
    ],
)
def test_a_column_of_tokens_tells_those_of_a_step(name, values, tokens):
    assert loss_curves.tokens_per_step(LOGGED, {name: values}) == tokens


def test_a_restart_does_not_change_the_tokens_of_a_step():
    steps = np.append(LOGGED, LOGGED[5:])
    assert loss_curves.tokens_per_step(steps, {"tokens": 524_288 * steps}) == 524_288
    assert loss_curves.changed_batch(steps, {"tokens": 524_288 * steps}) == ()
