"""Text logs by a pattern of the user's, the patterns that refusals offer, and what stands next to a loss on its line."""

import re
import shlex

import numpy as np
import pytest

from toposcale.__main__ import main
from toposcale.forecasting.logs import loss_curves, patterns
from toposcale.io.errors import UserError

STEPS = list(range(100, 4001, 100))
LOSSES = [round(3 + 8 / (1 + step / 200), 4) for step in STEPS]
ROWS = list(zip(STEPS, LOSSES, strict=True))


def log_of(tmp_path, text, name="main.log"):
    path = tmp_path / name
    lines = (text.format(step=step, loss=loss, other=round(loss + 0.3, 4), k=step / 1000) for step, loss in ROWS)
    path.write_text("\n".join(lines) + "\n")
    return path


def points(curve, name="loss"):
    known = ~np.isnan(curve.columns[name])
    return list(zip(curve.columns["step"][known].tolist(), curve.columns[name][known].tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("{step}: perte {loss}", r"(?P<step>\d+): perte (?P<loss>[\d.]+)"),
        ("at {k:.2f}k the loss is {loss}", r"at (?P<step>[\d.]+k) .* (?P<loss>[\d.]+)"),
        ("{step:,} loss {loss}", r"(?P<step>[\d,]+) loss (?P<loss>[\d.]+)"),
        ("step {step}\nloss {loss}", r"step (?P<step>\d+)\n.*loss (?P<loss>[\d.]+)"),
        ("iter {step} loss {other} lm {loss}", r"iter (?P<step>\d+) .*lm (?P<loss>[\d.]+)"),
    ],
)
def test_pattern_reads_its_groups(text, pattern, tmp_path):
    curve = loss_curves.read(log_of(tmp_path, text), pattern=pattern)
    assert points(curve) == ROWS
    assert f"read by the pattern: {len(ROWS)} matches, the first in line 1: step" in curve.notes[0]


def test_pattern_reads_utf_16_as_windows_writes_it(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes("".join(f"at {step} cost {loss}\r\n" for step, loss in ROWS).encode("utf-16"))
    assert points(loss_curves.read(path, pattern=r"at (?P<step>\d+) cost (?P<loss>[\d.]+)")) == ROWS


def test_pattern_reads_splits_facts_and_batches_of_epochs(tmp_path):
    path = tmp_path / "main.log"
    path.write_text(
        "number of parameters: 123.59M\n"
        + "".join(f"E{epoch} b{batch}/9 t={5 - epoch - batch / 9:.3f}\n" for epoch in (1, 2) for batch in (3, 6, 9))
        + "E2 b9/9 v=3.1\n"
    )
    pattern = r"E(?P<epoch>\d) b(?P<batch>\d)/(?P<batches>\d) (?:t=(?P<loss>[\d.]+)|v=(?P<validation_loss>[\d.]+))"
    curve = loss_curves.read(path, pattern=pattern)
    assert curve.columns["step"].tolist() == [3, 6, 9, 12, 15, 18]
    assert (points(curve, "validation_loss"), curve.facts.n_parameters) == ([(18, 3.1)], 123_590_000)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?P<loss>[", "is not a regular expression"),
        (r"loss (?P<loss>[\d.]+)", "needs groups called step and loss"),
        (r"step (?P<step>\d+) .* nothing (?P<loss>[\d.]+)", "no line matches the pattern"),
        (r"step (?P<step>\d+).*loss (?P<loss>\d+)", r"the group loss of the pattern \(--pattern\) takes only"),
        (r"step (?P<step>\w+).*loss (?P<loss>\S+)", "takes '2.*|', which is not a number"),
    ],
)
def test_pattern_that_reads_no_whole_number_is_refused(pattern, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        loss_curves.read(log_of(tmp_path, "step {step} | loss {loss}|"), pattern=pattern)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("step {k:.1f}0k | loss {loss}", "a number is abbreviated"),
        ("step {step} | train: loss {loss} | val: loss {other}", "several losses"),
        ("c4 loss {loss} at {step}", "not understood"),
        ("step {step} kd_loss {loss}", "not understood"),
        ("{step} 520.1 ms step, {loss} loss, 12345 tok/s", "a loss and no step"),
        ("[{step}] loss {loss}", "a loss and no step"),
        ("{step} | loss {loss}", "a loss and no step"),
        ("step {step} loss [{loss}, {other}]", "several losses"),
    ],
)
def test_pattern_of_a_refusal_reads_the_file(text, reason, tmp_path, capsys):
    path = log_of(tmp_path, text)
    with pytest.raises(UserError, match=reason) as refusal:
        loss_curves.read(path)
    assert f"a pattern matches {len(ROWS)} of {len(ROWS)} lines with a loss: --pattern" in str(refusal.value)
    option = shlex.split(str(refusal.value).partition("with a loss: ")[2])
    assert [loss for _, loss in points(loss_curves.read(path, pattern=option[1]))] == LOSSES
    main(["check", str(path), *option])
    assert "read by the pattern" in capsys.readouterr().out


