"""Losses, steps and rates that a training loop saved in its checkpoints."""

import numpy as np
import pytest

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
def test_numbers_beside_the_weights(tmp_path, beside, numbers):
    torch.save({**STATE, **beside}, tmp_path / "step1.pt")
    quantities = ("step", "epoch", "training_loss", "validation_loss", "learning_rate")
    expected = {name: number for name, number in zip(quantities, numbers, strict=True) if number is not None}
    assert saved_numbers(Checkpoint(tmp_path / "step1.pt").content) == pytest.approx(expected, nan_ok=True)
    assert inspect(tmp_path / "step1.pt").numbers == pytest.approx(expected, nan_ok=True)


def test_weights_alone_and_folders_hold_no_numbers(tmp_path):
    torch.save(STATE["model_state_dict"], tmp_path / "step1.pt")
    assert saved_numbers(Checkpoint(tmp_path / "step1.pt").content) == {}
    torch.save(STATE, tmp_path / "pytorch_model.bin")
    assert saved_numbers(Checkpoint(tmp_path).content) == {}
