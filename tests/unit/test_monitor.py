"""The live monitor: the rows of the workflow, and a training that nothing in it can stop."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from paths import ROOT
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError
from toposcale.monitor import Alert, AlertKind, TopologyMonitor, hooks, locks, loop, writers
from toposcale.monitor.folder import KINDS, Folder

SETTINGS = weights.WeightSettings(max_points=12)


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 5, bias=False))


def monitor(folder, **options):
    options = {"every": 1, "settings": SETTINGS, "tensorboard": False, "when_busy": "wait", **options}
    return TopologyMonitor(folder, options.pop("name", "tiny"), **options)


def features(folder, step, name="tiny"):
    return tables.read(schemas.TABLES["features"], Folder(folder, name).file("features/weights", step)).to_pandas()


def whole(folder, step):
    rows = features(folder, step).query("layer == 'all'")
    return rows.set_index("feature")["value"]


def metrics(folder):
    files = Folder(folder, "tiny").files("metrics/monitor").values()
    rows = tables.gather(schemas.TABLES["metrics"], files).to_pylist()
    return {(row["step"], row["metric"]): row["value"] for row in rows}


@pytest.fixture
def unmeasured(monkeypatch):
    """Snapshots are taken, and no background process measures them: for tests of what the monitor says of a loss."""
    monkeypatch.setattr(TopologyMonitor, "_hand_over", lambda *_: None)


def test_parameters_that_are_not_trained_are_named_and_left_out(tmp_path, capfd):
    model = small_model()
    model[0].weight.requires_grad_(False)
    model[3].weight.requires_grad_(False)
    with monitor(tmp_path) as watching:
        watching.step(model, 1.0)
        watching.step(model, 1.0)
        model[3].weight.requires_grad_(True)  # unfrozen: counted from here on
        watching.step(model, 1.0)
    lines = [line for line in capfd.readouterr().err.splitlines() if "the same at every checkpoint" in line]
    assert [line.partition("every checkpoint: ")[2] for line in lines] == ["0.weight, 3.weight", "0.weight"]
    norms = [np.linalg.norm(model[index].weight.detach().numpy().astype(np.float64)) for index in (1, 3)]
    assert set(features(tmp_path, 2)["layer"]) == {"1.weight", "all"}
    assert whole(tmp_path, 2)["frobenius_norm"] == pytest.approx(norms[0], rel=1e-12)
    assert whole(tmp_path, 3)["frobenius_norm"] == pytest.approx(np.hypot(*norms), rel=1e-12)


def test_a_model_of_which_nothing_is_trained_is_measured_whole(tmp_path):
    model = small_model().requires_grad_(False)
    with monitor(tmp_path) as watching:
        watching.step(model, 1.0)
    assert set(features(tmp_path, 1)["layer"]) == {"0.weight", "1.weight", "3.weight", "all"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_rows_are_those_of_a_checkpoint_of_the_same_weights(tmp_path, dtype):
    model = small_model().to(dtype)
    with monitor(tmp_path) as watching:
        watching.step(model, 1.0)
        # The copy was taken: what happens to the weights from here on does not change it.
        save_file(
            {name: value.detach().clone() for name, value in model.state_dict().items()}, tmp_path / "w.safetensors"
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
    matrices = checkpoints.Checkpoint(tmp_path / "w.safetensors").matrices()
    by_layer, diagrams = weights.compute_features(matrices, SETTINGS)
    where = {"model": "tiny", "step": 1, "source": "weights"}
    folder = Folder(tmp_path, "tiny")
    assert tables.read(schemas.TABLES["features"], folder.file("features/weights", 1)) == tables.feature_rows(
        by_layer, **where
    )
    assert tables.read(schemas.TABLES["diagrams"], folder.file("diagrams/weights", 1)) == tables.diagram_rows(
        diagrams, **where
    )


def test_snapshots_losses_and_metrics_land_at_their_steps(tmp_path):
    model = small_model()
    with monitor(tmp_path, every=3, final_step=8, tokens_per_step=64) as watching:
        watching.snapshot(model)
        for step in range(1, 8):
            loss, norm, rate = torch.tensor(float(step)), torch.tensor(2.0), torch.tensor(0.25)
            watching.step(model, loss, learning_rate=rate, gradient_norm=norm)
            for value in (loss, norm, rate):
                value.zero_()  # a loop, or an optimizer with capturable=True, may use the tensor again
        watching.log(validation_loss=0.5)
    folder = Folder(tmp_path, "tiny")
    assert folder.steps() == [0, 3, 6]
    log = tables.gather(schemas.TABLES["training"], folder.files("training").values()).to_pylist()
    assert log == [{"step": step, "loss": step, "gradient_norm": 2.0, "learning_rate": 0.25} for step in range(1, 8)]
    assert metrics(tmp_path) == {(3, "training_loss"): 3, (6, "training_loss"): 6, (7, "validation_loss"): 0.5}
    n_parameters = sum(value.numel() for value in model.parameters())
    facts = {"n_parameters": n_parameters, "tokens_per_step": 64, "final_step": 8}
    assert folder.facts() == facts | {"schedule": None, "optimizer": None}


@pytest.mark.usefixtures("unmeasured")
def test_evaluations_between_snapshots_are_told(tmp_path, capfd):
    model = small_model()
    for evaluated_every, final_step in ((50, 300), (40, 80), (20, 40), (10, 40)):
        name = f"every-{evaluated_every}"
        with monitor(tmp_path, name=name, every=20, final_step=final_step) as watching:
            for step in range(1, final_step + 1):
                watching.step(model)
                if step % evaluated_every == 0:
                    watching.log(validation_loss=0.5)
    said = capfd.readouterr().err
    [first] = [line for line in said.splitlines() if "should divide" in line]
    assert "every-50: the validation loss of step 50" in first
    assert "every (20) should divide the 50 steps between evaluations" in first
    [last] = [line for line in said.splitlines() if "have a validation loss" in line]
    assert "every-50: 3 of 15 snapshots have a validation loss" in last


@pytest.mark.usefixtures("unmeasured")
def test_monitor_gives_a_late_evaluation_to_the_last_snapshot(tmp_path, capfd):
    model = small_model()
    with monitor(tmp_path, every=2, final_step=3) as watching:
        for _ in range(3):
            watching.step(model)
        watching.log(validation_loss=0.5)
        watching.snapshot(model)
    assert "validation loss" not in capfd.readouterr().err


def test_max_rows_takes_the_same_rows_at_every_step(tmp_path):
    model = small_model()
    with monitor(tmp_path, max_rows=8) as watching:
        watching.step(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 2
        watching.step(model)
    first, second = (features(tmp_path, step).set_index(["layer", "feature"])["value"] for step in (1, 2))
    for layer in ("0.weight", "1.weight", "3.weight"):
        assert second[layer, "h0_total"] == pytest.approx(2 * first[layer, "h0_total"])
    assert first["1.weight", "h0_count"] == 7
    assert first["3.weight", "h0_count"] == 4


class Compiled(nn.Module):
    """Names its weights as torch.compile does, which takes seconds to load."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model


