"""Lines of training programs, and what is read of them."""

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
        "  0%|          | 0/1000 [00:00<?, ?it/s]{'loss': 10.955, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.0}\n"
        "  0%|   | 0/9 [00:00<?, ?it/s]\r{'eval_loss': 10.975, 'eval_runtime': 1.0, 'epoch': 0.0}\n"
        "  5%|5  | 50/1000 [00:10<01:00, 5it/s]\r      \r{'loss': 8.5837, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
    ),
    "MLflow": "1700000000000 10.955 0\n1700000020000 8.5837 50\n",
    "NeMo": (
        "Training epoch 0, iteration 0/19072 | lr: 1e-05 | global_batch_size: 512 | reduced_train_loss: 10.955\n"
        "Epoch 0: :   0%|          | 0/19073 [00:01<00:10, v_num=vb2d, reduced_train_loss=10.955, val_loss=10.975]\n"
        "Epoch 0: :   1%|▏         | 50/19073 [01:00<10:00, reduced_train_loss=8.5837, global_step=50.0, val_loss=10.975]\n"
    ),
    "Composer": (
        "[batch=0/19073]:\n\t Train time/batch: 0\n\t Train loss/train/total: 10.955\n"
        "\t Train metrics/train/LanguageCrossEntropy: 10.955\n2024-01-01 INFO: [batch=50/19073]:\n"
        "\t Train trainer/device_train_microbatch_size: 8\n\t Train loss/train/total: 8.5837\n"
    ),
    text_logs.ANY: (
        "Epoch 1 | iter 4 step 0 | loss train: 10.955, val: n/a\nEval at step 0: loss 10.975\n"
        "[step=50/739328,epoch=0]\n    optim/grad_norm=1.2\n    train/CrossEntropyLoss=8.5837\n"
    ),
}


@pytest.mark.parametrize("program", LOGS)
def test_the_lines_of_a_program_are_read_and_named(program):
    log = text_logs.read(LOGS[program])
    loss = log.columns["loss"]
    assert log.pattern == program
    assert log.columns["step"][~np.isnan(loss)].tolist() == [0, 50]
    assert loss[~np.isnan(loss)].tolist() == [10.955, 8.5837]
    validation = log.columns.get("validation_loss", np.empty(0))
    assert validation[~np.isnan(validation)].tolist() == (
        [] if program in ("torchtune", "MLflow", "Composer") else [10.975]
    )
    final_steps = {"llm.c": 19560, "Megatron-LM": 19073, "modded-nanogpt": 1750, "transformers": 1000}
    final_steps |= {"NeMo": 19073, "Composer": 19073, text_logs.ANY: 739328}
    assert log.facts.get("total_steps") == final_steps.get(program)


def test_learning_rates_norms_and_perplexities_are_read():
    log = text_logs.read(LOGS["Megatron-LM"])
    assert log.columns["learning_rate"][[0, 2]].tolist() == [8.392e-07, 4.28e-05]
    assert log.columns["gradient_norm"][[0, 2]].tolist() == [15.3, 2.3]
    assert text_logs.read(LOGS["fairseq"]).columns["perplexity"].tolist() == [57238, 58394, 5343]


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 1,200: loss nan", [np.inf]),
        ("step 5, loss tensor(3.2, device='cuda:0')", [3.2]),
        ("step 5 | aux_loss 0.1 | loss scale 4096 | loss 3.2", [3.2]),
        ("step 210ms loss 3.2", []),
        ("step 5 loss np.float64(3.2)", [3.2]),
        ("step 5: loss 3.25(3.31)", [3.25]),
        ("step 5: loss 3,25", []),
        ("step 5: train_loss_step=3.2", [3.2]),
        ("loss of generality 5", []),
    ],
)
def test_what_is_a_loss(line, loss):
    assert text_logs.read(line).columns.get("loss", np.empty(0)).tolist() == loss


@pytest.mark.parametrize(
    "line",
    [
        "( 50/1000) loss: 3.2",
        "[2024-01-01 10:00:00] [50/1000] train loss 3.2",
        "Epoch: [0][50/1000]\tTime 0.3 (0.3)\tLoss 3.2 (3.3)",
        "Epoch [1/3] [50/1000] loss 3.2",
        "| epoch   1 |    50/1000 batches | loss  3.20 | ppl 24.5",
    ],
)
def test_a_step_is_the_progress_in_brackets(line):
    log = text_logs.read(line)
    assert (log.columns["step"].tolist(), log.columns["loss"].tolist(), log.facts) == (
        [50],
        [3.2],
        {"total_steps": 1000},
    )


def test_the_number_of_an_epoch_is_no_step():
    assert text_logs.read("Epoch [1/3] loss 3.2\n50: loss=3.2\n").columns["step"].tolist() == [50]


def test_steps_that_start_again_in_each_epoch_are_refused(tmp_path):
    lines = [f"Epoch [{epoch}/3] [{step}/1000] loss {4 - epoch / 2}" for epoch in (1, 2) for step in (0, 500, 900)]
    (tmp_path / "main.log").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="the steps start again in each epoch"):
        loss_curves.read(tmp_path / "main.log")


def test_steps_follow_from_epochs_where_the_log_tells_their_length():
    plan = "***** Running training *****\n  Num Epochs = 2\n  Total optimization steps = 2,000\n"
    log = text_logs.read(
        plan + "{'loss': 8.5, 'epoch': 0.05}\n{'loss': 7.5, 'epoch': 0.1}\n{'eval_loss': 7.6, 'epoch': 0.1}\n"
    )
    assert log.columns["step"].tolist() == [50, 100, 100]
    assert log.pattern == "transformers"


def test_lines_without_a_step_are_counted():
    log = text_logs.read("{'loss': 8.5, 'epoch': 0.01}\n{'loss': 7.5, 'epoch': 0.02}\n")
    assert (log.matched, log.without_step) == (0, 2)
