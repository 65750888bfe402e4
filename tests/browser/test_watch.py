"""`toposcale watch` in a real browser, on folders that grow while the page is open."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import save_file

from paths import ROOT
from toposcale.features import weights
from toposcale.io.errors import UserError
from toposcale.monitor import records
from toposcale.monitor.folder import KINDS, Folder
from toposcale.pages import watch

FINAL_STEP = 1000


@contextmanager
def watching(folder):
    """The address of the page; Ctrl-C ends it, quietly."""
    command = [sys.executable, "-m", "toposcale", "watch", str(folder), "--port", "0", "--every", "0.2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        address = re.match(r"(http://127\.0\.0\.1:\d+/)", line)
        assert address, line + process.stderr.read()
        yield address.group(1)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert errors == ""


def matrices(step):
    rng = np.random.default_rng(0)
    return {f"{name}.weight": rng.standard_normal((16, 12)) * (1 + step / 50) for name in "ab"}


def loss(step):
    return 2 + 3 * (1 + step) ** -0.5


class Monitored:
    """What a monitor writes, snapshot by snapshot."""

    def __init__(self, path):
        self.folder = Folder(path, "watched")
        self.folder.write_facts(n_parameters=384, tokens_per_step=64, final_step=FINAL_STEP)
        self.log = records.Log(self.folder)

    def reach(self, step):
        records.write_snapshot(self.folder, step, iter(matrices(step).items()), weights.WeightSettings(), {}, 0.0)
        for one in range(max(step - 99, 0), step + 1):
            self.log.training(one, loss(one), 0.5, 1e-3)
        self.log.metric(step, "validation_loss", loss(step) + 0.1)
        self.log.write(step)


class Trained:
    """What transformers' Trainer leaves in its output_dir."""

    def __init__(self, path, logged_every=1):
        self.path = path
        self.logged_every = logged_every

    def reach(self, step):
        folder = self.path / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file(
            {name: value.astype(np.float32) for name, value in matrices(step).items()}, folder / "model.safetensors"
        )
        self.write_state(step, folder)

    def write_state(self, step, folder, max_steps=FINAL_STEP):
        logged = range(self.logged_every, step + 1, self.logged_every)
        history = [{"step": one, "loss": loss(one), "learning_rate": 1e-3} for one in logged]
        state = {"global_step": step, "max_steps": max_steps, "log_history": history, "total_flos": 0.0}
        (folder / "trainer_state.json").write_text(json.dumps(state))


def reach_step_500(training):
    for step in range(100, 600, 100):
        training.reach(step)


def wait_for_step(browser, step):
    browser.wait_for(f"document.querySelector('#step').value === '{step}'")


@pytest.mark.parametrize("kind", [Monitored, Trained])
def test_the_page_follows_a_training_that_goes_on(kind, tmp_path, browser):
    training = kind(tmp_path / "training")
    reach_step_500(training)
    with watching(tmp_path / "training") as address:
        browser.open(address)
        browser.wait_for("document.body.dataset.ready === 'yes'")
        drawn = "document.querySelector('[data-side=left][data-kind=loss] .chart').data"
        browser.wait_for(f"Boolean({drawn})")
        wait_for_step(browser, 500)
        forecast = f"{drawn}.find((trace) => trace.name === 'forecast')?.customdata.at(-1)[0]"
        assert browser.run(forecast) == FINAL_STEP
        assert f"step 500 of {FINAL_STEP:,} " in browser.run("document.querySelector('#left-name p').textContent")
        norm = "line(run.keys, model('left'), 'weights', 'all', 'frobenius_norm')"
        before = browser.run(norm)
        training.reach(600)
        wait_for_step(browser, 600)
        after = browser.run(norm)
        assert after["steps"] == [*before["steps"], 600]
        expected = np.sqrt(sum((value**2).sum() for value in matrices(600).values()))
        assert after["values"][-1] == pytest.approx(expected, rel=1e-4)
        assert browser.errors() == []
        assert all(request.startswith(address) for request in browser.requests())


def test_parts_of_two_versions_are_never_drawn_together(tmp_path, browser):
    training = Monitored(tmp_path / "training")
    reach_step_500(training)
    with watching(tmp_path / "training") as address:
        browser.open(address)
        wait_for_step(browser, 500)
        # The first answers on the model are those of before.
        browser.run("""(() => {
            const old = loaded.get(0), real = fetchPart;
            window.late = 0;
            window.fetchPart = async (name) => (name === "model-0" && late++ < 2 ? old : real(name));
            window.drawnOfTwo = 0;
            const drawing = draw;
            window.draw = () => { drawing(); if (model("left") && model("left").version !== run.version) drawnOfTwo++; };
        })()""")
        training.log.metric(600, "a_metric_that_comes_first", 1.0)  # the numbers of all other columns change
        training.reach(600)
        wait_for_step(browser, 600)
        assert browser.run("late") >= 3
        assert browser.run("drawnOfTwo") == 0
        norm = browser.run("line(run.keys, model('left'), 'weights', 'all', 'frobenius_norm')")["values"]
        expected = [
            np.sqrt(sum((value**2).sum() for value in matrices(step).values())) for step in range(100, 700, 100)
        ]
        assert norm == pytest.approx(expected, rel=1e-4)
        assert browser.errors() == []


def test_an_empty_folder_is_waited_for(tmp_path, browser):
    with watching(tmp_path) as address:
        browser.open(address)
        browser.wait_for("document.querySelector('#state').textContent.startsWith('Nothing is there yet')")
        training = Trained(tmp_path)
        training.reach(10)
        browser.wait_for("document.body.dataset.ready === 'yes'")
        assert browser.errors() == []


