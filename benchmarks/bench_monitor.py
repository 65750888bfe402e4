"""What the live monitor costs the training of a GPT-2 small (124 million weights): a snapshot every 100 steps.

As many steps as the work on a snapshot lasts are timed alone and beside it, in turn: what they take longer is what it costs
the 100 steps between two snapshots. The training has all processors and the background process what they leave.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.timing import Row
from toposcale.monitor import TopologyMonitor

EVERY = 100
LIMIT = 1.05
TOKENS = 64
ROUNDS = 2
STEPS_APART = 10


def training_step(model: GPT2LMHeadModel) -> Callable[[], None]:
    """A function that takes one step of AdamW on random tokens."""
    optimiser = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(model.config.vocab_size, (1, TOKENS))

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def seconds(function: Callable[[], None], times: int = 1) -> float:
    """Wall seconds of so many calls."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return time.perf_counter() - start


def measure(model: GPT2LMHeadModel, step: Callable[[], None], max_rows: int | None) -> tuple[float, float, float]:
    """Seconds of a step alone, those that a snapshot adds while it is in work, and those of taking it."""
    alone, beside, taken = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        monitor = TopologyMonitor(folder, "gpt2", max_rows=max_rows, tensorboard=False)
        for _ in range(ROUNDS + 1):
            alone.append(seconds(step, STEPS_APART))
            taken.append(seconds(lambda: monitor.snapshot(model)))
            beside.append(seconds(step, STEPS_APART))
            monitor._hear(timeout=None)
        monitor.close()
    # The first round starts the process and allocates its memory.
    plain = statistics.median(alone[1:])
    return plain / STEPS_APART, statistics.median(beside[1:]) - plain, statistics.median(taken[1:])


def rows() -> Iterator[Row]:
    """100 steps of which one takes a snapshot and some run beside its work, against 100 steps without a monitor."""
    torch.set_num_threads(os.cpu_count() or 1)
    model = GPT2LMHeadModel(GPT2Config())
    step = training_step(model)
    step()
    for max_rows, name in ((256, "256 rows a matrix"), (None, "whole matrices")):
        alone, added, taken = measure(model, step, max_rows)
        plain = EVERY * alone
        yield Row(f"{EVERY} steps of GPT-2 small monitored, {name}", plain + added + taken, LIMIT, plain)
        yield Row(f"one snapshot of them, {name}", taken, LIMIT - 1, plain)