def test_the_names_of_wrappers_are_left_out(tmp_path):
    model = small_model()
    with monitor(tmp_path) as watching:
        watching.step(nn.DataParallel(model))
        watching.step(Compiled(model))
    for step in (1, 2):
        assert set(features(tmp_path, step)["layer"]) == {"0.weight", "1.weight", "3.weight", "all"}


def test_monitor_drops_a_snapshot_due_too_early_and_says_so_once(tmp_path, capfd):
    model = small_model()
    with monitor(tmp_path, when_busy="drop") as watching:
        watching.step(model, 1.0)
        os.kill(watching._worker._process.pid, signal.SIGSTOP)
        while watching._worker.outcome() is not None:
            raise AssertionError("the first snapshot was finished before its worker was stopped")
        watching.step(model, 2.0)
        watching.step(model, 3.0)
        os.kill(watching._worker._process.pid, signal.SIGCONT)
    assert Folder(tmp_path, "tiny").steps() == [1]
    assert (watching.cost.snapshots, watching.cost.dropped) == (1, 2)
    said = capfd.readouterr().err
    assert said.count("the snapshot of step 2 is dropped") == 1
    assert "step 3" not in said
    assert "1 snapshots, 2 dropped" in said
    # What was measured of the dropped steps stays.
    assert metrics(tmp_path)[3, "training_loss"] == 3.0


@pytest.mark.parametrize("last_step", [2, 3])
def test_finish_measures_the_final_weights_after_one_in_work(tmp_path, last_step):
    model = small_model()
    watching = monitor(tmp_path, every=2, when_busy="drop")
    watching.snapshot(model)
    os.kill(watching._worker._process.pid, signal.SIGSTOP)  # in work until the training ends
    for _ in range(last_step):
        watching.step(model)
    os.kill(watching._worker._process.pid, signal.SIGCONT)
    watching.finish(model)
    assert Folder(tmp_path, "tiny").steps() == [0, last_step]


def test_monitor_goes_on_after_an_error_in_the_background(tmp_path, capfd):
    model = small_model()
    (tmp_path / "features").write_text("in the way")
    with monitor(tmp_path) as watching:
        watching.step(model)
        watching.step(model)
        (tmp_path / "features").unlink()
        watching.step(model)
    said = capfd.readouterr().err
    assert Folder(tmp_path, "tiny").steps() == [3] or Folder(tmp_path, "tiny").steps() == [2, 3]
    assert said.count("no features of step 1") == 1
    assert "Traceback" not in said
    assert "Traceback" in (tmp_path / "logs" / "tiny.log").read_text()


