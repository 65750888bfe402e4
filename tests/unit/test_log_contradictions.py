"""What stands next to a loss checks it, and what is not read is named with the command that makes it readable."""

import bz2
import json
import lzma
import shutil
import subprocess

import numpy as np
import pytest

from toposcale.forecasting.logs import loss_curves
from toposcale.io.errors import UserError

STEPS = np.arange(10, 601, 10)
LM = np.round(3 + 7 / (1 + STEPS / 60), 4)
TOTAL = np.round(LM + 0.4, 4)
PERPLEXITY = np.round(np.exp(LM), 2)
TEXT = "step {:.0f} | loss {} | ppl {}"


def table(tmp_path, name="a.csv", **columns):
    path = tmp_path / name
    rows = list(zip(*columns.values(), strict=True))
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    else:
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def text(tmp_path, lines, name="a.log"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", ["lm", "nll"])
def test_perplexity_tells_which_column_to_name(name, tmp_path):
    path = table(tmp_path, step=STEPS, loss=TOTAL, **{name: LM}, ppl=PERPLEXITY)
    with pytest.raises(UserError, match=f"{name} agrees with it: --loss-column {name}"):
        loss_curves.read(path)
    curve = loss_curves.read(path, loss_column=name)
    assert curve.columns["loss"].tolist() == LM.tolist()
    assert curve.names["loss"] == name


@pytest.mark.parametrize("losses", [TOTAL, 0.7 * LM])
@pytest.mark.parametrize("form", ["csv", "log"])
def test_perplexity_that_contradicts_the_loss_is_a_question(losses, form, tmp_path):
    if form == "csv":
        path = table(tmp_path, step=STEPS, loss=losses, ppl=PERPLEXITY)
    else:
        path = text(tmp_path, map(TEXT.format, STEPS, losses, PERPLEXITY))
    with pytest.raises(UserError, match=r"contradicts loss [\d.]+ at .* \(exp gives [\d.]+\): which is in nats\?"):
        loss_curves.read(path)
    assert loss_curves.read(path, loss_column="loss").columns["loss"].tolist() == losses.tolist()


@pytest.mark.parametrize("perplexity", [PERPLEXITY, np.full(60, 68.0)])
def test_perplexity_that_agrees_or_never_changes_says_nothing(perplexity, tmp_path):
    curve = loss_curves.read(table(tmp_path, step=STEPS, loss=LM, ppl=perplexity))
    assert (curve.columns["loss"].tolist(), curve.notes) == (LM.tolist(), ())


def test_steps_that_rise_never_go_back(tmp_path):
    """Noise of single batches, with a printed sample before each jump of the loss."""
    random, lines = np.random.default_rng(0), []
    for step in range(1, 4001):
        if step % 500 == 1:
            lines += [f"sample {step}: once upon a {'time ' * (step % 7)}"]
        lines.append(f"Step {step}/4000 | Loss: {3 + 6 / (1 + step / 300) + random.normal(0, 1):.4f} | LR: 0.0003")
    curve = loss_curves.read(text(tmp_path, lines))
    assert len(curve.columns["step"]) == 4000
    assert not [note for note in curve.notes if "goes back" in note or "runs" in note]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("column", ["step", "global_step/max_steps"])
def test_step_of_total_is_step_and_last_step(column, name, tmp_path):
    curve = loss_curves.read(table(tmp_path, name, **{column: [f"{step}/3000" for step in STEPS]}, loss=LM))
    assert curve.columns["step"].tolist() == STEPS.tolist()
    assert curve.facts.final_step == 3000


def test_column_of_one_odd_row_is_not_the_step(tmp_path):
    rows = [{"iter": step, "loss": loss} for step, loss in zip(STEPS.tolist(), LM.tolist(), strict=True)]
    path = text(tmp_path, map(json.dumps, [*rows, {"global_step": 600, "train_time": 9.5}]), "a.jsonl")
    assert loss_curves.read(path).columns["step"].tolist() == STEPS.tolist()


@pytest.mark.parametrize("context", [("train", "val"), ('{"subset": "train"}', '{"subset": "val"}')])
def test_subsets_of_aim_are_splits(context, tmp_path):
    steps = [*STEPS, *STEPS[::6]]
    contexts = [context[0]] * 60 + [context[1].replace('"', "'")] * 10
    curve = loss_curves.read(
        table(tmp_path, "a.jsonl", step=map(int, steps), context=contexts, loss=[*LM, *TOTAL[::6]])
    )
    assert curve.columns["loss"].tolist() == LM.tolist()
    assert curve.metric_series()["validation_loss"][1].tolist() == TOTAL[::6].tolist()


LOG = "démarrage\n" + "".join(
    f"iter {step}: loss {loss}, time 1.00ms, mfu 3.00%\n" for step, loss in zip(STEPS, LM, strict=True)
)


@pytest.mark.parametrize(
    ("content", "name", "command"),
    [
        (lzma.compress(LOG.encode()), "a.log.xz", "xz -dk"),
        (bz2.compress(LOG.encode()), "a.log.bz2", "bzip2 -dk"),
        (LOG.encode("latin1"), "a.log", "iconv -f LATIN1"),
        (LOG.encode("utf-16-le"), "a.log", "iconv -f UTF-16LE"),
        (LOG.encode("utf-16-be"), "a.log", "iconv -f UTF-16BE"),
    ],
    ids=["xz", "bzip2", "latin1", "utf-16-le", "utf-16-be"],
)
def test_other_encodings_are_named_with_their_command(content, name, command, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=f": {command}") as refusal:
        loss_curves.read(path)
    if not shutil.which(command.split()[0]):
        pytest.skip(f"no {command.split()[0]} here")
    subprocess.run(["sh", "-c", str(refusal.value).rpartition(": ")[2]], cwd=tmp_path, check=True)
    (converted,) = {*tmp_path.iterdir()} - {path}
    assert loss_curves.read(converted).columns["loss"].tolist() == LM.tolist()


def test_zeros_before_a_log_that_was_cut_while_it_was_written_are_dropped(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\0" * 5000 + LOG.encode())
    assert loss_curves.read(path).columns["loss"].tolist() == LM.tolist()
