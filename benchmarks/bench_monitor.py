"""What the live monitor costs the training of a GPT-2 small (124 million weights): a snapshot every 100 steps.

Training without the monitor and training beside a snapshot that is in work are timed in turn, with as many threads as
there are processors: the background process has none to itself, as it would beside a GPU.
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
TOKENS = 256
ROUNDS = 3
STEPS_APART = 4


def training_step(model: GPT2LMHeadModel) -> Callable[[], None]:
    """A function that takes one step of AdamW on random tokens."""
    optimiser = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(model.config.vocab_size, (1, TOKENS))

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def seconds(function: Callable[[], None], times: int) -> float:
    """Wall seconds of so many calls."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return time.perf_counter() - start


def measure(max_rows: int | None) -> tuple[float, float, float]:
    """Seconds of a training step alone, of the copy, and that all steps beside one snapshot take longer for it."""
    model = GPT2LMHeadModel(GPT2Config())
    step = training_step(model)
    alone, copies, longer = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        monitor = TopologyMonitor(folder, "gpt2", every=1, max_rows=max_rows, tensorboard=False)
        for round_ in range(ROUNDS + 1):
            each = seconds(step, STEPS_APART) / STEPS_APART
            copied = monitor.cost.seconds
            monitor.snapshot(model)
            copied = monitor.cost.seconds - copied
            beside, n_beside = 0.0, 0
            while monitor.cost.snapshots <= round_:
                beside += seconds(step, 1)
                n_beside += 1
                monitor._hear()
            each = (each + seconds(step, STEPS_APART) / STEPS_APART) / 2
            if round_:  # the first starts the process and allocates its memory
                alone.append(each)
                copies.append(copied)
                longer.append(beside - n_beside * each)
            monitor.last_step += 1
        monitor.close()
    return statistics.median(alone), statistics.median(copies), statistics.median(longer)


def rows() -> Iterator[Row]:
    """Wall seconds of 100 steps with one snapshot against 100 steps without, whole matrices and 256 rows of each."""
    torch.set_num_threads(os.cpu_count() or 1)
    for max_rows, name in ((None, "whole matrices"), (256, "256 rows of each")):
        alone, copy, longer = measure(max_rows)
        plain = EVERY * alone
        yield Row(f"GPT-2 small, {EVERY} steps + snapshot, {name}", plain + copy + longer, plain, LIMIT)
        yield Row(f"  of that the copy, {name}", copy, plain, LIMIT - 1, absolute=False)