def test_a_killed_background_process_is_told_and_started_again(tmp_path, capfd):
    model = small_model()
    with monitor(tmp_path) as watching:
        watching.step(model)
        kill_worker(watching)
        watching.step(model)
        watching.step(model)
        watching._receive(timeout=300)
        kill_worker(watching)  # with no snapshot in work
        for _ in range(3):
            watching.step(model)
    assert Folder(tmp_path, "tiny").steps() == [2, 3, 5, 6]
    assert (watching.cost.snapshots, watching.cost.dropped) == (4, 2)
    *lost, cost = capfd.readouterr().err.splitlines()
    assert [line.partition("tiny: ")[2] for line in lost] == [
        f"the background process ended with status -9; there are no features of step {step}" for step in (1, 4)
    ]
    assert "4 snapshots, 2 dropped" in cost


def test_monitor_gives_up_a_process_that_is_killed_each_time(tmp_path, capfd):
    model = small_model()
    with monitor(tmp_path) as watching:
        for _ in range(2):
            watching.step(model)
            kill_worker(watching)
        for _ in range(3):
            watching.step(model)
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith("the background process ended with status -9; there are no features of step 1")
    assert second.endswith(
        "the background process ended with status -9 once more; nothing is monitored from here on, and the training goes on"
    )


def kill_worker(watching):
    os.kill(watching._worker._process.pid, signal.SIGKILL)
    watching._worker._process.wait()


@pytest.mark.parametrize("when_busy", ["drop", "wait"])
def test_monitor_waits_for_a_frozen_process_until_timeout(tmp_path, capfd, when_busy):
    model = small_model()
    watching = monitor(tmp_path, timeout=0.2, when_busy=when_busy)
    watching.step(model)
    frozen = watching._worker._process
    os.kill(frozen.pid, signal.SIGSTOP)
    if when_busy == "wait":
        watching.step(model)
        assert watching._worker._process is not frozen
        watching.timeout = 300
    watching.close()
    assert frozen.returncode == -signal.SIGKILL
    first, _cost = capfd.readouterr().err.splitlines()
    assert first.endswith("the background process took more than 0.2 s and was killed; there are no features of step 1")
    assert Folder(tmp_path, "tiny").holds_rows() == (when_busy == "wait")


def finished_program(program, stderr=subprocess.PIPE):
    """Run a program that uses the library, to its end."""
    return subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )


def run_training(program, stderr):
    """Run a training whose monitor has to write to a broken stderr; return what it says on stdout."""
    done = finished_program(program, stderr)
    return done.returncode, done.stdout


def a_closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("broken", [lambda: open("/dev/full", "w"), a_closed_pipe])  # noqa: SIM115
def test_a_stderr_that_takes_nothing_does_not_stop_the_training(tmp_path, broken):
    program = f"""
import torch
from toposcale.monitor import TopologyMonitor
model = torch.nn.Linear(8, 8)
given_up = TopologyMonitor({str(tmp_path)!r}, "given-up", tensorboard=False, every=1)
given_up.step(torch.nn.LayerNorm(3))  # nothing to monitor, which is a line
watching = TopologyMonitor({str(tmp_path)!r}, "tiny", tensorboard=False, every=1, when_busy="wait")
for _ in range(2):
    watching.step(model)
watching.close()
print("saved")
"""
    with broken() as stderr:
        assert run_training(program, stderr) == (0, "saved\n")
    assert Folder(tmp_path, "tiny").steps() == [1, 2]


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path, capfd):
    (tmp_path / "models").write_text("in the way")
    with monitor(tmp_path) as watching:
        watching.step(small_model(), 1.0)
    [line] = capfd.readouterr().err.splitlines()
    assert line.endswith("nothing is monitored from here on, and the training goes on")
    assert str(tmp_path / "models") in line


def test_monitor_keeps_its_folder_when_the_directory_changes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with monitor("rows") as watching:
        watching.step(small_model(), 1.0)
        monkeypatch.chdir(tmp_path / "elsewhere")
        watching.step(small_model(), 1.0)
    assert Folder(tmp_path / "rows", "tiny").steps() == [1, 2]
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["all", "module.all"])
def test_a_matrix_that_is_named_as_the_whole_model_is_refused(tmp_path, capfd, name):
    model = nn.Module()
    inner = model if name == "all" else model.add_module("module", nn.Module()) or model.module
    inner.register_parameter("all", nn.Parameter(torch.rand(5, 4)))
    with monitor(tmp_path) as watching:
        watching.step(model)
    first, _cost = capfd.readouterr().err.splitlines()
    assert "no features of step 1 (a matrix is named 'all', which stands for the whole model" in first
    assert not list(Folder(tmp_path, "tiny").files("features/weights"))


