"""Logs made at random, with the truth at hand: what is read is right, or something is said, or the file is refused."""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from toposcale.forecasting.logs import loss_curves
from toposcale.io.errors import UserError

SEEDS = [*range(60), 398, 459]


@dataclass
class Truth:
    """A run: its losses and validation losses by step after all restarts, and its last step, 0 where none is stated."""

    losses: dict[int, float] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)
    total: int = 0


class Row(NamedTuple):
    """A row of a log: train, validation or header, and the total of its run."""

    kind: str
    step: int
    loss: float
    total: int = 0


def made(random):
    """Rows in the order of the file of one to three runs with restarts and evaluations, and the truth of each run."""
    rows, runs = [], []
    with_headers, with_totals = random.random() < 0.5, random.random() < 0.5
    for number in range(random.choice([1, 1, 2, 3])):
        interval, n = int(random.choice([1, 10, 50, 100])), int(random.integers(12, 80))
        first = int(random.choice([0, interval]))
        level, every = random.uniform(2.5, 4), int(random.integers(3, 9))
        truth = Truth(total=int(first + interval * n * random.uniform(1.2, 3)) if with_totals else 0)
        rows += [Row("header", number, 0.0)] if with_headers and number else []
        at, back = 0, int(random.integers(n // 2, n - 2)) if random.random() < 0.4 else 0
        while at < n:
            step = first + interval * at
            loss = round(float(level + 5 / (1 + at / 4) + random.normal(0, 0.01)), 4)
            rows.append(Row("train", step, loss, truth.total))
            truth.losses[step] = loss
            if at and at % every == 0:
                truth.validation[step] = round(loss + 0.1, 4)
                rows.append(Row("validation", step, truth.validation[step], truth.total))
            at += 1
            if at == back:  # a crash: some rows are logged again
                at, back = max(at - int(random.integers(1, 6)), 5), 0
                for known in (truth.losses, truth.validation):
                    for old in [step for step in known if step >= first + interval * at]:
                        del known[old]
        runs.append(truth)
    return rows, runs


TEXTS = {
    "nanoGPT": ("iter {step}: loss {loss}, time 1.00ms, mfu 3.00%", "step {step}: train loss {loss}, val loss {loss}"),
    "llm.c": ("s:{step} trl:{loss} lr:0.000600 norm:0.50", "s:{step} tel:{loss}"),
    "Megatron": (
        " iteration {step:>8}/ {total:>8} | learning rate: 6.000E-04 | lm loss: {loss} | loss scale: 1.0 |",
        " validation loss at iteration {step} | lm loss value: {loss} | lm loss PPL: 8.0 |",
    ),
    "unknown": ("[run] step={step}{of} loss={loss} lr=0.1", "[run] eval step={step}{of} loss={loss}"),
    "stepless": ("step {step} | loss {loss} | 3 ms", "val loss {loss}"),
}


def text_log(rows, program):
    forms = dict(zip(("train", "validation"), TEXTS[program], strict=True)) | {"header": "=== run {step}"}
    texts = (forms[row.kind].format(**row._asdict(), of=f"/{row.total}" if row.total else "") for row in rows)
    return "\n".join(texts) + "\n"


def table(rows):
    forms = {"header": "step,loss,val_loss", "train": "{step},{loss},", "validation": "{step},,{loss}"}
    texts = (forms[row.kind].format(**row._asdict()) for row in [Row("header", 0, 0.0), *rows])
    return "\n".join(texts) + "\n"


def json_lines(rows):
    lines = []
    for row in rows:
        total = {"total_steps": row.total} if row.total else {}
        name = "loss" if row.kind == "train" else "eval_loss"
        lines += [json.dumps({"step": row.step, name: row.loss, **total})] if row.kind != "header" else []
    return "\n".join(lines) + "\n"


FORMS = {f"{name}.log": partial(text_log, program=name) for name in TEXTS} | {"a.csv": table, "a.jsonl": json_lines}


def points(curve, name):
    values = curve.columns.get(name, np.full(len(curve.columns["step"]), np.nan))
    known = ~np.isnan(values)
    return dict(zip(curve.columns["step"][known].tolist(), values[known].tolist(), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_read_asks_for_a_run_and_reads_that(form, tmp_path):
    for seed in SEEDS:
        rows, runs = made(np.random.default_rng(seed))
        path = tmp_path / form
        path.write_text(FORMS[form](rows))
        number = None
        if len(runs) > 1:
            with pytest.raises(UserError, match=f"{len(runs)} runs .*choose one with --run"):
                loss_curves.read(path)
            number = int(np.random.default_rng(seed).integers(len(runs))) + 1
        curve = loss_curves.read(path, run=number)
        truth = runs[(number or 1) - 1]
        assert points(curve, "loss") == truth.losses, seed
        if any(" no step: that of the row" in note for note in curve.notes):  # of the row before or after
            assert sorted(points(curve, "validation_loss").values()) == sorted(truth.validation.values()), seed
        else:
            assert points(curve, "validation_loss") == truth.validation, seed
        assert curve.facts.final_step in (None, truth.total), seed


DAMAGES = {
    "cut": lambda line, random: line[: int(random.integers(1, max(len(line), 2)))],
    "glued": lambda line, random: line + line,
    "noise": lambda line, random: line.replace(".", ",", 1),
    "nul": lambda line, random: line[:3] + "\0" + line[3:],
    "other": lambda line, random: line + ",1",
    "text": lambda line, random: "".join(random.permutation([*line])),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_row_never_gives_another_number_silently(form, damage, tmp_path):
    """One row in the middle: all others are read, and that one is left out, right, or a reason for low confidence."""
    for seed in SEEDS[:25]:
        random = np.random.default_rng(seed)
        rows = [Row("train", 10 * at, round(3 + 5 / (1 + at / 4), 4), 700) for at in range(50)]
        lines = FORMS[form](rows).splitlines()
        at = int(random.integers(10, 40))
        lines[at] = DAMAGES[damage](lines[at], random)
        path = tmp_path / form
        path.write_text("\n".join(lines) + "\n")
        try:
            curve = loss_curves.read(path)
        except UserError:
            continue
        truth, read = {row.step: row.loss for row in rows}, points(curve, "loss")
        wrong = {step: loss for step, loss in read.items() if truth.get(step) != loss}
        is_said = len(curve.notes) > (1 if form.endswith(".log") else 0) or curve.low_confidence_reasons
        assert not wrong or is_said, (seed, lines[at], wrong)
        assert len(truth) - len(read) <= 1 or is_said, (seed, lines[at])


@pytest.mark.parametrize("form", FORMS)
def test_interleaved_runs_are_refused(form, tmp_path):
    for seed in SEEDS[:15]:
        random = np.random.default_rng(seed)
        offset, shift = round(float(random.uniform(0.05, 1)), 3), int(random.choice([0, 5, 20]))
        rows = [
            Row("train", 10 * at + step, round(3 + 5 / (1 + at / 4) + loss, 4), 700)
            for at in range(40)
            for step, loss in ((shift, 0.0), (0, offset))
        ]
        path = tmp_path / form
        path.write_text(FORMS[form](rows))
        with pytest.raises(UserError, match=r"several losses|steps go back|2 runs|not understood"):
            loss_curves.read(path)