@pytest.mark.parametrize("separator", [",", "_", "'", "\u2019", "\u00a0", "\u202f"])
def test_separated_thousands_are_read_by_the_offered_pattern(separator, tmp_path):
    path = tmp_path / "main.log"
    rows = [(100 * step, loss) for step, loss in ROWS]
    path.write_text("".join(f"step {step:,} | loss {loss}\n".replace(",", separator) for step, loss in rows))
    with pytest.raises(UserError, match="has separated thousands, which a pattern reads") as refusal:
        loss_curves.read(path)
    option = shlex.split(str(refusal.value).partition("with a loss: ")[2])
    assert points(loss_curves.read(path, pattern=option[1])) == rows


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Epoch [{epoch}/3] [{batch}/1000] loss {loss}", 1),
        ("Epoch:[{epoch}/3]({batch}/1000), loss: {loss}, lr: 0.1", 1),
        ("| epoch   {epoch} | {batch:>5}/ 1000 batches | lr 20.0 | loss {loss}", 1),
        ("Epoch: [{epoch}][{batch}/1000] Loss {loss} (9.9)", 0),
        ("epoch {epoch} step {batch}/1000 loss {loss}", 1),
        ("Training Epoch: {epoch}/3, step {batch}/1000 completed (loss: {loss}): 5%|# | 3/60 [00:01<00:10, 1it/s]", 1),
    ],
)
def test_batches_of_epochs_are_read_by_the_offered_pattern(text, first, tmp_path):
    path = tmp_path / "main.log"
    at = [(epoch, batch) for epoch in range(3) for batch in range(100, 1001, 100)]
    lines = (text.format(epoch=epoch + first, batch=batch, loss=9 - epoch - batch / 2000) for epoch, batch in at)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="the steps start again in each epoch") as refusal:
        loss_curves.read(path)
    option = shlex.split(str(refusal.value).partition("with a loss: ")[2])
    curve = loss_curves.read(path, pattern=option[1])
    assert curve.columns["step"].tolist() == list(range(100, 3001, 100))
    assert curve.facts.final_step is None


def test_log_of_a_later_epoch_is_a_question_without_an_offer(tmp_path):
    with pytest.raises(UserError, match="the batches of epoch 2 are counted over all epochs is unknown") as refusal:
        loss_curves.read(log_of(tmp_path, "Epoch [2/3] [{step}/9000] loss {loss}"))
    assert "a pattern matches" not in str(refusal.value)


def test_total_beside_an_epoch_is_not_the_last_step(tmp_path):
    path = log_of(tmp_path, "")
    path.write_text("".join(f"epoch {1 + step // 2000} step {step}/6000 loss {loss}\n" for step, loss in ROWS))
    curve = loss_curves.read(path)
    assert (points(curve), curve.facts.final_step) == (ROWS, None)


@pytest.mark.parametrize(
    "text",
    [
        "{step} s | loss {loss}",
        "[{step}:00:12] loss={loss}",
        "step {step}ms loss {loss}",
        "[{step}, 12000] loss: {loss}",
        "step {step} | loss {loss} bits | lr 5e-4",
    ],
)
def test_no_pattern_is_offered_for_times_bits_or_pairs(text, tmp_path):
    with pytest.raises(UserError) as refusal:
        loss_curves.read(log_of(tmp_path, text))
    assert "a pattern matches" not in str(refusal.value)


def test_samples_are_never_offered_as_steps(tmp_path):
    path = log_of(tmp_path, "Train Epoch: 0 [ {step}/512000 (1%)] Losses/train_loss: {loss}")
    with pytest.raises(UserError, match="they count samples") as refusal:
        loss_curves.read(path)
    assert "a pattern matches" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "validation"),
    [
        ("step {step}: {loss} train loss, {other} val loss", True),
        ("{step} 7.3 s run, {loss} loss, 0.0003 LR, 1454.5 GB used, 3945.8 GFLOPS", False),
        ("step {step} | {loss} train loss | {other} val loss | 0.0003 lr", True),
        ("step {step} - {loss} loss - 1234 tok/s", False),
    ],
)
def test_value_before_its_name_belongs_to_that_name(text, validation, tmp_path):
    curve = loss_curves.read(log_of(tmp_path, text))
    assert points(curve) == ROWS
    if validation:
        assert points(curve, "validation_loss") == [(step, round(loss + 0.3, 4)) for step, loss in ROWS]
    assert set(np.unique(curve.columns["learning_rate"][~np.isnan(curve.columns["learning_rate"])])) <= {0.0003}