def test_monitored_weights_of_wrappers_are_kept_apart(tmp_path):
    model = small_model()
    model.add_module("module", small_model(1))
    model.add_module("_orig_mod", small_model(2))
    with monitor(tmp_path) as watching:
        watching.step(model)
    layers = set(features(tmp_path, 1)["layer"]) - {"all"}
    assert layers == {name for name, value in model.named_parameters() if value.ndim == 2}
    assert len(layers) == 9


def test_monitored_weights_scale_by_rows_that_are_left_out(tmp_path):
    model = small_model()
    with torch.no_grad():
        model[0].weight[3] *= 100
    matrices = {name: value.detach().numpy() for name, value in model.named_parameters() if value.ndim == 2}
    expected, _ = weights.compute_features(matrices.items(), SETTINGS)
    chosen = weights.WeightSettings(max_points=12, include=("1.*",))
    for name, options in (("some", {"settings": chosen}), ("rows", {"max_rows": 16})):
        with monitor(tmp_path, name=name, **options) as watching:
            watching.step(model)
        rows = features(tmp_path, 1, name).query("layer == '1.weight'").set_index("feature")["value"]
        assert rows["neural_persistence_p2"] == expected["1.weight"]["neural_persistence_p2"]


def test_worker_ends_with_a_training_that_is_killed(tmp_path):
    program = f"""
import os, sys, torch
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({str(tmp_path)!r}, tensorboard=False, every=1)
watching.step(torch.nn.Linear(50, 50))
unwanted = {{"transformers", "pandas", "matplotlib"}} & set(sys.modules)
assert not unwanted, unwanted
print(watching._worker._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = finished_program(program)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, give_up = int(done.stdout), time.monotonic() + 300
    while is_running(pid):
        assert time.monotonic() < give_up, "the background process outlives the training"
        time.sleep(0.02)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_nan_weights_are_told_and_are_nan_rows(tmp_path, capfd):
    model = small_model()
    with torch.no_grad():
        model[1].weight[0, 0] = float("nan")
    with monitor(tmp_path) as watching:
        watching.step(model)
        watching.step(model)
    assert capfd.readouterr().err.count("1.weight holds NaN or infinity") == 1
    assert np.isnan(whole(tmp_path, 2)["h0_total"])


def test_rows_of_two_trainings_are_not_mixed(tmp_path):
    model = small_model()
    with monitor(tmp_path) as watching:
        for _ in range(4):
            watching.step(model, 1.0)
    with pytest.raises(UserError, match=r"rows of tiny from an earlier training.*overwrite=True.*start=STEP"):
        monitor(tmp_path)
    with monitor(tmp_path, start=2) as watching:
        assert Folder(tmp_path, "tiny").steps() == [1, 2]
        watching.step(model, 7.0)
    assert metrics(tmp_path) == {(1, "training_loss"): 1, (2, "training_loss"): 1, (3, "training_loss"): 7}
    monitor(tmp_path, name="other").close()
    monitor(tmp_path, overwrite=True).close()
    with pytest.raises(UserError, match="no rows of a model named tiny"):
        Folder(tmp_path, "tiny").steps()


def test_a_log_file_that_reaches_past_the_start_is_cut(tmp_path):
    model = small_model()
    with monitor(tmp_path, every=10) as watching:
        for _ in range(5):
            watching.step(model, 1.0)
    monitor(tmp_path, start=3).close()
    log = tables.gather(schemas.TABLES["training"], Folder(tmp_path, "tiny").files("training").values())
    assert log["step"].to_pylist() == [1, 2, 3]


def test_log_replaces_the_row_of_a_step_logged_again(tmp_path):
    model = small_model()
    with monitor(tmp_path, every=2) as watching:
        for step in range(1, 6):
            watching.step(model, float(step))
            watching.log(validation_loss=step / 10)
    with monitor(tmp_path, every=2, start=4) as watching:
        watching.log(validation_loss=0.9)  # evaluated before it goes on
        watching.step(model, 50.0)
        watching.snapshot(model)
        watching.log_loss(55.0)
    log = tables.gather(schemas.TABLES["training"], Folder(tmp_path, "tiny").files("training").values())
    assert log.select(["step", "loss"]).to_pydict() == {"step": [1, 2, 3, 4, 5], "loss": [1, 2, 3, 4, 55]}
    rows = tables.gather(schemas.TABLES["metrics"], Folder(tmp_path, "tiny").files("metrics/monitor").values())
    evaluated = [(row["step"], row["value"]) for row in rows.to_pylist() if row["metric"] == "validation_loss"]
    assert evaluated == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.9)]


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        (nn.LayerNorm(4), SETTINGS, "there is no matrix to monitor"),
        (small_model(), weights.WeightSettings(include=("absent*",)), "there is no matrix to monitor"),
    ],
)
def test_nothing_to_monitor_is_a_line(tmp_path, capfd, model, settings, reason):
    with monitor(tmp_path, settings=settings) as watching:
        watching.step(model)
        watching.step(model)
    assert capfd.readouterr().err.count(reason) == 1


def test_only_the_first_process_of_a_training_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "is_first_process", lambda: False)
    with monitor(tmp_path) as watching:
        watching.step(small_model(), 1.0)
        watching.log(validation_loss=1.0)
        watching.tell(final_step=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [{"every": 0}, {"max_rows": 0}, {"when_busy": "queue"}, {"timeout": 0}])
def test_wrong_arguments(tmp_path, arguments):
    with pytest.raises(ValueError, match="must be"):
        monitor(tmp_path, **arguments)


def test_a_name_that_is_no_file_name(tmp_path):
    with pytest.raises(UserError, match="cannot name a model"):
        monitor(tmp_path, name="../up")
    with pytest.raises(UserError, match="3 cannot name a model"):
        monitor(tmp_path, name=3)


def test_the_cost_is_measured_and_printed(tmp_path, capfd):
    model = small_model()
    start = time.perf_counter()
    watching = monitor(tmp_path)
    for _ in range(3):
        watching.step(model, 1.0)
    elapsed = time.perf_counter() - start
    assert 0 < watching.cost.seconds <= watching.cost.wall <= elapsed
    watching.close()
    watching.close()
    assert watching.cost.share == watching.cost.seconds / watching.cost.wall <= 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("toposcale.monitor: tiny: 3 snapshots, 0 dropped; ")
    assert f"({watching.cost.share:.1%})" in line


def test_tensorboard_shows_the_features_of_the_whole_model(tmp_path):
    with monitor(tmp_path, tensorboard=True) as watching:
        watching.step(small_model())
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard" / "tiny")).Reload()
    [point] = events.Scalars("topology/h0_total")
    assert point.step == 1
    assert point.value == pytest.approx(whole(tmp_path, 1)["h0_total"])
    assert events.Scalars("topology/monitor_share_of_time")


@pytest.mark.parametrize(("again", "shown"), [({"overwrite": True}, [1]), ({"start": 2}, [1, 2, 3])])
def test_tensorboard_shows_no_step_that_was_removed(tmp_path, again, shown):
    with monitor(tmp_path, tensorboard=True) as watching:
        for _ in range(4):
            watching.step(small_model())
    time.sleep(1.1)  # TensorBoard reads the files in the order of the seconds in their names
    with monitor(tmp_path, tensorboard=True, **again) as watching:
        watching.step(small_model())
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard" / "tiny")).Reload()
    assert [point.step for point in events.Scalars("topology/h0_total")] == shown == Folder(tmp_path, "tiny").steps()


def test_without_tensorboard_one_line_says_so(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with monitor(tmp_path, tensorboard=True) as watching:
        watching.step(small_model())
    assert capfd.readouterr().err.count("tensorboard is not installed") == 1
    assert Folder(tmp_path, "tiny").steps() == [1]


def test_an_open_run_of_weights_and_biases_gets_the_values(tmp_path, monkeypatch):
    logged = []
    wandb = types.SimpleNamespace(
        run=object(), define_metric=lambda *_, **__: None, log=lambda row, commit: logged.append((row, commit))
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with monitor(tmp_path) as watching:
        watching.step(small_model())
    row, commit = logged[0]
    assert row["topology/step"] == 1
    assert row["topology/h0_total"] == whole(tmp_path, 1)["h0_total"]
    assert commit is False


def test_show_writes_to_open_runs_of_mlflow_and_trackio(tmp_path, monkeypatch):
    rows, opened = [], [None]
    mlflow = types.SimpleNamespace(
        active_run=lambda: opened[0], log_metrics=lambda row, step, synchronous: rows.append((row, step, synchronous))
    )
    trackio = types.SimpleNamespace(
        context_vars=types.SimpleNamespace(current_run=types.SimpleNamespace(get=lambda: opened[0])),
        log=lambda row, step: rows.append((row, step)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    writers.show(3, {"h0_total": 0.5}, None)
    assert rows == []
    opened[0] = object()
    writers.show(3, {"h0_total": 0.5}, None)
    assert rows == [({"topology/h0_total": 0.5}, 3, False), ({"topology/h0_total": 0.5}, 3)]


@pytest.mark.usefixtures("unmeasured")
def test_an_alert_is_a_line_and_a_call(tmp_path, capfd):
    told = []
    with monitor(tmp_path, every=2, on_alert=told.append) as watching:
        for loss in (2.0, 2.0, torch.tensor(np.nan), np.nan, np.nan):
            watching.step(small_model(), loss)
    assert told == [Alert(AlertKind.NOT_FINITE, 3, "the loss is not a finite number")]
    assert capfd.readouterr().err.count("tiny: since step 3: the loss is not a finite number") == 1


def test_on_alert_that_fails_is_reported_once(tmp_path, capfd):
    def fails(alert):
        raise RuntimeError(f"no network for {alert.kind}")

    model = small_model()
    with monitor(tmp_path, every=300, on_alert=fails) as watching:
        for step in range(900):
            watching.step(model, np.nan if step in (200, 700) else 2.0)
    assert capfd.readouterr().err.count("on_alert failed (RuntimeError: no network for not_finite)") == 1
    assert Folder(tmp_path, "tiny").steps() == [300, 600, 900]


def test_the_forecast_is_a_curve_beside_the_features(tmp_path):
    shown = {}
    writer = types.SimpleNamespace(
        add_scalar=lambda tag, value, step: shown.setdefault(tag, {}).update({step: value}), flush=lambda: None
    )
    facts = {"final_step": 4000, "tokens_per_step": 65_536}
    with monitor(tmp_path, every=1000, tensorboard=writer, **facts) as watching:
        watching.tell(schedule={"at": [0, 100, 4000], "values": [0.0, 1e-3, 1e-4]})
        model = nn.Linear(2000, 600)
        for step in range(1, 2001):
            watching.step(
                model, 2 + 20 * step**-0.5, learning_rate=float(np.interp(step, [0, 100, 4000], [0, 1e-3, 1e-4]))
            )
    curves = [shown[f"topology/estimated_final_loss{end}"] for end in ("_low", "", "_high")]
    assert list(curves[1]) == [1000, 2000]
    assert all(low < middle < high for low, middle, high in zip(*(curve.values() for curve in curves), strict=True))


def test_an_error_in_the_forecast_costs_the_forecast_only(tmp_path, capfd):
    with monitor(tmp_path, final_step=100, tokens_per_step=64) as watching:
        watching.tell(schedule={"at": [0, 50], "values": [-1.0, "x"]})
        watching.step(small_model(), 2.0)
    assert "no forecast (" in capfd.readouterr().err
    assert Folder(tmp_path, "tiny").steps() == [1]


def test_a_writer_that_fails_costs_its_curve_only(tmp_path, capfd):
    class Broken:
        def add_scalar(self, *_):
            raise RuntimeError("no room")

    with monitor(tmp_path, tensorboard=Broken()) as watching:
        watching.step(small_model())
        watching.step(small_model())
    assert Folder(tmp_path, "tiny").steps() == [1, 2]
    assert capfd.readouterr().err.count("no room") == 1


def test_the_background_process_imports_only_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, toposcale.monitor.worker; print(*sys.modules)"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    assert not {"torch", "pandas", "matplotlib", "transformers", "scipy.optimize"} & set(done.stdout.split())


def test_monitor_that_begins_again_keeps_no_earlier_fact(tmp_path):
    for facts in ({"final_step": 5000, "tokens_per_step": 8192}, {}):
        TopologyMonitor(tmp_path, "m", overwrite=True, **facts).close()
    assert set(Folder(tmp_path, "m").facts().values()) == {None}


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    place = tmp_path / "topology"
    place.write_text("mine")
    with pytest.raises(UserError, match="topology: a file, where the folder of the monitor should be"):
        monitor(place)
    assert place.read_text() == "mine"


@pytest.mark.parametrize(
    "option",
    [
        *({"every": 2.5}, {"every": "5"}, {"every": None}, {"tokens_per_step": 0}, {"tokens_per_step": float("inf")}),
        *({"final_step": -1}, {"max_rows": 0.5}, {"start": -5}, {"start": "3"}, {"start": float("nan")}),
    ],
)
def test_counts_are_whole_numbers(tmp_path, option):
    [name] = option
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least {int(name != 'start')}, got "):
        monitor(tmp_path, **option)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"start": 1}])
def test_two_monitors_of_one_name_do_not_mix_their_rows(tmp_path, options):
    with monitor(tmp_path) as first:
        first.step(small_model(), 1.0)
        with pytest.raises(UserError, match=r"another monitor is writing rows of tiny there; close\(\) it, or choose"):
            monitor(tmp_path, **options)
        monitor(tmp_path, name="other").close()
    assert Folder(tmp_path, "tiny").steps() == [1]
    if options:
        monitor(tmp_path, **options).close()


def test_lock_of_a_killed_training_is_released_by_its_child(tmp_path):
    program = f"""
