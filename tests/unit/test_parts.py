"""What a run makes, what a job on a model and a checkpoint reads, and what is refused before any job starts."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import config_reading
import inspections
import parts
import plan
import warnings_table
from toposcale.io import tensor_files
from toposcale.io.errors import UserError

SIZES = {"d_model": 8, "n_layers": 1, "n_heads": 1}
HUB = {"kind": "hub", "repo": "a/b", "revisions": "step{step}", "steps": [0, 7]}
LANDSCAPE_TABLES = {"surfaces", "densities", "profiles", "path_surfaces", "trajectories"}
TRAINING = {"steps": 20, "checkpoint_every": 10, "warmup_steps": 1}


class Job(SimpleNamespace):
    """The wildcards of a job."""

    def get(self, name, default):
        return getattr(self, name, default)


@pytest.fixture
def inputs_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(**keys):
        keys = {"run": "mine", "models": {"a": SIZES, "h": HUB}, "training": TRAINING} | keys
        return parts.Inputs(plan.Plan(config_reading.resolve(keys)))

    return of


@pytest.fixture
def folder(tmp_path):
    """An entry of `models:` for a folder with two checkpoints of a 3 x 4 matrix."""
    for step in (1, 5):
        path = tmp_path / "mine" / f"step-{step}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file({"w": np.full((3, 4), step, dtype=np.float32)}, path)
    return {"kind": "folder", "path": str(path.parent), "tokenizer": str(tmp_path)}


def test_the_weights_of_a_checkpoint_are_a_file_a_manifest_or_the_users(inputs_of, folder):
    found = inputs_of(models={"a": SIZES, "h": HUB, "f": folder})
    assert found.weights("a", 10) == "results/mine/checkpoints/a/step-00000010.safetensors"
    assert found.weights("h", 7) == "results/mine/checkpoints/h/step-00000007.json"
    assert found.weights("f", 5) == f"{folder['path']}/step-5.safetensors"


def test_a_job_reads_the_checkpoints_that_it_measures(inputs_of):
    whole = inputs_of(weights={"jobs": "model"})
    assert whole.steps("weights")(Job(model="a", checkpoints="all")) == [0, 10, 20]
    files = [whole.weights("a", step) for step in (0, 10, 20)]
    checkpoints, fetched = whole.checkpoints("weights"), whole.fetched("weights")
    for job, read in (
        (Job(model="a", checkpoints="all"), files),
        (Job(model="a", checkpoints="step-00000010"), files[1:2]),
    ):
        assert (checkpoints(job), fetched(job)) == (read, [])
    published, job = "results/mine/checkpoints/h/step-00000007", Job(model="h", checkpoints="step-00000007")
    assert (checkpoints(job), fetched(job)) == ([f"{published}.json"], [published])


def test_a_training_goes_on_from_the_checkpoint_before(inputs_of):
    inputs = inputs_of()
    before = [inputs.previous(pattern) for pattern in (inputs.paths.checkpoint, inputs.paths.optimiser)]
    for first in (Job(model="a", checkpoints="step-00000000"), Job(model="a")):
        assert [file(first) for file in before] == [[], []]
    assert [file(Job(model="a", checkpoints="step-00000020")) for file in before] == [
        "results/mine/checkpoints/a/step-00000010.safetensors",
        "results/mine/optimisers/a/step-00000010.safetensors",
    ]


def test_a_param_holds_the_keys_that_an_entry_has(inputs_of):
    settings = inputs_of().settings("repo", "steps", "tokenizer")
    assert settings(Job(model="h")) == {"repo": "a/b", "steps": [0, 7]}
    assert settings(Job(model="a")) == {}


def test_only_checkpoints_that_are_trained_here_can_be_made_again(inputs_of):
    assert [inputs_of().allow_missing(Job(model=model)) for model in ("a", "h")] == [False, True]


def test_contents_follow_what_a_file_holds_and_not_its_time(inputs_of, folder, tmp_path):
    def contents():
        return inputs_of(models={"f": folder}).contents

    before, file = contents(), tmp_path / "mine" / "step-5.safetensors"
    assert before.keys() == {str(file), str(file.with_name("step-1.safetensors")), str(tmp_path)}
    os.utime(file, (1e9, 1e9))
    assert contents() == before
    save_file({"w": np.zeros((3, 4), dtype=np.float32)}, file)
    after = contents()
    assert [name for name in before if after[name] != before[name]] == [str(file)]
    (tmp_path / "tokenizer.json").write_text("{}")
    assert contents()[str(tmp_path)] != before[str(tmp_path)]


def test_tokenizer_is_the_users_folder_with_its_content(inputs_of, folder, tmp_path):
    inputs = inputs_of(models={"a": SIZES, "f": folder})
    assert inputs.tokenizer(Job(model="f")) == {str(tmp_path): inputs.contents[str(tmp_path)]}
    assert inputs.tokenizer(Job(model="a")) == {}


@pytest.fixture
def opened(monkeypatch):
    """The names of the checkpoints that are opened."""
    names, open_path, open_tensors = set(), Path.open, tensor_files.safe_open

    def counted(function):
        def open_counted(path, *arguments, **options):
            names.update({Path(path).name} if str(path).endswith(".safetensors") else ())
            return function(path, *arguments, **options)

        return open_counted

    monkeypatch.setattr(Path, "open", counted(open_path))
    monkeypatch.setattr(tensor_files, "safe_open", counted(open_tensors))
    return names


def test_a_checkpoint_of_a_folder_is_opened_once_and_by_no_job(inputs_of, folder, opened, tmp_path):
    damaged = tmp_path / "mine" / "step-7.safetensors"
    damaged.write_bytes(b"no tensors")

    def parsed():
        """What a process plans with, the files that it opened, and what it hands to a job."""
        opened.clear()
        found, job = inputs_of(models={"f": folder}), Job(model="f", checkpoints="step-00000005")
        planned = found.plan.models["f"], found.contents, found.sizes(job)
        return found, planned, set(opened)

    main, planned, files = parsed()
    assert files == {"step-1.safetensors", "step-5.safetensors", "step-7.safetensors"}
    assert list(planned[0].missing) == [7]
    main.plan.inspections.save()
    _, again, files = parsed()
    assert again == planned
    assert files == set()
    save_file({"w": np.zeros((3, 4), dtype=np.float32)}, tmp_path / "mine" / "step-5.safetensors")
    main, changed, files = parsed()
    assert files == {"step-5.safetensors"}
    assert changed[1] != planned[1]
    main.plan.inspections.save()
    save_file({"w": np.zeros((3, 4), dtype=np.float32)}, damaged)
    assert parsed()[1][0].missing == {}
    inspections.FILE.write_text("{")
    assert parsed()[2] == {"step-1.safetensors", "step-5.safetensors", "step-7.safetensors"}


def test_what_other_code_read_of_a_checkpoint_is_read_again(inputs_of, folder, opened, monkeypatch):
    inputs_of(models={"f": folder}).plan.inspections.save()
    monkeypatch.setattr(inspections, "fingerprint", lambda *names: "other")
    opened.clear()
    inputs_of(models={"f": folder})
    assert opened == {"step-1.safetensors", "step-5.safetensors"}


def test_two_trainings_in_a_folder_are_refused(inputs_of, folder, tmp_path):
    for step, losses in ((1, [4.0]), (5, [3.0])):
        checkpoint = tmp_path / "two" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        save_file({"w": np.full((3, 4), step, dtype=np.float32)}, checkpoint / "model.safetensors")
        log = [{"step": step, "loss": loss} for loss in losses]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": log, "global_step": step}))
    found = inputs_of(models={"f": {**folder, "path": str(tmp_path / "two")}})
    with pytest.raises(UserError, match=r"steps: \[1\] or steps: \[5\]"):
        found.plan.check_folders()


def test_a_checkpoint_after_the_stated_end_is_refused(inputs_of, folder):
    assert inputs_of(models={"f": {**folder, "final_step": 5}}).plan.models["f"].steps == (1, 5)
    with pytest.raises(UserError, match=r"^models\.f\.final_step holds 4, but a checkpoint is of step 5 \(.*mine\)$"):
        inputs_of(models={"f": {**folder, "final_step": 4}})


def test_a_step_of_more_digits_than_names_of_files_hold_is_refused(inputs_of, folder, tmp_path):
    last = tmp_path / "mine/step-99999999.safetensors"
    save_file({"w": np.ones((3, 4), dtype=np.float32)}, last)
    assert inputs_of(models={"f": folder}).plan.models["f"].steps == (1, 5, 99_999_999)
    last.rename(tmp_path / "mine/step-100000000.safetensors")
    with pytest.raises(
        UserError, match=r"^models\.f: a checkpoint is of step 100,000,000 \(.*; if the names count tokens"
    ):
        inputs_of(models={"f": folder})


def test_a_damaged_last_state_of_a_trainer_is_a_warning(inputs_of, folder, tmp_path):
    for step in (1, 5):
        checkpoint = tmp_path / "out" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        save_file({"w": np.full((3, 4), step, dtype=np.float32)}, checkpoint / "model.safetensors")
        state = json.dumps({"log_history": [{"step": 1, "loss": 4.0}], "global_step": step})
        (checkpoint / "trainer_state.json").write_text(state[: -step + 1 or None])
    entry = {**folder, "path": str(tmp_path / "out")}
    model = inputs_of(models={"f": entry}).plan.models["f"]
    damaged = str(tmp_path / "out/checkpoint-5/trainer_state.json")
    assert model.loss_curve == str(tmp_path / "out/checkpoint-1/trainer_state.json")
    [row] = warnings_table.unread({"f": model.unread_states})
    assert (row["model"], row["step"], row["is_missing"]) == ("f", 5, False)
    assert row["warning"].startswith(f"{damaged}: not the state of a Trainer")
    (tmp_path / "losses.csv").write_text("step,loss\n1,4\n5,3\n")
    stated = inputs_of(models={"f": {**entry, "losses": str(tmp_path / "losses.csv")}}).plan.models["f"]
    assert stated.unread_states == {}


@pytest.mark.parametrize(
    ("models", "keep", "weights", "diagrams"),
    [
        ("ahf", False, "results/mine/checkpoints/a/step-00000020.safetensors", "a/step-00000020"),
        ("hf", False, "mine/step-5.safetensors", "f/step-00000001"),
        ("h", True, "results/mine/checkpoints/h/step-00000007.json", "h/step-00000007"),
    ],
)
def test_one_checkpoint_of_a_run_is_compared_with_ripser(inputs_of, folder, models, keep, weights, diagrams):
    entries = {"h": HUB, "f": folder, "a": SIZES}
    found = inputs_of(models={name: entries[name] for name in entries if name in models}, hub={"keep": keep})
    compared = [path.removeprefix(folder["path"].removesuffix("mine")) for path in found.compared_with_ripser]
    assert compared == [weights, f"results/mine/diagrams/weights/{diagrams}.parquet"]


def test_a_file_of_all_checkpoints_is_compared_with_ripser_at_the_last_one(inputs_of):
    [weights, diagrams] = inputs_of(models={"a": SIZES}, weights={"jobs": "model"}).compared_with_ripser
    assert weights == "results/mine/checkpoints/a/step-00000020.safetensors"
    assert diagrams == "results/mine/diagrams/weights/a/all.parquet"


def test_without_topology_or_weights_that_stay_nothing_is_compared_with_ripser(inputs_of):
    assert inputs_of(weights={"features": ["norms"]}).compared_with_ripser == []
    assert inputs_of(models={"h": HUB}, hub={"keep": False}).compared_with_ripser == []


def test_how_far_a_model_has_come(inputs_of):
    found = inputs_of(training=TRAINING | {"jobs": "model"}, embeddings={"enabled": False})
    trained, published = found.progress_files("a"), found.progress_files("h")
    assert trained["training"] == ["results/mine/training/a.parquet", "results/mine/training/a/all.parquet"]
    assert trained["metrics"] == ["results/mine/metrics/training/a/all.parquet"]
    assert len(trained["weights"]) == 3
    assert json.loads(json.dumps(found.progress()))["models"]["a"]["files"] == trained
    assert published["weights"] == []
    assert published["sizes"] == [f"results/mine/checkpoints/h/step-0000000{step}.json" for step in (0, 7)]


def test_what_was_noted_gives_the_sizes_of_a_published_checkpoint(inputs_of, folder, tmp_path):
    found, job = inputs_of(models={"a": SIZES, "h": HUB, "f": folder}), Job(model="h", checkpoints="step-00000007")
    with pytest.raises(FileNotFoundError) as error:
        found.sizes(job)
    assert error.value.filename == "results/mine/checkpoints/h/step-00000007.json"
    noted = tmp_path / "results/mine/checkpoints/h/step-00000007.json"
    noted.parent.mkdir(parents=True)
    noted.touch()
    assert set(found.sizes(job)) == {0}
    noted.write_text(json.dumps({"n_parameters": 9, "repeats": None}))
    assert found.sizes(job).n_parameters == 9
    assert found.sizes(Job(model="f", checkpoints="step-00000001")).largest_matrix == 12
    assert set(found.sizes(Job(model="a", checkpoints="all"))) == {0}


def test_texts_stand_in_the_order_of_the_list_each_glob_sorted(inputs_of, tmp_path):
    for name in ("b.txt", "a.txt", "z[1].txt"):
        (tmp_path / name).touch()
    corpus = {"source": "files", "train": ["z[1].txt", "?.txt"], "validation": ["a.txt"]}
    assert inputs_of(corpus=corpus).corpus == {"train": ["z[1].txt", "a.txt", "b.txt"], "validation": ["a.txt"]}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"corpus": {"source": "files", "train": ["x*"], "validation": ["v.txt"]}},
            "corpus.train: no file matches 'x*'",
        ),
        (
            {"corpus": {"source": "files", "train": ["v.txt"], "validation": ["v"]}},
            "corpus.validation: v does not exist",
        ),
        (
            {"corpus": {"source": "files", "train": ["."], "validation": ["v.txt"]}},
            "corpus.train: . is a folder; give its files, as in FOLDER/*.txt",
        ),
        (
            {"corpus": {"source": "files", "train": ["v.txt"], "validation": ["{*"]}},
            "corpus.validation: '{a}.txt' has a",
        ),
        ({"metrics": {"harness": "."}}, "metrics.harness: .: no JSON file of lm-evaluation-harness is there"),
    ],
)
def test_what_is_configured_and_not_there_is_refused(inputs_of, tmp_path, monkeypatch, keys, said):
    (tmp_path / "v.txt").touch()
    (tmp_path / "{a}.txt").touch()
    with pytest.raises(UserError) as error:
        inputs_of(**keys)
    assert str(error.value).startswith(f"config key {said}")


def test_a_job_asks_for_more_at_each_attempt_and_for_a_larger_checkpoint(inputs_of, folder):
    assert [parts.on_attempt(10)(None, attempt) for attempt in (1, 3)] == [10, 30]
    asked = inputs_of(models={"a": SIZES, "f": folder}).by_size(100, per_weight=1e6, per_matrix=0.5e6)
    assert [asked(Job(model="a", checkpoints="all"), None, attempt) for attempt in (1, 2)] == [100, 200]
    assert asked(Job(model="f", checkpoints="step-00000001"), None, 2) == 2 * (100 + 12 + 6)


def plan_of(**keys):
    return plan.Plan(config_reading.resolve({"run": "mine", "models": {"a": SIZES}, **keys}))


@pytest.fixture
def tables_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(**keys):
        training = {"steps": 20, "checkpoint_every": 10, "warmup_steps": 1}
        return parts.RunTables(parts.Inputs(plan_of(**{"training": training} | keys)))

    return of


def test_a_table_is_gathered_where_there_is_something_to_gather(tables_of):
    planned = {"kind": "planned", "n_parameters": 9, "schedule": {"shape": "linear", "peak": 1, "steps": 9}}
    nothing = tables_of(models={"p": planned})
    assert nothing.gathered == ["features"]
    small = tables_of(embeddings={"enabled": False}, trajectory={"enabled": False}, weights={"distances": False})
    assert small.gathered == ["features"]
    assert small._inputs.features == [
        f"results/mine/features/weights/a/step-000000{step}.parquet" for step in ("00", "10", "20")
    ]
    assert tables_of().gathered == ["features", "diagrams"]
    assert {*tables_of(landscape={"enabled": True}).gathered} == {"features", "diagrams", *LANDSCAPE_TABLES}


def test_features_come_from_every_source(inputs_of):
    inputs = inputs_of(models={"a": SIZES}, landscape={"enabled": True})
    folders = {tuple(part.split("/")[2:4]) for part in inputs.features}
    sources = {"weights", "embeddings", "landscape", "gradients"}
    assert folders == {*(("features", source) for source in [*sources, "trajectory"]), ("distances", "a.parquet")}


def test_distances_are_of_every_source_that_a_model_has(inputs_of):
    inputs = inputs_of(landscape={"enabled": True, "every": 2}, models={"a": SIZES, "b": SIZES | {"embeddings": False}})
    [a, b] = (inputs.compared_steps(Job(model=model)) for model in "ab")
    assert a == {"weights": [0, 10, 20], "embeddings": [0, 10, 20], "landscape": [0, 20], "gradients": [0, 20]}
    assert set(a) - set(b) == {"embeddings"}
    clouds = inputs.of_model("embeddings", inputs.paths.clouds, inputs.plan.diverging)
    assert [len(clouds(Job(model=model))) for model in "ab"] == [3, 0]
    checkpoints = [inputs.weights("a", step) for step in (0, 10, 20)]
    assert inputs.moved_weights(Job(model="a")) == checkpoints
    without = inputs_of(weights={"distances": False})
    assert "weights" not in without.compared_steps(Job(model="a"))
    assert without.moved_weights(Job(model="a")) == []


def test_an_analysis_is_made_where_its_subject_is(tables_of):
    without, whole = tables_of(), tables_of(landscape={"enabled": True}, forecasts={"metrics": ["acc"]})
    assert set(whole.analyses) - set(without.analyses) == {"scores"}
    for found in (without, whole):
        assert set(found.tables) <= set(found.files)
        for name, analysis in found.analyses.items():
            assert set(found.read_by(name)) == set(analysis.reads) <= set(found.files)
            assert set(found.settings(name)) == set(analysis.settings)


def test_a_run_that_repeats_no_source_carries_none_of_their_claims(tables_of):
    of_a_source = {"claims", "comparison"}
    own, repeated = tables_of(), tables_of(reproduces=["paper"])
    assert of_a_source.isdisjoint(own.analyses)
    assert of_a_source.isdisjoint(own.files)
    assert set(repeated.analyses) - set(own.analyses) == of_a_source


def test_tables_read_the_logs_of_all_models_and_the_metrics_of_the_user(tables_of, folder, tmp_path):
    (tmp_path / "mine.csv").write_text("step,loss\n1,2\n")
    curve = {"kind": "table", "path": "mine.csv", "n_parameters": 9}
    found = tables_of(models={"a": SIZES, "f": folder, "c": curve}, reproduces=["paper"], metrics={"tables": ["m.csv"]})
    log = "results/mine/training/{}.parquet"
    assert found.read_by("forecasts")["training"] == [log.format("a"), log.format("c")]
    assert "results/mine/metrics/tables.parquet" in found._inputs.metrics


def test_a_figure_is_drawn_where_its_tables_and_features_are(tables_of):
    without, whole = tables_of(embeddings={"enabled": False}), tables_of(landscape={"enabled": True})
    assert set(without.figures) < set(whole.figures)
    assert {figure.source for figure in without.figures.values()} <= {"metrics", "weights"}