@pytest.mark.parametrize("prefix", ["", "0: ", "[rank0]: ", "[default0]:", "2024-05-01T10:00:00.123456789Z stdout F "])
@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("number of parameters: 123.59M", 123_590_000),
        ("number of parameters: 1.24B", 1_240_000_000),
        ("number of parameters: 123,590,000", 123_590_000),
        ("number of parameters: 123 590 000", None),
        ("number of parameters: 123.590.000", None),
        ("number of parameters: 123", None),
    ],
)
def test_parameters_are_read_in_exact_forms_alone(prefix, fact, value, tmp_path):
    path = log_of(tmp_path, "iter {step}: loss {loss}, time 312.10ms, mfu 31.21%")
    path.write_text("\n".join(prefix + line for line in (fact, *path.read_text().splitlines())) + "\n")
    curve = loss_curves.read(path)
    assert points(curve) == ROWS
    assert curve.facts.is_known("n_parameters") is (value is not None)
    assert value is None or curve.facts.n_parameters == value
    assert any("123 parameters, which make no language model" in note for note in curve.notes) is fact.endswith(": 123")


@pytest.mark.parametrize(
    "text", ["step {step} | tokens {tokens} | loss {loss}", "step {step}/99 loss {loss} ({tokens})"]
)
def test_units_of_other_columns_make_no_other_form(text, tmp_path):
    path = tmp_path / "main.log"
    amounts = (f"{step / 2:.0f}M" if step < 2000 else f"{step / 2000:.2f}B" for step in STEPS)
    lines = (
        text.format(step=step, loss=loss, tokens=amount) for (step, loss), amount in zip(ROWS, amounts, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    assert points(loss_curves.read(path)) == ROWS


@pytest.mark.parametrize(
    ("last", "is_read"),
    [
        (" validation loss at iteration 4000 | lm loss value: 3.41E+00 | lm loss PPL: 3.0E+01 |", True),
        (" validation loss at iteration 4000 | lm loss value: 3.41E+00 | lm lo", False),
        (" iteration 4100/ 9000 | lm loss: 3.31 | loss scale: 1.0 |", True),
        (" iteration 4100/ 9000 | lm loss: 3.", False),
    ],
)
def test_last_line_without_newline_is_kept_if_it_is_whole(last, is_read, tmp_path):
    path = log_of(tmp_path, " iteration {step}/ 9000 | lm loss: {loss} | loss scale: 1.0 |")
    path.write_text(path.read_text() + last)
    curve = loss_curves.read(path)
    values = {*curve.columns["loss"].tolist(), *curve.columns.get("validation_loss", np.empty(0)).tolist()}
    assert bool(values & {3.41, 3.31}) is is_read
    assert any("is half-written: it was dropped" in note for note in curve.notes) is not is_read
    assert 3.0 not in values


@pytest.mark.parametrize("text", ["step {step} | {memory} | loss {loss}", "step {step} | {duration} | loss {loss}"])
def test_bytes_and_times_that_grow_make_no_other_form(text, tmp_path):
    path = tmp_path / "main.log"
    lines = [
        text.format(
            step=step,
            loss=loss,
            memory=f"{step / 2:.1f} MB" if step < 2000 else f"{step / 2000:.2f} GB",
            duration=f"{step / 100}s" if step < 2000 else f"{step // 2000}m {step % 60}s",
        )
        for step, loss in ROWS
    ]
    path.write_text("\n".join(lines) + "\n")
    assert points(loss_curves.read(path)) == ROWS


def test_means_since_an_epoch_began_are_never_offered(tmp_path):
    with pytest.raises(UserError, match="means since the epoch began") as refusal:
        loss_curves.read(log_of(tmp_path, "{step}/6000 [====>....] - ETA: 10s - loss: {loss}"))
    assert "a pattern matches" not in str(refusal.value)


def test_suggested_pattern_takes_each_number_whole(tmp_path):
    content = log_of(tmp_path, "iter: {k:.2f}K / 4.00K | lm_loss: {loss}").read_bytes()
    assert re.search(r"\(\?P<step>\[\\d\.,\]\+\[kKMBT\]\?\)", patterns.suggested(content))
