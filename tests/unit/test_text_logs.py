"""Lines of training programs, and what is read of them."""

import re
import time

import numpy as np
import pytest

from toposcale.forecasting.logs import loss_curves, text_logs
from toposcale.io.errors import UserError

LOGS = {
    "nanoGPT": (
        "tokens per iteration will be: 491,520\nstep 0: train loss 9.9900, val loss 10.9750\n"
        "iter 0: loss 10.9550, time 410.10ms, mfu -100.00%\niter 50: loss 8.5837, time 410.10ms, mfu 40.00%\n"
    ),
    "build-nanogpt": (
        "validation loss: 10.9750\nstep     0 | loss: 10.955000 | lr 8.3916e-07 | norm: 15.3 | dt: 1.1ms | tok/sec: 5.1\n"
        "step    50 | loss: 8.583700 | lr 4.2797e-05 | norm: 2.3 | dt: 1.1ms | tok/sec: 5.1\n"
    ),
    "llm.c": (
        "val loss 10.975000\nstep    0/19560 | loss 10.955000 (+nanz)| norm 15.3 (+nanz)| lr 8.39e-07 | 3056.36 ms\n"
        "step   50/19560 | loss 8.583700 (-1.2z)| norm 2.3 (+0.1z)| lr 4.28e-05 | 3056.36 ms\n"
    ),
    "modded-nanogpt": (
        "step:0/1750 val_loss:10.9750 train_time:0ms step_avg:nanms\nstep:0/1750 train_loss:10.9550 train_time:1ms\n"
        "step:50/1750 train_loss:8.5837 train_time:200ms\n"
    ),
    "Megatron-LM": (
        " [2024-01-01 10:00:00] iteration        0/   19073 | elapsed time per iteration (ms): 210.5 | learning rate: "
        "8.392E-07 | lm loss: 1.0955E+01 | loss scale: 1.0 | grad norm: 15.3 | number of skipped iterations:   0 |\n"
        " validation loss at iteration 0 | lm loss value: 1.0975E+01 | lm loss PPL: 5.8E+04 |\n"
        " iteration       50/   19073 | learning rate: 4.280E-05 | lm loss: 8.583700E+00 | grad norm: 2.300 |\n"
    ),
    "DeepSpeed": (
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=50, skipped=0, lr=[0.0003], mom=[(0.9, 0.95)]\n"
        "steps: 0 loss: 10.9550 iter time (s): 0.512 samples/sec: 500.1\n"
        "steps: 50 loss: 8.5837 iter time (s): 0.512 samples/sec: 500.1\n"
    ),
    "torchtitan": (
        "[rank0]:2024-08-01 10:00 - root - INFO - \x1b[36mstep:  0  \x1b[32mloss:  10.955  \x1b[33mtps: 5\x1b[39m\n"
        "[rank0]:2024-08-01 10:00 - root - INFO - validate step:  0  loss:  10.975\n"
        "[rank0]:2024-08-01 10:00 - root - INFO - step: 50  loss:  8.5837  grad_norm:  1.5  tps: 1,234\n"
    ),
    "torchtune": "Step 0 | loss:10.955 lr:2e-05 tokens_per_second_per_gpu:512.2\nStep 50 | loss:8.5837 lr:2e-05\n",
    "fairseq": (
        "2020 | INFO | train_inner | epoch 001:  1 / 90 loss=10.955, ppl=57238, wps=1, num_updates=0, lr=1e-05, gnorm=1.2\n"
        "2020 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 10.975 | ppl 58394 | num_updates 0\n"
        '2020 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "8.5837", "ppl": "5343", "num_updates": "50"}\n'
    ),
    "transformers": (
        "{'loss': 10.955, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.0}\n  0%|   | 0/1000 [00:00<?, ?it/s]\n"
        "  0%|   | 0/9 [00:00<?, ?it/s]\r{'eval_loss': 10.975, 'eval_runtime': 1.0, 'epoch': 0.0}\n  0%|   | 0/1000 [0<?]\r"
        "  5%|5  | 50/1000 [00:10<01:00, 5it/s]\r      \r{'loss': 8.5837, 'learning_rate': 1e-05, 'epoch': 0.05}\n"
        "  5%|5  | 50/1000 [00:10<01:00, 5it/s]"
    ),
    "nanotron": (
        "07/15/2024 10:22 [INFO|DP=0|PP=0|ip-26-0]: iteration: 0 / 3000 | consumed_tokens: 999.1M | tokens_per_sec: 426K | "
        "lm_loss: 10.955 | lr: 0.0003 | grad_norm: 0.5\n07/15/2024 10:23 [INFO|DP=0|PP=0|ip-26-0]: iteration: 50 / 3000 | "
        "consumed_tokens: 1.03B | tokens_per_sec: 1.1M | lm_loss: 8.5837 | lr: 0.0003 | grad_norm: 0.5\n"
    ),
    "InternLM": (
        "INFO [train.py, line 413] - pid=1 : tflops=6.2 step=0 loss=11.2 tgs (tokens/gpu/second)=1.4 lr=3e-05 "
        "perplexity=57238.5 loss_from_metric=10.955 loss/cn=nan\nINFO [train.py, line 413] - pid=1 : tflops=6.2 "
        "step=50 loss=8.8 tgs (tokens/gpu/second)=1.4 lr=3e-05 perplexity=5343.8 loss_from_metric=8.5837 loss/cn=1\n"
    ),
    "tinygrad": "step 0: 10.955 train loss, 10.975 val loss\nstep 50: 8.5837 train loss, 10.975 val loss\n",
    "OLMo-core": "[step=0/739328,epoch=0]\n    optim/LR (group 0)=0.0003\n    train/CE loss=10.955\n"
    "[step=50/739328,epoch=0]\n    optim/LR (group 0)=0.0003\n    train/CE loss=8.5837\n",
    "MLflow": "1700000000000 10.955 0\n1700000020000 8.5837 50\n",
    "NeMo": (
        "Training epoch 0, iteration 0/19072 | lr: 1e-05 | global_batch_size: 512 | reduced_train_loss: 10.955\n"
        "Epoch 0: :   0%|          | 0/19073 [00:01<00:10, v_num=vb2d, reduced_train_loss=10.955, val_loss=10.975]\n"
        "Epoch 0: :   1%|▏         | 50/19073 [01:00<10:00, reduced_train_loss=8.5837, global_step=50.0, val_loss=10.975]\n"
    ),
    "Composer": (
        "[batch=0/19073]:\n\t Train time/batch: 0\n\t Train loss/train/total: 11.2\n\t Train loss/train/ce_loss: 10.955\n"
        "\t Train metrics/train/LanguageCrossEntropy: 10.955\n2024-01-01 INFO: [batch=50/19073]:\n"
        "\t Train loss/train/total: 8.9\n\t Train metrics/train/LanguageCrossEntropy: 8.5837\n"
    ),
    "LitGPT": (
        "Epoch 1 | iter 0 step 0 | loss train: 10.955, val: n/a | iter time: 51.2 ms\n"
        "Eval at step 0: loss 10.975\nEpoch 1 | iter 200 step 50 | loss train: 8.5837, val: n/a | iter time: 51.2 ms\n"
    ),
    "OLMo": (
        "[step=0/739328,epoch=0]\n    optim/grad_norm=1.2\n    train/CrossEntropyLoss=10.955\n"
        "[step=50/739328,epoch=0]\n    optim/grad_norm=1.2\n    train/CrossEntropyLoss=8.5837\n"
    ),
    "TensorFlow Estimator": (
        "INFO:tensorflow:loss = 10.955, step = 0 (59.2 sec)\n"
        "INFO:tensorflow:Saving dict for global step 0: global_step = 0, loss = 10.975\n"
        "INFO:tensorflow:loss = 8.5837, step = 50 (59.2 sec)\n"
    ),
    text_logs.ANY: (
        "worker-a | at step 0 train loss 10.955 | val n/a\nworker-a | validation at step 0 loss 10.975\n"
        "worker-a | at step 50 train loss 8.5837 | val n/a\n"
    ),
}