def test_it_only_reads_and_answers_this_machine_only(tmp_path):
    training = Trained(tmp_path)
    training.reach(10)
    before = sorted(tmp_path.rglob("*"))
    with watching(tmp_path) as address:
        with urllib.request.urlopen(address + "data/run") as answer:
            assert json.load(answer)["name"] == tmp_path.name
        for path, host, status in (
            ("data/../../etc/passwd", None, 404),
            ("checkpoint-10/model.safetensors", None, 404),
            ("", "evil.example", 403),
            ("", "127.0.0.1:80@evil.example", 403),
            ("", "localhost.evil.example", 403),
        ):
            request = urllib.request.Request(address + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            assert refused.value.code == status
        posted = urllib.request.Request(address, data=b"x")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(posted)
        assert refused.value.code == 501
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_that_is_cut_is_told_and_read_when_it_is_whole(tmp_path):
    training = Trained(tmp_path)
    for step in (10, 20):
        training.reach(step)
    file = tmp_path / "checkpoint-20" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert "checkpoint-20" in follower.parts["run"]["state"]
    assert follower.parts["model-0"]["diagrams"][0]["steps"] == [10]
    file.write_bytes(whole)
    follower.refresh()
    assert follower.parts["model-0"]["diagrams"][0]["steps"] == [10, 20]
    assert "checkpoint-20" not in follower.parts["run"]["state"]


@pytest.mark.parametrize(
    ("noted", "expected"), [(1e-3, "learning rate 0.001 now, 0 at the end (as given)"), (1.0, "No forecast: ")]
)
def test_the_plan_that_a_monitor_noted_counts_unless_the_log_contradicts_it(tmp_path, noted, expected):
    training = Monitored(tmp_path)
    reach_step_500(training)
    plan = {"at": [0, 600, FINAL_STEP], "values": [noted, noted, 0.0]}
    training.folder.write_facts(schedule=plan)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert expected in follower.parts["model-0"]["advice"]
    assert ("forecast" in follower.parts["model-0"]) == (noted == 1e-3)


@pytest.mark.parametrize("listing", range(1 + len(KINDS)))
def test_a_step_that_is_written_during_the_reading_is_never_without_its_features(listing, tmp_path, monkeypatch):
    training = Monitored(tmp_path)
    reach_step_500(training)
    follower = watch.Follower(tmp_path)
    real = Folder.files
    calls = itertools.count()

    def files(folder, kind):
        found = real(folder, kind)
        if next(calls) == listing:
            training.reach(600)
        return found

    monkeypatch.setattr(Folder, "holds_rows", lambda folder: True)
    monkeypatch.setattr(Folder, "files", files)
    follower.refresh()
    monkeypatch.undo()
    assert next(calls) > listing
    run, model = follower.parts["run"], follower.parts["model-0"]

    def steps_of(feature):
        number = next(k for k, key in enumerate(run["keys"]) if key["feature"] == feature)
        at = model["columns"][str(number)]["at"]
        return set(model["steps"] if at is None else np.take(model["steps"], at).tolist())

    with_bars = set(model["diagrams"][0]["steps"])
    assert steps_of("validation_loss") <= steps_of("frobenius_norm") <= with_bars
    follower.refresh()
    assert follower.parts["model-0"]["steps"] == list(range(100, 700, 100))


def test_a_checkpoint_is_measured_once(tmp_path, monkeypatch):
    training = Trained(tmp_path)
    training.reach(10)
    measured = []
    real = watch._measured
    monkeypatch.setattr(watch, "_measured", lambda *given: measured.append(given) or real(*given))
    follower = watch.Follower(tmp_path)
    for _ in range(2):
        follower.refresh()
    version = follower.parts["run"]["version"]
    training.reach(20)
    follower.refresh()
    assert [step for _, _, step, _ in measured] == [10, 20]
    assert follower.parts["run"]["version"] == version + 1


@pytest.mark.parametrize("logged_every", [1, 7, 600, 5000])
@pytest.mark.parametrize("last_checkpoint", [FINAL_STEP, 960])
def test_a_finished_training_is_shown_as_finished_wherever_its_log_ends(logged_every, last_checkpoint, tmp_path):
    training = Trained(tmp_path, logged_every)
    for step in (500, last_checkpoint):
        training.reach(step)
    if last_checkpoint < FINAL_STEP:  # as Trainer.save_state leaves it
        training.write_state(FINAL_STEP, tmp_path)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert follower.parts["model-0"]["advice"].endswith(f"The last of {FINAL_STEP:,} steps is done.")
    assert "forecast" not in follower.parts["model-0"]


def test_the_state_that_an_earlier_training_left_does_not_count(tmp_path):
    training = Trained(tmp_path)
    training.write_state(30, tmp_path, max_steps=30)
    reach_step_500(training)
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert f"step 500 of {FINAL_STEP:,} " in follower.parts["model-0"]["advice"]


def test_checkpoints_that_do_not_tell_where_they_end_are_not_called_finished(tmp_path):
    training = Trained(tmp_path)
    for step in (10, 20):
        training.reach(step)
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").unlink()
    follower = watch.Follower(tmp_path)
    follower.refresh()
    assert follower.parts["model-0"]["advice"].splitlines()[-1].startswith("No forecast: ")
    assert follower.parts["model-0"]["steps"] == [10, 20]


def test_a_file_is_refused_and_a_folder_that_is_not_there_is_waited_for(tmp_path):
    file = tmp_path / "losses.csv"
    file.touch()
    with pytest.raises(UserError, match="a file"):
        watch.Follower(file)
    follower = watch.Follower(tmp_path / "later")
    follower.refresh()
    assert "is not there yet" in follower.parts["run"]["state"]
    (tmp_path / "later").mkdir()
    Trained(tmp_path / "later").reach(10)
    follower.refresh()
    assert follower.parts["model-0"]["steps"] == [10]
