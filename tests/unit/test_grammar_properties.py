"""Random logs of each grammar with lines of other programs between them: what is written is what is read, or a question."""

import contextlib
import time

import numpy as np
import pytest

from toposcale.forecasting.logs import loss_curves
from toposcale.io.errors import UserError

LINES = {
    "nanoGPT": ("iter {step}: loss {loss}, time 1.00ms, mfu 3.00%", "step {step}: train loss {other}, val loss {val}"),
    "build-nanogpt": ("step {step} | loss: {loss} | lr 6e-04 | norm: 0.5 | dt: 1.1ms", "{step} val {val}"),
    "llm.c": ("s:{step} trl:{loss} lr:0.0006", "s:{step} tel:{val}"),
    "modded-nanogpt": ("step:{step}/9000 train_loss:{loss} time:1ms", "step:{step}/9000 val_loss:{val} time:1ms"),
    "Megatron-LM": (
        " iteration {step:>6}/ 9000 | learning rate: 6.0E-04 | lm loss: {loss} | loss scale: 1.0 |",
        " validation loss at iteration {step} | lm loss value: {val} | lm loss PPL: 8.0 |",
    ),
    "nanotron": ("x: iteration: {step} / 9000 | consumed_tokens: {unit} | lm_loss: {loss} | lr: 0.0003", ""),
    "DeepSpeed": ("steps: {step} loss: {loss} iter time (s): 0.5 samples/sec: 50.1", ""),
    "torchtitan": (
        "[rank0]:x - step: {step}  loss:  {loss}  tps: 5",
        "[rank0]:x - validate step: {step}  loss:  {val}",
    ),
    "torchtune": ("Step {step} | loss:{loss} lr:2e-05", ""),
    "NeMo": ("Epoch 0: {step}/9000 [01:00, reduced_train_loss={loss}, global_step={step}.0]", ""),
    "Composer": ("[batch={step}/9000]:\n\t Train loss/train/total: {other}\n\t Train loss/train/ce_loss: {loss}", ""),
    "OLMo": ("[step={step}/9000,epoch=0]\n    train/CrossEntropyLoss={loss}", ""),
    "LitGPT": ("Epoch 1 | iter {step} step {step} | loss train: {loss}, val: n/a | iter time: 5 ms", ""),
    "InternLM": ("x : tflops=6 step={step} loss={other} lr=3e-05 loss_from_metric={loss} loss/cn=nan", ""),
    "tinygrad": ("step {step}: {loss} train loss, {val} val loss", ""),
    "Estimator": (
        "INFO:loss = {loss}, step = {step} (59.2 sec)",
        "INFO:Saving dict for global step {step}: global_step = {step}, loss = {val}",
    ),
    "generic": ("[run] step={step} loss={loss} lr=0.1 tokens={unit}", "[run] eval step={step} loss={val}"),
}
OTHERS = [
    "Saving checkpoint to out/ckpt_{n}.pt",
    "GPU 3: {n}.5 GB of 80 GB used, {n} W",
    "2024-05-01 10:00:0{d} heartbeat {n}",
    "sample {n}: once upon a time there were {d} bears, at a loss",
    "epoch took {n}.{d} s, {d}% done",
    "WARNING: gradient overflow, scale {n}",
]


def log_of(program, random):
    """Text of a log, its losses and its validation losses by step."""
    training, evaluation = LINES[program]
    step, lines, losses, validation = 0, [], {}, {}
    for at in range(int(random.integers(15, 40))):
        step += int(random.choice([10, 10, 10, 20]))
        loss = round(float(3 + 6 / (1 + at / 5) + random.normal(0, 0.02)), 3)
        values = {"step": step, "loss": loss, "val": round(loss + 0.1, 3), "other": round(loss + 0.4, 3)}
        values |= {"unit": f"{step}M" if step < 200 else f"{step / 1000:.2f}B"}
        lines.append(training.format(**values))
        losses[step] = loss
        if "{val}" in training or (evaluation and at % 5 == 4):
            validation[step] = values["val"]
            lines += [evaluation.format(**values)] if evaluation else []
        if random.random() < 0.3:
            lines.append(str(random.choice(OTHERS)).format(n=int(random.integers(1000)), d=int(random.integers(10))))
    return "\n".join(lines) + "\n", losses, validation


def by_step(curve, name):
    values = curve.columns.get(name, np.full(len(curve.columns["step"]), np.nan))
    known = ~np.isnan(values)
    return dict(zip(curve.columns["step"][known].tolist(), values[known].tolist(), strict=True))


@pytest.mark.parametrize("program", LINES)
def test_grammar_reads_what_is_written_or_asks(program, tmp_path):
    n_refused = 0
    for seed in range(200):
        text, losses, validation = log_of(program, np.random.default_rng(seed))
        (tmp_path / "a.log").write_text(text)
        try:
            curve = loss_curves.read(tmp_path / "a.log")
        except UserError:
            n_refused += 1
            continue
        assert by_step(curve, "loss") == losses, seed
        assert by_step(curve, "validation_loss") == validation, seed
    assert n_refused <= 10


HOSTILE = {
    "line.log": lambda: "step 1 loss 3.2\n" + "x loss 1 " * 1_200_000,
    "line.json": lambda: '{"a": "' + "x" * 10_000_000 + '"',
    "line.csv": lambda: "step,loss" + ",x" * 5_000_000 + "\n",
    "nested.json": lambda: '{"a":' * 10_000 + "1" + "}" * 10_000,
    "columns.csv": lambda: "step,loss," + ",".join(f"c{at}" for at in range(100_000)) + "\n1,2\n",
    "columns.jsonl": lambda: '{"step": 1, ' + ", ".join(f'"c{at}": 1' for at in range(100_000)) + "}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_log_ends_in_one_line_and_soon(name, tmp_path):
    path = tmp_path / name
    path.write_text(HOSTILE[name]())
    start = time.process_time()
    with contextlib.suppress(UserError):
        loss_curves.read(path)
    assert time.process_time() - start < 2