def read(tmp_path, text):
    path = tmp_path / "main.log"
    path.write_text(text)
    return loss_curves.read(path)


def points(curve, name="loss"):
    values = curve.columns.get(name, np.full(len(curve.columns["step"]), np.nan))
    known = ~np.isnan(values)
    return list(zip(curve.columns["step"][known].tolist(), values[known].tolist(), strict=True))


@pytest.mark.parametrize("program", LOGS)
def test_the_lines_of_a_program_are_read_and_named(program, tmp_path):
    path = tmp_path / ("train_loss" if program == "MLflow" else "main.log")
    path.write_text(LOGS[program])
    curve = loss_curves.read(path)
    assert any(note.endswith(f"lines are those of {program}") for note in curve.notes)
    assert points(curve) == [(0, 10.955), (50, 8.5837)]
    evaluations = points(curve, "validation_loss")
    assert evaluations[:1] == ([] if not re.search("10.975|1.0975", LOGS[program]) else [(0, 10.975)])
    final_steps = {"llm.c": 19560, "Megatron-LM": 19073, "modded-nanogpt": 1750, "transformers": 1000}
    final_steps |= {"NeMo": 19072, "Composer": 19073, "OLMo": 739328, "OLMo-core": 739328, "nanotron": 3000}
    assert curve.facts.final_step == final_steps.get(program)
    assert curve.low_confidence_reasons == ()


def test_the_unit_of_a_learning_rate_is_not_one(tmp_path):
    assert "learning_rate" not in read(tmp_path, "step 5 loss 3.2 lr(1e-3) 0.6\n").names


def test_learning_rates_and_norms_are_read(tmp_path):
    curve = read(tmp_path, LOGS["Megatron-LM"])
    assert points(curve, "learning_rate") == [(0, 8.392e-07), (50, 4.28e-05)]
    assert points(curve, "gradient_norm") == [(0, 15.3), (50, 2.3)]


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 5, loss tensor(3.2, device='cuda:0')", 3.2),
        ("step 5 | aux_loss 0.1 | loss scale 4096 | loss 3.2", 3.2),
        ("step 5 loss np.float64(3.2)", 3.2),
        ("step 5: loss 3.25(3.31)", 3.25),
        ("step 5: train_loss_step=3.2", 3.2),
        ("step 5: lm loss value: 3.20E+00 | mtp_1 loss: 3.4", 3.2),
        ("Step... (5 | Loss: 3.2, Learning Rate: 0.1)", 3.2),
        ("2024-05-01T10:00:00.123456789Z stdout F step 5 loss 3.2", 3.2),
        ("2024-01-01 10:00:05.123 | INFO | train:loop:42 - step=5 loss=3.2 lr=6.00e-04", 3.2),
        ("completed step: 5, seconds: 1.2, total_weights: 4194304, loss: 3.2", 3.2),
        ("loss at step 5: 3.2", 3.2),
        ("[12:00:31] step 5 loss 3.2", 3.2),
        ("Training loss (for one batch) at step 5: 3.2", 3.2),
        ("epoch: 1 step: 5, loss is 3.2", 3.2),
    ],
)
def test_what_is_a_loss(line, loss, tmp_path):
    assert points(read(tmp_path, line)) == [(5, loss)]