import os, time
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({str(tmp_path)!r}, "tiny", tensorboard=False)
child = os.fork()
if child == 0:
    time.sleep(600)  # a worker of a data loader
print(child, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    ) as training:
        child = int(training.stdout.readline())
        try:
            with pytest.raises(UserError, match="another monitor is writing"):
                monitor(tmp_path)
            training.kill()
            training.wait()
            assert is_running(child)
            monitor(tmp_path).close()
        finally:
            training.kill()
            os.kill(child, signal.SIGKILL)


def test_worker_is_not_kept_alive_by_a_forked_child(tmp_path):
    program = f"""
import os, signal, subprocess, time, torch
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({str(tmp_path)!r}, "tiny", when_busy="wait", tensorboard=False)
watching.snapshot(torch.nn.Linear(4, 3))
child = os.fork()
if child == 0:
    time.sleep(600)  # a worker of a data loader
try:
    first = watching._worker._process
    watching.snapshot(torch.nn.Linear(4, 5))  # another shape, so another process
    print(first.wait(300))
finally:
    os.kill(child, signal.SIGKILL)
"""
    done = finished_program(program)
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        (["AdamW"], "adamw"),
        (["PagedAdamW8bit"], "adamw"),
        (["Muon", "AdamW"], "muon"),
        (["AdamW", "AdamW"], "adamw"),
        (["RMSprop"], None),
        (["Muon", "Lion"], None),
        ([], None),
    ],
)
def test_optimizer_of_is_the_name_of_its_class(classes, name):
    optimizers = [type(each, (), {})() for each in classes]
    assert hooks.optimizer_of(optimizers) == name
    assert hooks.optimizer_of([types.SimpleNamespace(optimizer=each) for each in optimizers]) == name


