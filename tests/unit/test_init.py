"""`toposcale init`: the configuration of a folder is right for the workflow, and names what was found."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

import config_reading
from toposcale.__main__ import main

LOSSES = "step,loss\n" + "".join(f"{step},{3 - step / 1000}\n" for step in range(10, 200, 10))


def save(folder, *steps):
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        save_file({"w": np.eye(3, dtype=np.float32)}, folder / f"step-{step}.safetensors")


def written(capsys, *arguments, status=0):
    assert main(list(map(str, arguments))) == status
    out, err = capsys.readouterr()
    return err if status else out


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configuration():
    """What init wrote, which the workflow takes."""
    config = yaml.safe_load(Path("mine.yaml").read_text())
    assert config_reading.resolve(config)
    return config


def test_init_a_folder_with_its_losses(here, capsys):
    save(here / "my run", 10, 100)
    (here / "my run/losses.csv").write_text(LOSSES)
    (here / "my run/notes.txt").write_text("nothing here")
    told = written(capsys, "init", "my run")
    assert "my-run: 2 checkpoints, steps 10 to 100" in told
    assert told.splitlines()[-1] == "mine.yaml: look it over, then: toposcale run mine.yaml"
    models = configuration()["models"]
    assert "100" not in Path("mine.yaml").read_text()  # no warm-up is invented
    assert "# warmup_steps:       # 0 if there was no warm-up;" in Path("mine.yaml").read_text()
    assert models == {
        "my-run": {"kind": "folder", "path": "my run", "losses": "my run/losses.csv", "embeddings": False}
    }


def test_init_and_check_name_the_same_log_of_a_folder(here, capsys):
    save(here / "run", *range(10, 300, 10))
    (here / "run/train.log").write_text(
        "".join(f"iter {step}: loss {5 - step / 200:.4f}, time 745.63ms\n" for step in range(0, 300, 10))
    )
    (here / "run/config.json").write_text('{"vocab_size": 50304}')
    assert "note: the log of the folder is run/train.log" in written(capsys, "check", "run")
    written(capsys, "init", "run")
    assert configuration()["models"]["run"]["losses"] == "run/train.log"
    (here / "run/other.csv").write_text(LOSSES)
    assert (
        written(capsys, "check", "run", status=1) == "toposcale: run: 2 logs, other.csv, train.log; name one of them\n"
    )


def test_init_takes_no_log_of_another_run(here, capsys):
    """The folder around a run may hold anybody's logs; that around its checkpoints is the run's own."""
    save(here / "run", 10, 20)
    save(here / "run/checkpoints", 10, 20)
    (here / "another.csv").write_text(LOSSES)
    written(capsys, "init", "run")
    assert "# losses: losses.csv" in Path("mine.yaml").read_text()
    assert "no trainer_state.json there" in written(capsys, "check", "run", status=1)
    (here / "run/train.csv").write_text(LOSSES)
    written(capsys, "init", "run/checkpoints", "--output", "part.yaml")
    assert "losses: run/train.csv" in Path("part.yaml").read_text()


def test_init_losses_inside_the_checkpoints_need_no_file(here, capsys):
    torch = pytest.importorskip("torch")
    (here / "mine").mkdir()
    for step in (10, 20):
        torch.save({"model": {"w": torch.eye(3)}, "val_loss": 1 / step}, here / f"mine/step-{step}.pt")
    (here / "other.csv").write_text(LOSSES)
    written(capsys, "init", "mine")
    assert "losses" not in Path("mine.yaml").read_text()
    (here / "mine/train.csv").write_text(LOSSES)  # a log in their folder has more rows than there are checkpoints
    written(capsys, "init", "mine", "--output", "log.yaml")
    assert "losses: mine/train.csv" in Path("log.yaml").read_text()


def test_init_folders_of_several_runs_are_an_entry_each(here, capsys):
    save(here / "runs/a", 10, 20)
    save(here / "runs/b", 10, 20, 30)
    written(capsys, "init", "runs")
    models = configuration()["models"]
    assert {name: entry["path"] for name, entry in models.items()} == {"a": "runs/a", "b": "runs/b"}
    assert "losses" not in models["a"]
    assert "# losses: losses.csv" in Path("mine.yaml").read_text()


def test_init_trainings_side_by_side_are_an_entry_each(here, capsys):
    for step in (0, 10):
        for name in ("netG", "netD"):
            (here / "gan").mkdir(exist_ok=True)
            save_file({"w": np.eye(3, dtype=np.float32)}, here / f"gan/{name}_epoch_{step}.safetensors")
    assert "netG_epoch: 2 checkpoints" in written(capsys, "init", "gan")
    models = configuration()["models"]
    assert {name: entry["pattern"] for name, entry in models.items()} == {
        "netD_epoch": "netD_epoch_{step}.safetensors",
        "netG_epoch": "netG_epoch_{step}.safetensors",
    }


def test_init_logs_of_lightning_searched_to_their_checkpoints(here, capsys):
    for version in (0, 1):
        save(here / f"lightning_logs/version_{version}/checkpoints", 50, 100)
        (here / f"lightning_logs/version_{version}/metrics.csv").write_text(LOSSES)
    written(capsys, "init", "lightning_logs")
    models = configuration()["models"]
    assert list(models) == ["version_0", "version_1"]
    assert models["version_1"]["losses"] == "lightning_logs/version_1/metrics.csv"


def test_init_what_cannot_be_measured_is_said_at_once(here, capsys):
    save(here / "run", 10, 20, 30)
    (here / "run/step-20.safetensors").write_bytes(b"cut")
    told = written(capsys, "init", "run")
    assert "run: 2 checkpoints, steps 10 to 30\n  left out: run/step-20.safetensors: " in told
    for step in (10, 30):
        (here / f"run/step-{step}.safetensors").write_bytes(b"cut")
    Path("mine.yaml").unlink()
    assert "no checkpoint can be used" in written(capsys, "init", "run", status=1)
    assert not Path("mine.yaml").exists()


def test_init_the_folder_of_a_trainer_needs_nothing_more(here, capsys):
    for step in (100, 200):
        folder = here / f"out/checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file({"w": np.eye(3, dtype=np.float32)}, folder / "model.safetensors")
        history = [{"step": at, "loss": 3.0} for at in range(10, step + 1, 10)]
        state = {"global_step": step, "max_steps": 1000, "log_history": history}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    written(capsys, "init", "out")
    assert configuration()["models"] == {"out": {"kind": "folder", "path": "out", "embeddings": False}}
    assert "warmup" not in Path("mine.yaml").read_text()
    (here / "out/checkpoint-200/trainer_state.json").write_text("{")
    told = written(capsys, "init", "out", "--output", "other.yaml")
    assert "steps 100 to 200\n  left out: out/checkpoint-200/trainer_state.json: not the state of a Trainer (" in told


def test_init_what_cannot_be_done_is_one_line(here, capsys):
    (here / "empty").mkdir()
    assert "the folder is empty" in written(capsys, "init", "empty", status=1)
    assert "no such folder" in written(capsys, "init", "missing", status=1)
    save(here / "run", 10, 20)
    written(capsys, "init", "run")
    assert written(capsys, "init", "run", status=1) == (
        "toposcale: mine.yaml: it is there already; name another file with --output\n"
    )
    assert "no such folder" in written(capsys, "init", "missing", status=1)