@pytest.mark.parametrize(
    "line", ["step 210ms loss 3.2", "step 5 value_loss 3.2", "step 5: loss 3,25", "loss of generality 5", "c4 loss 3.2"]
)
def test_what_is_no_loss_is_named(line, tmp_path):
    with pytest.raises(UserError, match=r"1 line with a loss was not understood, the first: line 1 \('"):
        read(tmp_path, line)


def test_a_loss_that_is_not_a_number_is_one(tmp_path):
    curve = read(tmp_path, "step 1200: loss 3.2\nstep 1300: loss nan\n")
    assert points(curve) == [(1200, 3.2), (1300, np.inf)]


@pytest.mark.parametrize(
    ("line", "final_step"),
    [
        ("( 50/1000) loss: 3.2", 1000),
        ("[2024-01-01 10:00:00] [50/1000] train loss 3.2", 1000),
        ("Epoch: [0][50/1000]\tTime 0.3 (0.3)\tLoss 3.2 (3.3)", None),
        ("Epoch [1/3] [50/1000] loss 3.2", None),
        ("| epoch   1 |    50/1000 batches | loss  3.20 | ppl 24.5", None),
    ],
)
def test_a_step_is_the_progress_in_brackets(line, final_step, tmp_path):
    """Its end is that of an epoch where there are epochs."""
    curve = read(tmp_path, line)
    assert (points(curve), curve.facts.final_step) == ([(50, 3.2)], final_step)


def test_steps_that_start_again_in_each_epoch_are_refused_where_no_batches_are_stated(tmp_path):
    lines = [f"epoch {epoch} step {step} loss {4 - epoch / 2}" for epoch in (1, 2) for step in (0, 500, 900)]
    with pytest.raises(UserError, match="the steps start again in each epoch"):
        read(tmp_path, "\n".join(lines) + "\n")


def test_norms_of_parameters_and_losses_of_balancing_are_others(tmp_path):
    line = "iteration {}/ 5000 | {}seq_load_balancing_loss: 1.0 | loss scale: 1.0 | grad norm: 0.5 | params norm: 100.1 |\n"
    skipped = "iteration {}/ 5000 | loss scale: 65536.0 | number of skipped iterations: 10 |\n"
    losses = "".join(line.format(step, f"lm loss: {5 - step / 100} | mtp_1 loss: 6.0 | ") for step in (100, 200))
    curve = read(tmp_path, "".join(map(skipped.format, range(10, 100, 10))) + losses)
    assert points(curve) == [(100, 4.0), (200, 3.0)]
    assert points(curve, "gradient_norm") == [(100, 0.5), (200, 0.5)]
    assert not [note for note in curve.notes if "left out" in note]


def test_two_losses_of_one_name_on_a_line_are_refused(tmp_path):
    with pytest.raises(UserError, match="2 lines with a loss were not understood, the first: line 1 "):
        read(tmp_path, "".join(f"step {step} | train: loss 5.{step} | val: loss 6.{step}\n" for step in (100, 200)))


def test_the_remedy_for_losses_of_epochs_is_said(tmp_path):
    with pytest.raises(UserError, match="9 lines have a loss and no step; give each its step, such as epoch x steps"):
        read(tmp_path, "".join(f"Epoch {epoch}: train loss {6 - epoch / 4}, val loss 6.5\n" for epoch in range(1, 10)))


STEPS = list(range(100, 6001, 100))
LOSSES = [round(3 + 8 / (1 + step / 200), 4) for step in STEPS]


def lines(text, *, every=0, evaluation=""):
    """Lines of a training, with an evaluation after each `every` steps."""
    for step, loss in zip(STEPS, LOSSES, strict=True):
        yield text.format(step=step, loss=loss, other=round(loss + 0.3, 4))
        if every and step % every == 0:
            yield evaluation.format(step=step, loss=round(loss + 0.05, 4))