def test_snapshots_have_the_change_since_the_one_before(tmp_path):
    model = small_model()
    with monitor(tmp_path, when_busy="wait") as watching:
        watching.step(model, 1.0)
        with torch.no_grad():
            model[0].weight.mul_(1.5)
        watching.step(model, 1.0)
    first, second = (features(tmp_path, step).set_index(["layer", "feature"])["value"] for step in (1, 2))
    assert "relative_change" not in first.index.get_level_values("feature")
    changes = second.xs("relative_change", level="feature")
    assert changes["0.weight"] == pytest.approx(0.5)
    assert (changes.drop(["0.weight", "all"]) == 0).all()
    assert changes["all"] == pytest.approx(0.5 * first["0.weight", "frobenius_norm"] / first["all", "frobenius_norm"])


def test_schedule_of_an_unpredictable_scheduler_is_none():
    rates = [1.0, 0.5, 0.0]
    scheduler = types.SimpleNamespace(base_lrs=[0.1], lr_lambdas=[rates.__getitem__])
    assert hooks.schedule_of(scheduler, 2) == {"at": [0, 1, 2], "values": [0.1, 0.05, 0.0]}
    assert hooks.schedule_of(scheduler, 3) is None


def test_an_error_in_a_callback_ends_the_monitoring_alone(tmp_path, capfd):
    class Callback:
        monitor = None
        calls = 0

        @hooks.guarded_hook
        def on_log(self):
            self.calls += 1
            raise RuntimeError("a Trainer of another version")

    callback = Callback()
    callback.on_log()
    assert callback.calls == 0
    with monitor(tmp_path) as callback.monitor:
        callback.on_log()
        callback.on_log()
    [line] = capfd.readouterr().err.splitlines()
    assert "a Trainer of another version; nothing is monitored from here on, and the training goes on" in line


