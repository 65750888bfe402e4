"""Losses, steps and rates that a training loop saved in its checkpoints."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from toposcale.checkpoints import Checkpoint, inspect
from toposcale.checkpoints.saved_numbers import saved_numbers

torch = pytest.importorskip("torch")

STATE = {"model_state_dict": {"fc.weight": torch.ones(3, 2)}}
OPTIMISER = {"optimizer_state_dict": {"state": {}, "param_groups": [{"lr": 1e-3, "params": [0]}]}}
MONITORED = {"callbacks": {"ModelCheckpoint{}": {"monitor": "val_loss", "current_score": torch.tensor(0.5)}}}


@pytest.mark.parametrize(
    ("beside", "numbers"),
    [
        ({"epoch": 2, "step": 200, "loss": 1.5, "val_loss": 1.75}, (200, 2, 1.5, 1.75, None)),
        ({"train_losses": [3.0, 2.0, 1.0], "lr": 0.5}, (None, None, 1.0, None, 0.5)),
        ({"history": {"loss": [3.0, 1.0], "val_loss": [4.0, 2.0]}}, (None, None, 1.0, 2.0, None)),
        ({"history": [{"epoch": 0, "loss": 3.0}, {"epoch": 1, "loss": 2.0}]}, (None, 1, 2.0, None, None)),
        (OPTIMISER, (None, None, None, None, 1e-3)),
        ({"global_step": 40, "epoch": 1, **MONITORED}, (40, 1, None, 0.5, None)),
        ({"loss": torch.tensor(2.5), "note": "a text"}, (None, None, 2.5, None, None)),
        ({"loss": float("nan"), "val_loss": "unknown"}, (None, None, np.nan, None, None)),
        ({"best_loss": 1.0}, (None,) * 5),
    ],
)
def test_saved_numbers_numbers_beside_the_weights(tmp_path, beside, numbers):
    torch.save({**STATE, **beside}, tmp_path / "step1.pt")
    quantities = ("step", "epoch", "training_loss", "validation_loss", "learning_rate")
    expected = {name: number for name, number in zip(quantities, numbers, strict=True) if number is not None}
    assert saved_numbers(Checkpoint(tmp_path / "step1.pt").content) == pytest.approx(expected, nan_ok=True)
    assert inspect(tmp_path / "step1.pt").numbers == pytest.approx(expected, nan_ok=True)


def schedule_at(step):
    """The state of the schedule of transformers' Trainer: a warm-up of 40 steps, then a line."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    factor = partial(lambda now: min(now / 40, (100 - now) / 60))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(step):
        optimizer.step()
        schedule.step()
    return schedule.state_dict()


def numbers_in(path):
    return saved_numbers(Checkpoint(path).content)


def test_saved_numbers_rate_of_a_schedule_stands_in_its_state(tmp_path):
    expected = {"learning_rate": 0.25, "peak_learning_rate": 0.5}
    save_file({"fc.weight": np.ones((3, 2))}, tmp_path / "model.safetensors")
    torch.save(schedule_at(20), tmp_path / "scheduler.pt")
    assert numbers_in(tmp_path) == pytest.approx(expected)
    for name, state in (("scheduler_state_dict", schedule_at(20)), ("lr_schedulers", [schedule_at(20)])):
        torch.save({**STATE, name: state}, tmp_path / "step20.pt")
        assert numbers_in(tmp_path / "step20.pt") == pytest.approx(expected)


def test_load_without_torch_reads_a_schedule_and_runs_nothing(tmp_path):
    save_file({"fc.weight": np.ones((3, 2))}, tmp_path / "model.safetensors")
    torch.save(schedule_at(20), tmp_path / "scheduler.pt")
    code = f"from toposcale.checkpoints import Checkpoint; assert Checkpoint({str(tmp_path)!r}).content['scheduler.pt']"
    subprocess.run([sys.executable, "-c", f"{code}; import sys; assert 'torch' not in sys.modules"], check=True)

    class Harmful:
        def __reduce__(self):
            return Path.touch, (tmp_path / "touched",)

    torch.save({"_last_lr": [0.5], "hook": Harmful()}, tmp_path / "scheduler.pt")
    assert numbers_in(tmp_path) == {"learning_rate": 0.5}  # next to a stub
    for content in ({"_last_lr": [torch.ones(1)]}, [1], {"_last_lr": "none"}):
        torch.save(content, tmp_path / "scheduler.pt")
        assert numbers_in(tmp_path) == {}
    assert not (tmp_path / "touched").exists()
    assert Checkpoint(tmp_path).unread_schedules == []


def test_inspect_says_that_the_state_of_a_schedule_is_unreadable(tmp_path):
    save_file({"fc.weight": np.ones((3, 2))}, tmp_path / "model.safetensors")
    (tmp_path / "scheduler.pt").write_bytes(b"PK\x03\x04 cut")
    inspection = inspect(tmp_path)
    assert (inspection.unusable, inspection.numbers) == ("", {})
    [line] = inspection.unread
    assert line == f"{tmp_path}/scheduler.pt: not read (BadZipFile: File is not a zip file)"


def test_saved_numbers_weights_alone_and_folders_hold_no_numbers(tmp_path):
    torch.save(STATE["model_state_dict"], tmp_path / "step1.pt")
    assert saved_numbers(Checkpoint(tmp_path / "step1.pt").content) == {}
    torch.save(STATE, tmp_path / "pytorch_model.bin")
    assert saved_numbers(Checkpoint(tmp_path).content) == {}