@pytest.mark.parametrize(
    ("text", "evaluation", "reads"),
    [
        ("iter {step}: loss {loss}, time 4ms, mfu 3%", "step {step}: val loss {loss}", True),
        (
            " iteration {step:>8}/ 20000 | lm_loss: {loss} | loss scale: 3.0 |",
            " validation results at iteration {step} | lm_loss value: {loss} | lm_loss_ppl value: 6.8E+01 |",
            True,
        ),
        ("iter {step:>6} | loss {loss} | 5s", "  eval {step}: train {loss} | val {loss}", True),
        ("step {step}/6000 | loss {loss} (+0.1z)| norm 0.3 (+0.1z)| lr 6e-4 | 1 ms", "val loss {loss}", True),
        ("step {step} | loss {loss}", "val loss {loss}", True),
        ("test run 7: step {step} loss {loss}", "test run 7: step {step} val loss {loss}", True),
        ("dev-3 [train] step {step} loss {loss}", "dev-3 [valid] step {step} loss {loss}", True),
        ("step {step} loss {loss}", "Evaluation at step {step}: loss {loss}", True),
        ("s:{step} trl:{loss}", "s:{step} tel:{loss}\ns:{step} eval:0.3012", True),
        (
            "iteration {step}/ 9000 | lm loss: {loss} |",
            "validation loss at iteration {step} on validation set | lm loss value: {loss} | lm loss PPL: 4.5 |\n"
            "validation loss at iteration {step} on test set | lm loss value: 3.9 | lm loss PPL: 4.5 |",
            True,
        ),
        (
            "[step={step}/9000]\n train/CrossEntropyLoss={loss}",
            "[eval_step=1/8]\n eval/c4/CrossEntropyLoss={loss}",
            True,
        ),
        (
            "[batch={step}/9000]:\n Train loss/train/total: {loss}",
            "[Eval batch=5/5] Eval on data:\n Eval metrics/c4/LanguageCrossEntropy: {loss}",
            True,
        ),
        ("step {step} loss {loss}", "c4 step {step} loss {loss}", False),
        ("step {step} loss {loss}", "after step {step} the c4 loss is {loss}", False),
    ],
)
def test_evaluations_are_read_or_named(text, evaluation, reads, tmp_path):
    log = "\n".join(lines(text, every=1000, evaluation=evaluation)) + "\n"
    if not reads:
        with pytest.raises(UserError, match="6 lines with a loss were not understood, the first: line 11"):
            read(tmp_path, log)
        return
    curve = read(tmp_path, log)
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    values = points(curve, "validation_loss")
    assert [value for _, value in values] == [round(loss + 0.05, 4) for loss in LOSSES[9::10]]
    assert values[-1][0] == 6000


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        ("step {step} | Validation bpb: 1.2", "in bits"),
        ("step {step} eval: 0.31", "an evaluation that is not called a loss"),
        ("eval/c4/CrossEntropyLoss=3.9\neval/pile/CrossEntropyLoss=3.1", "evaluations on several texts"),
    ],
)
def test_evaluations_of_another_kind_are_left_out_and_said(evaluation, reason, tmp_path):
    log = "\n".join(lines("step {step}/9000 | train loss {loss}", every=1000, evaluation=evaluation)) + "\n"
    curve = read(tmp_path, log)
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert "validation_loss" not in curve.names
    assert any(f"lines were left out ({reason}" in note and "line 11" in note for note in curve.notes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("step {step} | loss {loss} bits | lr 5e-4", "in bits"),
        ("Train Epoch: 1 [{step}/512000 (1%)]\tLoss: {loss}", "they count samples"),
        ("Train Epoch: 0 [  {step}/512000 (1%)] Loss: {loss} (avg 4.0) Batch (t): 0.5", "they count samples"),
        ("samples {step} | loss {loss}", "they count samples"),
        ("[{step}:00:12] loss={loss}", "60 lines have a loss and no step"),
        ("tokens: {step} loss: {loss}", "they count tokens"),
        ("{step}/6000 [====>....] - ETA: 10s - loss: {loss}", "left out .means since the epoch began"),
        ("{step}/6000 - 10s 5ms/step - accuracy: 0.3 - loss: {loss}", "left out .means since the epoch began"),
        ("on:train {step}it/8.00kit rate:1.2it/s postfix:loss={loss}", "abbreviates its steps"),
    ],
)
def test_losses_and_counts_in_other_units_are_refused_by_name(line, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        read(tmp_path, "\n".join(lines(line)) + "\n")


def test_a_smoothed_loss_gives_way_to_the_raw_one(tmp_path):
    curve = read(tmp_path, "\n".join(lines("step {step}/6000 | loss {other} (raw {loss}) | lr 5e-4")) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert any("smoothed_loss, a total or a mean by its name, was left out" in note for note in curve.notes)
    assert not any("llm.c" in note for note in curve.notes)


def test_a_line_of_marks_alone_is_nothing(tmp_path):
    log = "\n".join(["####", *lines("[step {step}] loss {loss}")]) + "\n"
    assert points(read(tmp_path, log)) == list(zip(STEPS, LOSSES, strict=True))


def test_redrawn_lines_are_counted_as_lines(tmp_path):
    curve = read(tmp_path, "".join(lines("\rEpoch 0: 1%|# | {step}/6000 [01:00<02:00, 5it/s, train_loss={loss}]")))
    assert "60 lines" in curve.notes[0]


def test_few_lines_that_are_not_understood_make_the_answer_unsure(tmp_path):
    log = "\n".join([*lines("step {step} loss {loss}"), "c4 loss 3.9"]) + "\n"
    curve = read(tmp_path, log)
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert curve.low_confidence_reasons == ("1 line with a loss was not understood, the first: line 61",)


def test_line_cut_after_some_digits_of_its_loss_is_not_read(tmp_path):
    log = list(lines("step {step} | loss {loss} | lr 5e-4"))
    log[30] = log[30].partition(" | lr")[0][:-3]
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == [row for row in zip(STEPS, LOSSES, strict=True) if row[0] != STEPS[30]]
    assert curve.low_confidence_reasons == ("1 line with a loss was not understood, the first: line 31",)


def test_the_summary_of_a_trainer_is_left_out(tmp_path):
    log = [
        *lines("{{'loss': {loss}, 'step': {step}, 'epoch': 0.1}}"),
        "{'train_runtime': 9.0, 'train_loss': 4.1, 'epoch': 1.0}",
    ]
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert curve.low_confidence_reasons == ()


@pytest.mark.parametrize("host", ["host-b", "[rank1]"])
def test_lines_of_two_processes_are_refused_or_their_mean_is_read(host, tmp_path):
    first = host.replace("b", "a").replace("1", "0")
    log = [
        line
        for pair in zip(
            lines(first + " step {step} loss {loss}"), lines(host + " step {step} loss {other}"), strict=True
        )
        for line in pair
    ]
    if host == "host-b":
        with pytest.raises(UserError, match=r"60 lines .* not understood, .* next to line 1 \('host-a .* of one kind"):
            read(tmp_path, "\n".join(log) + "\n")
    else:
        curve = read(tmp_path, "\n".join(log) + "\n")
        assert curve.columns["loss"] == pytest.approx(np.array(LOSSES) + 0.15)
        assert "column rank: the mean of 2 (0, 1) is read at each step" in curve.notes


def test_the_losses_of_a_launcher_are_left_out_beside_those_of_its_training(tmp_path):
    """GPT-NeoX: DeepSpeed states the loss of the last step, and NeoX the mean since its last line."""
    text = (
        "steps: {step} loss: {other} iter time (s): 0.5 samples/sec: 500.0\n iteration {step}/ 9000 | lm_loss: {loss} |"
    )
    curve = read(tmp_path, "\n".join(lines(text)) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert any("60 lines were left out (losses of DeepSpeed" in note for note in curve.notes)
    assert curve.low_confidence_reasons == ()


def test_losses_of_a_launcher_behind_those_of_a_training_are_left_out(tmp_path):
    log = [
        *lines("step {step} loss {loss}"),
        *lines("steps: {step} loss: {other} iter time (s): 0.5 samples/sec: 500.0"),
    ]
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert any("60 lines were left out (losses of DeepSpeed" in note for note in curve.notes)


@pytest.mark.parametrize(
    ("line", "n_parameters"),
    [
        ("Model has 124,439,808 parameters", 124_439_808),
        ("INFO: loaded a model with 123.59M parameters.", 123_590_000),
        ("number of parameters: 123.59M", 123_590_000),
        ("Total params: 124439808", 124_439_808),
        ("Model has 4,194,304 trainable parameters", None),
        ("num decayed parameter tensors: 50, with 124,354,560 parameters", None),
        ("Model has 12 layers", None),
        ("teacher model has 1.3B parameters", None),
    ],
)
def test_parameters_that_a_line_states_are_logged(line, n_parameters, tmp_path):
    facts = read(tmp_path, "\n".join([line, *lines("step {step} loss {loss}")]) + "\n").facts
    assert facts.is_known("n_parameters") is (n_parameters is not None)
    assert n_parameters is None or facts.n_parameters == n_parameters


def test_a_best_loss_is_left_out(tmp_path):
    log = lines("step {step} loss {loss}", every=1000, evaluation="new best val loss: {loss}, saved")
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert points(curve, "validation_loss") == []
    assert "6 lines were left out" in curve.notes[1]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("step {step} | loss {other} | lm_loss {loss} | aux_loss 0.3", ""),
        ("step {step} avg loss: {other} loss: {loss}", ""),
        ("step {step} loss: {other} lm_loss: {loss}", "lm_loss"),
        ("step {step} loss: {other} train_loss: {loss}", "train_loss"),
    ],
)
def test_two_losses_on_a_line_follow_the_rule_of_tables(text, column, tmp_path):
    log = "\n".join(lines(text)) + "\n"
    if column:
        with pytest.raises(UserError, match="both hold the loss"):
            read(tmp_path, log)
        assert points(loss_curves.read(tmp_path / "main.log", loss_column=column)) == [*zip(STEPS, LOSSES, strict=True)]
    else:
        assert points(read(tmp_path, log)) == [*zip(STEPS, LOSSES, strict=True)]


@pytest.mark.parametrize("header", ["=== run {}", "Namespace(seed={}, lr=0.1)", ""])
def test_read_asks_for_one_of_several_runs(header, tmp_path):
    runs = [(8, 1600, 0.0), (12, 2400, 0.1), (6, 1200, 0.2)]
    log, whole = [], []
    for number, (n, last, offset) in enumerate(runs):
        log += [header.format(number)] if header else []
        whole = [(200 * at, round(7 / (1 + at / 5) + offset, 4)) for at in range(n)]
        log += [f"step {step:05}/{last} | loss: {loss}" for step, loss in whole]
    with pytest.raises(UserError, match=r"3 runs \(run 1: 8 rows, steps 0 to 1,400, losses 7 to .* --run \(run\)"):
        read(tmp_path, "\n".join(log) + "\n")
    curve = loss_curves.read(tmp_path / "main.log", run=3)
    assert points(curve) == whole
    assert curve.facts.final_step == 1200
    assert points(loss_curves.read(tmp_path / "main.log", run=1))[-1][0] == 1400


def test_a_stage_that_states_no_total_has_none(tmp_path):
    log = [f"step {step}/4000 | loss {5 - step / 1000}" for step in range(100, 4001, 100)]
    log += ["next stage", *(f"step {step} | loss {4.9 - step / 2000}" for step in range(100, 5001, 100))]
    (tmp_path / "main.log").write_text("\n".join(log) + "\n")
    curve = loss_curves.read(tmp_path / "main.log", run=2)
    assert curve.facts.final_step is None
    assert curve.columns["step"].max() == 5000


def test_runs_that_nothing_tells_apart_are_refused(tmp_path):
    log = [
        f"step {step} | loss {round(7 - step / 1000 + offset, 4)}"
        for offset in (0, 0.1)
        for step in range(0, 2000, 100)
    ]
    with pytest.raises(UserError, match=r"2 runs .* choose one with --run"):
        read(tmp_path, "\n".join(log) + "\n")


def test_lines_that_are_too_long_are_counted_and_not_parsed(tmp_path):
    log = "\n".join([*lines("step {step} loss {loss}"), "step 7000 loss 2.9 " + "x" * text_logs.MAX_LINE_BYTES]) + "\n"
    curve = read(tmp_path, log)
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert any("1 line was left out (more than 16,384 bytes), the first: line 61" in note for note in curve.notes)


@pytest.mark.parametrize("piece", ["train ", "%|", "%|| 1/2 ", "Num Epochs", "\r", "loss 1 ", "1,1"])
def test_a_pathological_text_takes_time_in_proportion_to_its_size(piece, tmp_path):
    """In one line, and in lines just below the longest one."""

    def seconds(size):
        texts = [piece * (size // len(piece)), *[piece * (16_000 // len(piece))] * (size // 16_000)]
        start = time.process_time()
        with pytest.raises(UserError):
            read(tmp_path, "\n".join(texts) + "\n")
        return time.process_time() - start

    seconds(10_000)
    assert seconds(1_600_000) < 12 * seconds(200_000) + 0.5


BAR = "{percent}%|# | {step}/8000 [10:00<20:00, 5it/s]"
ENTRY = "{{'loss': {loss}, 'learning_rate': 0.0005, 'epoch': {epoch:.2f}}}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"\r{BAR}\n{ENTRY}\n", "unknown"),  # two streams, the bar of the step before its losses
        (f"{ENTRY}\n{BAR}\n", "after"),
        (f"\r1%|# | {{late}}/8000 [10:00<20:00, 5it/s]\r{ENTRY}\n{BAR}", "after"),  # tqdm draws seldom, after each line
        (f"\r{BAR}\r{ENTRY}\n\r{BAR}", "after"),
    ],
)
def test_a_loss_has_the_step_of_the_bar_that_its_epoch_and_interval_fit(text, place, tmp_path):
    rows = zip(STEPS, LOSSES, strict=True)
    log = "".join(
        text.format(step=step, late=step - 3, percent=step // 80, loss=loss, epoch=step / 4000) for step, loss in rows
    )
    if place == "unknown":
        with pytest.raises(UserError, match="before it or after it is unknown"):
            read(tmp_path, log + "\n")
        return
    curve = read(tmp_path, log + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert "the step of a loss is that of the progress bar after it" in curve.notes


def test_losses_between_bars_that_nothing_tells_apart_are_refused(tmp_path):
    text = f"{BAR}\n{{{{'loss': {{loss}}, 'epoch': 0.0}}}}\n"
    log = "".join(text.format(step=step + 2000, percent=1, loss=loss) for step, loss in zip(STEPS, LOSSES, strict=True))
    with pytest.raises(UserError, match="before it or after it is unknown"):
        read(tmp_path, log)


def test_two_losses_of_some_steps_that_nothing_tells_apart_are_refused(tmp_path):
    log = (
        "\n".join(lines("step {step} loss {loss}", every=1000, evaluation="Evaluating...\nstep {step} loss {loss}"))
        + "\n"
    )
    with pytest.raises(
        UserError, match=r"6 steps have several losses, the first at line 10 and line 12; .* call it val_loss"
    ):
        read(tmp_path, log)


@pytest.mark.parametrize("counter", ["iter {iter}", "step {step}"])
def test_an_evaluation_has_the_step_that_its_line_states(counter, tmp_path):
    """LitGPT counts the batches of a step as iterations, and states only them next to its evaluations."""
    log = []
    for step, loss in zip(STEPS, LOSSES, strict=True):
        log += [f"Epoch 1 | iter {4 * step} step {step} | loss train: {loss}, val: n/a | iter time: 351.2 ms (step)"]
        if step % 1000 == 0:
            log += [f"{counter.format(iter=4 * step, step=step)}: val loss {loss + 0.05:.4f}, val time: 1234.56 ms"]
    curve = read(tmp_path, "\n".join([*log, "Final evaluation | val loss: 3.111 | val ppl: 22.4"]) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    values = points(curve, "validation_loss")
    assert [step for step, _ in values] == list(range(1000, 6001, 1000))
    assert values[0] == (1000, round(LOSSES[9] + 0.05, 4))


def trainer_lines(every, decimals, *, redraws):
    """Lines of transformers' Trainer, which print the progress bar of a step after its losses."""
    for step in range(every, 2001, every):
        bar = f"{step // 20}%|#  | {step}/2000 [00:10<01:00, 5.01it/s]"
        yield from (f"{{'loss': {9 - step / 400}, 'epoch': {round(step / 2000, decimals)}}}", bar)
        if step % 200 == 0:
            yield "100%|#  | 16/16 [00:00<00:00, 50.01it/s]"
            yield f"{{'eval_loss': {9.1 - step / 400:.4f}, 'eval_runtime': 1.0, 'epoch': {round(step / 2000, decimals)}}}"
            yield from [bar] if redraws else []


def test_an_evaluation_before_the_bar_of_its_step_is_at_that_step(tmp_path):
    curve = read(tmp_path, "\n".join(trainer_lines(50, 4, redraws=True)) + "\n")
    assert points(curve)[:2] == [(50, 8.875), (100, 8.75)]
    assert [step for step, _ in points(curve, "validation_loss")] == list(range(200, 2001, 200))


@pytest.mark.parametrize(("every", "decimals"), [(10, 2), (50, 4)])
def test_an_evaluation_between_two_bars_is_a_question(every, decimals, tmp_path):
    with pytest.raises(
        UserError, match=r"the step of an evaluation stands before it or after it is unknown; .*trainer_state.json"
    ):
        read(tmp_path, "\n".join(trainer_lines(every, decimals, redraws=False)) + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "{{'accuracy': 0.35,\n 'learning_rate': 0.0003,\n 'loss': {loss},\n 'step': {step}}}",
        '{{\r\n  "loss": {loss},\r\n  "step": {step}\r\n}}',
    ],
)
def test_a_dictionary_over_several_lines_is_one_row(text, tmp_path):
    """Its loss may stand before its step, as the standard library sorts them."""
    curve = read(tmp_path, "\n".join(["training begins", *lines(text), "c4 loss 3.9"]) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    last = 2 + text.count("\n") * len(STEPS) + len(STEPS)
    assert curve.low_confidence_reasons == (f"1 line with a loss was not understood, the first: line {last}",)


def test_numbers_in_front_of_lines_are_ranks_where_the_lines_have_steps(tmp_path):
    both = zip(lines("0: step {step} loss {loss}"), lines("1: step {step} loss {other}"), strict=True)
    curve = read(tmp_path, "\n".join(line for pair in both for line in pair) + "\n")
    assert curve.columns["loss"] == pytest.approx(np.array(LOSSES) + 0.15)


@pytest.mark.parametrize("start", ["0: |1: ", "0: |0: ", "41:|42:"])
def test_numbers_in_front_of_lines_that_do_not_rise_with_the_epochs_are_no_steps(start, tmp_path):
    """Those of ranks, and those of the lines that grep prints."""
    one, other = start.split("|")
    logged = [f"{{'loss': {loss}, 'epoch': {step / 6000:.4f}}}" for step, loss in zip(STEPS, LOSSES, strict=True)]
    with pytest.raises(UserError, match="120 lines have a loss and no step"):
        read(tmp_path, "\n".join(f"{one}{line}\n{other}{line}" for line in logged) + "\n")


def test_the_time_of_an_evaluation_is_no_loss(tmp_path):
    """Megatron-LM prints it before the validation loss."""
    evaluation = (
        "(min, max) time across ranks (ms):\n    evaluate ......................: (1234.10, 1235.20)\n"
        " validation loss at iteration {step} on validation set | lm loss value: {loss} | lm loss PPL: 4.5E+01 |"
    )
    log = lines(" iteration {step}/ 6000 | learning rate: 3E-04 | lm loss: {loss} |", every=1000, evaluation=evaluation)
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert [step for step, _ in points(curve, "validation_loss")] == list(range(1000, 6001, 1000))


@pytest.mark.parametrize(
    "text",
    [
        "loss {loss}\nstep {step} takes 1.2 s",
        "step {step} takes 1.2 s\nloss {loss}",
        "[INFO] [Rank 0] step={step}, skipped=0, lr=[0.0003]\nloss {loss}",  # the first line of DeepSpeed
    ],
)
def test_a_step_on_another_line_that_no_program_prints_is_none(text, tmp_path):
    with pytest.raises(UserError, match="60 lines have a loss and no step"):
        read(tmp_path, "\n".join(lines(text)) + "\n")


def bars(text):
    """Lines of a progress bar, six minutes apart."""
    for at, (step, loss) in enumerate(zip(STEPS, LOSSES, strict=True), 1):
        yield text.format(step=step, loss=loss, time=f"{at // 10}:{6 * at % 60:02}:00")


@pytest.mark.parametrize(
    "text", ["{step}it [{time}, 6.02s/it, loss={loss}]", "\rdata: {step}it [{time},  1.6it/s, loss={loss}]"]
)
def test_a_bar_without_a_total_counts_steps_and_its_time_none(text, tmp_path):
    curve = read(tmp_path, "\n".join(bars(text)) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert curve.facts.final_step is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{step} tokens | loss {loss}", "they count tokens"),
        ("{step} s | loss {loss}", "60 lines have a loss and no step"),
        ("[{step}, 12000] loss: {loss}", "60 lines have a loss and no step"),  # epoch and batch
        ("loss: {loss}  [{step:>5}/60000]", "they count samples"),  # the quickstart of PyTorch
        ("{step} {loss} 12", "no line with a step and a loss"),
        ("{step}batches [{time}, 1.6batches/s, loss={loss}]", "60 lines have a loss and no step"),
    ],
)
def test_numbers_that_count_something_else_are_no_steps(text, said, tmp_path):
    with pytest.raises(UserError, match=said):
        read(tmp_path, "\n".join(bars(text)) + "\n")


@pytest.mark.parametrize(
    ("text", "final_step"),
    [
        ("iter {batch}/200 global_step {step} loss {loss}", None),  # the total is that of an epoch
        ("iter {step}/9000 global_step {step} loss {loss}", None),
        ("Epoch 0/9 ---- {step}/9000 0:01:00 loss: {loss}", None),  # the first of 10 in Lightning, else of 9
    ],
)
def test_steps_are_those_of_the_surest_counter_and_the_total_is_its_own(text, final_step, tmp_path):
    rows = zip(STEPS, LOSSES, strict=True)
    log = [text.format(step=step, batch=step % 200, loss=loss) for step, loss in rows]
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert curve.facts.final_step == final_step


def test_a_counter_that_the_bar_rounds_gives_way_to_that_of_the_bar(tmp_path):
    """Postfixes of tqdm have three digits where that is shorter: NeMo logs global_step=1.23e+5 for 123456."""
    bar = "Epoch 0: : {percent}%|# | {step}/900000 [01:00<10:00, reduced_train_loss={loss}, global_step={step:.2e}]"
    steps = [150_000 + 10 * step + 7 for step in STEPS]
    log = [bar.format(step=step, loss=loss, percent=step // 9000) for step, loss in zip(steps, LOSSES, strict=True)]
    assert points(read(tmp_path, "\n".join(log) + "\n")) == list(zip(steps, LOSSES, strict=True))


def test_bars_of_the_data_are_not_those_of_the_training(tmp_path):
    data = "".join(f"\rMap: {at}%|# | {1000 * at}/100000 [00:10<00:10, 2000.5 examples/s]" for at in range(101))
    rows = zip(STEPS, LOSSES, strict=True)
    text = f"\r{BAR}\r{ENTRY}\n\r{BAR}"
    log = "".join(text.format(step=step, percent=step // 80, loss=loss, epoch=step / 4000) for step, loss in rows)
    curve = read(tmp_path, data + "\n" + log)
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert curve.facts.final_step == 8000


@pytest.mark.parametrize("added", [" | val loss {value}", " | eval {value}", " | test_loss {value}"])
def test_a_line_of_the_training_that_adds_a_validation_loss_keeps_its_own(added, tmp_path):
    log = []
    for step, loss in zip(STEPS, LOSSES, strict=True):
        line = f"step {step} | loss {loss}"
        log.append(line + added.format(value=round(loss + 0.05, 4)) if step % 1000 == 0 else line)
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert [step for step, _ in points(curve, "validation_loss")] == list(range(1000, 6001, 1000))


def test_the_training_loss_of_an_evaluation_beside_that_of_its_step_is_a_separate_estimate(tmp_path):
    log = lines("step {step} | loss {loss}", every=1000, evaluation="step {step} | loss 3.5 | val loss {loss}")
    curve = read(tmp_path, "\n".join(log) + "\n")
    assert points(curve) == list(zip(STEPS, LOSSES, strict=True))
    assert len(points(curve, "validation_loss")) == 6


def test_two_losses_of_some_steps_in_lines_of_two_forms_are_refused(tmp_path):
    log = lines("step {step} loss {loss}", every=1000, evaluation="step {step} loss {loss} (val)")
    with pytest.raises(UserError, match="6 steps have several losses, the first at line 10 and line 11"):
        read(tmp_path, "\n".join(log) + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "step {step} train/val loss {loss} / {other}",
        "step {step} | train/val loss: {loss}, {other}",
        "step {step} loss (train/val): {loss} / {other}",
        "step {step} loss {other} -> {loss}",
        "step {step} loss [{loss}, {other}]",
        "step {step} loss: ({loss}, {other}, {other}), lr 0.1",
    ],
)
def test_two_losses_under_one_name_are_refused(text, tmp_path):
    with pytest.raises(UserError, match="60 lines with a loss were not understood, the first: line 1 "):
        read(tmp_path, "\n".join(lines(text)) + "\n")


def test_thousands_that_a_space_may_separate_are_refused(tmp_path):
    log = "".join(f"step {step:,} | loss 3.2\n".replace(",", " ") for step in range(1000, 61_000, 1000))
    with pytest.raises(UserError, match="60 lines with a loss were not understood, the first: line 1 "):
        read(tmp_path, log)


FAIRSEQ = (
    "2020 | INFO | train_inner | epoch 001: 1 / 90 loss={smoothed:.3f}, nll_loss={bits:.3f}{ppl}, num_updates={step}"
)


def of_fairseq(*, ppl, smoothing=0.0, base=2.0):
    text = FAIRSEQ if smoothing else FAIRSEQ.replace(" nll_loss={bits:.3f}", "").replace(",{ppl}", "{ppl}")
    rows = [(step, loss / np.log(base)) for step, loss in zip(STEPS, LOSSES, strict=True)]
    perplexities = [f", ppl={base**loss:.4f}" if ppl else "" for _, loss in rows]
    return "".join(
        text.format(step=step, smoothed=loss + smoothing, bits=loss, ppl=perplexity) + "\n"
        for (step, loss), perplexity in zip(rows, perplexities, strict=True)
    )


@pytest.mark.parametrize(
    ("log", "loss_column", "is_read"),
    [
        (of_fairseq(ppl=True), None, True),
        (of_fairseq(ppl=True), "loss", True),
        (of_fairseq(ppl=True, smoothing=0.3), "nll_loss", True),
        (of_fairseq(ppl=True, base=np.e), None, True),
        (of_fairseq(ppl=False, base=np.e), "loss", True),
        (of_fairseq(ppl=False), None, False),
    ],
)
def test_losses_of_fairseq_are_in_bits_also_where_the_user_names_one(log, loss_column, is_read, tmp_path):
    (tmp_path / "main.log").write_text(log)
    if is_read:
        curve = loss_curves.read(tmp_path / "main.log", loss_column=loss_column)
        assert curve.columns["loss"] == pytest.approx(LOSSES, abs=1e-3)
    else:
        with pytest.raises(UserError, match=r"fairseq logs losses in bits, and no perplexity .* --loss-column loss"):
            loss_curves.read(tmp_path / "main.log")