def test_the_package_lists_its_classes_before_they_are_imported():
    program = """
import sys, toposcale.monitor as monitor
assert set(monitor.__all__) <= set(dir(monitor)), dir(monitor)
assert not {"torch", "transformers", "lightning"} & set(sys.modules)
"""
    assert run_training(program, subprocess.DEVNULL) == (0, "")


def test_worker_without_facts_loads_nothing_for_a_forecast(tmp_path):
    code = f"""
import sys
from pathlib import Path
from toposcale.features.weights import WeightSettings
from toposcale.monitor.folder import KINDS, Folder
from toposcale.monitor.worker import Job, Snapshot, lay_out, perform

folder = Folder(Path({str(tmp_path)!r}), "tiny")
folder.write_facts(n_parameters=6, tokens_per_step=8)
job = Job(folder, lay_out([("w", "float32", (2, 3))]), WeightSettings(), {{}})
outcome = perform(job, Snapshot(1, 0.0, forecast=True), memoryview(bytes(24)))
print(outcome.error, {{"scipy.optimize", "toposcale.forecasting.decision.advice"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()"]


@pytest.mark.parametrize(
    ("argument", "value", "line"),
    [
        ("settings", {"max_points": 9}, "settings must be a WeightSettings"),
        ("on_alert", "print", "on_alert must be a func"),
    ],
)
def test_monitor_refuses_a_wrong_argument_at_the_start(tmp_path, argument, value, line):
    with pytest.raises(TypeError, match=f"^{line}"):
        TopologyMonitor(tmp_path, **{argument: value})


LEFT_AT_WORK = """
import os, signal, torch
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({folder!r}, "tiny", every=1, when_busy="wait", tensorboard=False)
watching.step(torch.nn.Linear(4, 3))
watching._receive(300)
os.kill(watching._worker._process.pid, signal.SIGSTOP)  # a long measurement
watching.step(torch.nn.Linear(4, 3))
print(watching._worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_monitor_waits_for_what_a_killed_training_left_at_work(tmp_path, capfd):
    done = finished_program(LEFT_AT_WORK.format(folder=str(tmp_path)))
    assert done.returncode == -signal.SIGKILL, done.stderr
    worker = int(done.stdout)
    try:
        with pytest.raises(UserError, match=r"of an earlier training has been measuring tiny for more than 0\.3 s"):
            monitor(tmp_path, overwrite=True, timeout=0.3)
        assert capfd.readouterr().err.count("an earlier training left a snapshot in work") == 1
    finally:
        os.kill(worker, signal.SIGCONT)
    with monitor(tmp_path, overwrite=True) as watching:
        assert not is_running(worker)
        watching.step(small_model())
    folder = Folder(tmp_path, "tiny")
    assert [list(folder.files(kind)) for kind in KINDS] == [[], [], [1], [1]]
    assert "1.weight" in set(features(tmp_path, 1)["layer"])


def test_monitor_whose_files_the_program_closes_gives_up(tmp_path):
    program = f"""
import os, torch
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({str(tmp_path)!r}, "tiny", every=1, when_busy="wait", tensorboard=False)
watching.step(torch.nn.Linear(4, 3), 1.0)
os.closerange(3, 256)
files = [open(os.devnull) for _ in range(20)]  # the numbers are given away again
watching.step(torch.nn.Linear(4, 3), 1.0)
watching.step(torch.nn.Linear(4, 3), 1.0)
if os.fork() == 0:
    os._exit(0)
watching.close()
del watching
for file in files:
    file.read()
print("trained")
"""
    done = finished_program(program)
    assert (done.stdout, done.returncode) == ("trained\n", 0), done.stderr
    [line] = done.stderr.splitlines()
    assert line.endswith(
        "the program closed files of the monitor, as a daemon does; create the monitor after that; nothing is monitored "
        "from here on, and the training goes on"
    )


def test_close_leaves_nothing_to_close_in_children(tmp_path):
    before = len(locks._OPEN)
    for _ in range(3):
        with monitor(tmp_path, overwrite=True) as watching:
            watching.step(small_model())
            assert len(locks._OPEN) == before + 3
    gc.collect()
    assert len(locks._OPEN) == before


def test_log_at_the_step_of_a_snapshot_survives_a_kill(tmp_path):
    program = f"""
import os, signal, torch
from toposcale.monitor import TopologyMonitor
watching = TopologyMonitor({str(tmp_path)!r}, "tiny", every=2, when_busy="wait", tensorboard=False)
for step in (1, 2, 3):
    watching.step(torch.nn.Linear(4, 3))
    watching.log_loss(4.0 - step, learning_rate=0.5)  # as transformers' Trainer does, after the step
    watching.log(validation_loss=5.0 - step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert finished_program(program).returncode == -signal.SIGKILL
    with monitor(tmp_path, start=2, every=2) as watching:
        watching.step(small_model(), 1.0)
    log = tables.gather(schemas.TABLES["training"], Folder(tmp_path, "tiny").files("training").values()).to_pylist()
    assert [(row["step"], row["loss"], row["learning_rate"]) for row in log][:2] == [(1, 3.0, 0.5), (2, 2.0, 0.5)]
    expected = {(1, "validation_loss"): 4.0, (2, "validation_loss"): 3.0, (2, "training_loss"): 2.0}
    assert metrics(tmp_path) == expected


def test_a_folder_of_tensorboard_that_is_removed_is_one_line(tmp_path, capfd):
    with monitor(tmp_path, tensorboard=True) as watching:
        watching.step(small_model(), 1.0)
        watching._receive(300)
        shutil.rmtree(tmp_path)
        for _ in range(2):
            watching.step(small_model(), 1.0)
            watching._receive(300)
    first, cost = capfd.readouterr().err.splitlines()
    assert f"(FileNotFoundError: {tmp_path}/tensorboard/tiny was removed); its row is written all the same" in first
    assert "3 snapshots, 0 dropped" in cost


def test_a_file_system_without_locks_is_a_line(tmp_path, capfd, monkeypatch):
    def without_locks(*_):
        raise OSError(errno.ENOLCK, "none")

    monkeypatch.setattr("fcntl.flock", without_locks)
    with monitor(tmp_path) as watching:
        watching.step(small_model())
    first, _cost = capfd.readouterr().err.splitlines()
    assert first.endswith(f"{tmp_path} has no locks (no locks available); let no other monitor write there")
    assert Folder(tmp_path, "tiny").steps() == [1]
