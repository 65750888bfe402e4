"""What `toposcale check` says of a file."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.io.errors import UserError


def test_a_file_is_described_without_advice(tmp_path, capsys):
    path = tmp_path / "losses.csv"
    path.write_text("Step,train/loss,val_loss,time\n50,8.5,,1\n100,7.5,7.6,2\n150,7,nan,3\n100,7.4,,4\n")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: CSV separated by commas, 2 steps (column Step) from 50 to 100",
        "  training loss   train/loss: 2 values, 8.5 at first, 7.4 at last, taken as nats per token",
        "  not read        time",
        "  unknown         parameters, tokens per step, last step",
        "  note: the log goes back to step 100, as after a restart: 2 rows before that were left out",
        "  no advice       it has fewer than 5 losses after the warm-up",
    ]


def test_what_a_state_tells_is_said(tmp_path, capsys):
    facts = {
        "log_history": [{"step": 10, "loss": 3.5}],
        "global_step": 10,
        "max_steps": 1200,
        "num_input_tokens_seen": 5120,
    }
    (tmp_path / "trainer_state.json").write_text(json.dumps(facts))
    assert main(["check", str(tmp_path)]) == 0
    assert (
        "  known           tokens per step 512 (from the log), last step 1,200 (from the log)\n"
        in capsys.readouterr().out
    )


def losses_file(path, losses, steps=None):
    steps = np.arange(50, 50 * len(losses) + 1, 50) if steps is None else steps
    pd.DataFrame({"step": steps, "loss": losses}).to_csv(path, index=False)
    return str(path)


FALLING = 2.4 + 8 * np.arange(50, 10_001, 50) ** -0.5


@pytest.mark.parametrize(
    "losses",
    [
        61 * FALLING / FALLING[-1],
        np.append(FALLING, np.linspace(3, 6, 30)),
        np.where(np.arange(200) % 3, FALLING, 2 * FALLING),
        np.where(np.arange(200) < 190, FALLING, np.nan),
    ],
    ids=["perplexity", "rising", "spikes", "broken"],
)
def test_what_advise_refuses_is_refused(tmp_path, capsys, losses):
    """In the same words, after the report on how it is read."""
    file = losses_file(tmp_path / "losses.csv", losses)
    plan = {"n_parameters": 25e6, "tokens_per_step": 5e5, "schedule": "constant", "steps": 50_000}
    reason = toposcale.advise(file, **plan)["no_advice_because"]
    assert main(["check", file]) == 1
    said = capsys.readouterr()
    assert said.err == f"toposcale: {file}: {reason}\n"
    assert "training loss   loss: " in said.out
    with pytest.raises(UserError, match=re.escape(reason)):
        list(toposcale.check_curve(file, "losses"))


def test_losses_of_0_and_less_are_refused_by_every_door(tmp_path, capsys):
    """They may be of a policy or a flow, but are not in nats per token."""
    file, sound = (
        losses_file(tmp_path / name, FALLING - shift) for name, shift in (("flow.csv", 10), ("sound.csv", 0))
    )
    plan = ["--n-parameters", "25e6", "--tokens-per-step", "5e5", "--steps", "50000"]
    for command in (["check", file], ["advise", file, *plan], ["curves", sound, file]):
        assert main(command) != 0
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.endswith(f"{file}: the loss is -7.52 in a row, but a loss in nats per token is above 0")
    with pytest.raises(UserError, match=r"the loss curve: the validation loss is -1\.5 in a row"):
        toposcale.advise({"step": [1, 2], "val_loss": [1.0, -1.5]}, n_parameters=25e6, tokens_per_step=5e5, steps=50)


@pytest.mark.parametrize(("scale", "is_questioned"), [(1, False), (1 / 400, True)])
def test_a_loss_far_too_low_for_text_is_questioned(tmp_path, capsys, scale, is_questioned):
    main(["check", losses_file(tmp_path / "losses.csv", FALLING * scale)])
    said = "can hardly be in nats per token: is it the loss of a language model?"
    assert (said in capsys.readouterr().out) == is_questioned


def test_too_early_a_curve_is_not_refused(tmp_path, capsys):
    assert main(["check", losses_file(tmp_path / "losses.csv", FALLING[:4])]) == 0
    assert capsys.readouterr().out.endswith("  no advice       it has fewer than 5 losses after the warm-up\n")


@pytest.mark.parametrize(
    ("rows", "alpha", "because"),
    [
        (200, 1, ""),
        (200, 0.5, "the autocorrelation of their differences is -0.2"),
        (80, 0.1, "the autocorrelation of their differences is"),
        (80, 0.01, "the autocorrelation of their differences is"),
        (30, 1, "30 rows are too few to tell"),
    ],
)
def test_check_curve_says_that_smoothing_is_unknown(tmp_path, capsys, rows, alpha, because):
    noisy = 1.0 + FALLING[:rows] + 0.05 * np.random.default_rng(1).normal(size=rows)
    file = losses_file(tmp_path / "losses.csv", pd.Series(noisy).ewm(alpha=alpha, adjust=False).mean())
    assert main(["check", file]) == 0
    clause = "not a moving average, which could not be checked: " + because
    assert (clause in capsys.readouterr().out) == bool(because)
    plan = {"n_parameters": 25e6, "tokens_per_step": 5e5, "schedule": "constant", "steps": 50_000}
    assert (clause in str(toposcale.advise(file, **plan))) == bool(because)


def test_facts_of_a_text_log_and_a_column_of_tokens_are_known(tmp_path, capsys):
    lines = ["tokens per iteration will be: 491,520", "number of parameters: 123.59M"]
    lines += [f"iter {step}: loss {9 - step / 100}, time 3ms, mfu 40%" for step in range(0, 100, 10)]
    (log := tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert main(["check", str(log)]) == 0
    known = "  known           parameters 123,590,000 (from the log), tokens per step 491,520 (from the log)\n"
    assert known + "  unknown         last step\n" in capsys.readouterr().out
    log.write_text("\n".join(["tokens per iteration will be: 32,768", *lines]) + "\n")  # of two runs
    assert main(["check", str(log)]) == 0
    assert "unknown         tokens per step, last step\n" in capsys.readouterr().out
    rows = [f"{step},{9 - step / 100},{(step + 1) * 491520}" for step in range(0, 100, 10)]
    (table := tmp_path / "losses.csv").write_text("\n".join(["step,loss,tokens", *rows]) + "\n")
    assert main(["check", str(table)]) == 0
    assert "  known           tokens per step 491,520 (from the log)\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "advise"])
def test_what_is_wrong_with_a_file_is_the_last_line(tmp_path, capsys, command):
    (tmp_path / "a.log").write_text("hello\n")
    assert main([command, str(tmp_path / "a.log")]) == 1
    assert "no line with a step and a loss; give a pattern of its lines" in capsys.readouterr().err.splitlines()[-1]


def test_the_keys_of_a_state_without_losses_are_named(tmp_path, capsys):
    entries = [{"step": 10, "train_loss": 3.5}, {"loss": 3.4}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 10, "log_history": entries}))
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith(
        "no entry of its log_history has a step and a loss (as numbers); its keys are step, train_loss, loss\n"
    )


def test_no_curve_is_nothing_to_check():
    with pytest.raises(UserError, match=r"^curve: None is not a loss curve to check$"):
        list(toposcale.check_curve(None, "run"))
