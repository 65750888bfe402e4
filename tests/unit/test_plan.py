"""Which models and checkpoints a configuration asks for."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from safetensors.numpy import save_file

import config_reading
import paths
import plan
from config_reading import schema
from inspections import Inspections
from paths import ROOT
from toposcale.analysis.model_rows import rows_of_model
from toposcale.checkpoints import Inspection, Sizes
from toposcale.checkpoints.model_kinds import MODEL_KINDS
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.monitor.folder import Folder


def models(**keys):
    shapes = {"a": {"d_model": 8, "n_layers": 1, "n_heads": 1}, "b": {"d_model": 16, "n_layers": 2, "n_heads": 1}}
    training = {"steps": 25, "checkpoint_every": 10, "warmup_steps": 1}
    return plan.models(config_reading.resolve({"models": shapes, "training": training, **keys}))


def test_checkpoints_are_at_both_ends_and_between():
    assert models()["a"].steps == (0, 10, 20, 25)
    assert plan.checkpoint_steps({"steps": 20, "checkpoint_every": 10}) == (0, 10, 20)
    assert plan.checkpoint_steps({"steps": 3, "checkpoint_every": 10}) == (0, 3)


def test_the_first_seed_keeps_the_plain_names():
    one, two = models(seeds=[42]), models(seeds=[42, 43])
    assert list(one) == ["a", "b"]
    assert list(two) == ["a", "b", "a.seed43", "b.seed43"]
    assert {name: two[name] for name in one} == one
    assert two["b.seed43"].seed == 43
    assert two["b.seed43"].entry == "b"


def test_previous_step():
    model = models()["a"]
    assert [model.previous_step(step) for step in model.steps] == [None, 0, 10, 20]


def test_work_that_waits_falls_along_a_chain_and_grows_with_the_model():
    small, large = models().values()
    assert small.remaining_cost(0) > small.remaining_cost(10) > small.remaining_cost(25) > 0
    assert large.remaining_cost(0) > small.remaining_cost(0)


def test_file_names_sort_as_steps_do():
    steps = [143000, 0, 5, 1000]
    assert sorted(map(paths.checkpoint_name, steps)) == [paths.checkpoint_name(step) for step in sorted(steps)]
    assert [paths.step_of(paths.checkpoint_name(step)) for step in steps] == steps


def test_jobs_of_a_checkpoint_and_of_a_model():
    """Of `a` one job does all checkpoints; `b` was published, and has a job a checkpoint."""
    work = paths.Producer({"a": (0, 10), "b": (5,)}, {"a"})
    assert work.files("{source}/{model}/{checkpoints}", source="weights") == [
        "weights/a/all",
        "weights/b/step-00000005",
    ]
    assert work.files("{checkpoints}", ["b"]) == ["step-00000005"]
    assert work.steps_of("a", "all") == [0, 10]
    assert work.steps_of("a", "step-00000010") == [10]
    assert work.jobs() == [("a", "all"), ("b", "step-00000005")]


def test_a_batch_of_checkpoints_is_named_after_its_first():
    steps = tuple(range(0, 70, 10))
    work = paths.Producer({"a": steps}, batches={"a": 3})
    assert work.jobs() == [("a", "step-00000000"), ("a", "step-00000030"), ("a", "step-00000060")]
    assert [step for _, checkpoints in work.jobs() for step in work.steps_of("a", checkpoints)] == list(steps)
    assert work.job_title == "from {wildcards.checkpoints} on"
    assert paths.Producer({"a": steps}, batches={"a": 1}).job_title == "{wildcards.checkpoints}"
    # A further checkpoint changes only the last job.
    longer = paths.Producer({"a": (*steps, 70)}, batches={"a": 3})
    assert longer.jobs() == work.jobs()
    changed = [
        checkpoints
        for _, checkpoints in work.jobs()
        if longer.steps_of("a", checkpoints) != work.steps_of("a", checkpoints)
    ]
    assert changed == ["step-00000060"]


def test_a_job_does_as_many_checkpoints_of_a_folder_as_fit_into_its_time_by_their_size(tmp_path, monkeypatch):
    for step in range(8):
        (tmp_path / f"step-{step}.safetensors").touch()
    models = {"a": GPT, "f": {"kind": "folder", "path": str(tmp_path)}}

    def jobs(n_parameters, **keys):
        found = Inspection(sizes=Sizes(n_parameters, n_parameters, 1))
        monkeypatch.setattr(Inspections, "of", lambda self, path: found)
        work = plan_of(models=models, training={"steps": 20, "checkpoint_every": 10, "warmup_steps": 1}, **keys).work
        return [len(work["weights"].jobs([name])) for name in models]

    assert jobs(1_000) == [3, 1]
    assert jobs(1_000, weights={"jobs": "checkpoint"}) == [3, 8]
    assert jobs(1_000, weights={"jobs": "model"}) == [1, 1]
    assert jobs(15_000_000) == [3, 3]
    assert jobs(15_000_000, weights={"null_draws": 2}) == [3, 8]
    assert jobs(10**9) == [3, 8]


def test_losses_of_a_folder_are_those_of_a_file_or_those_that_its_checkpoints_hold(tmp_path):
    torch = pytest.importorskip("torch")
    folder = {"kind": "folder", "path": str(tmp_path / "runs")}
    (tmp_path / "runs").mkdir()
    for epoch in (1, 2):
        content = {"epoch": epoch, "step": 100 * epoch, "loss": 3 / epoch, "lr": 0.5 / epoch}
        torch.save({"model": {"w": torch.ones(2, 2)}, **content}, tmp_path / "runs" / f"epoch_{epoch}.pt")
    found = models(models={"mine": folder})["mine"]
    where = {"model": found.name, "metric": "training_loss"}
    assert found.saved_losses == [where | {"step": 100, "value": 3.0}, where | {"step": 200, "value": 1.5}]
    assert found.facts["warmup_at_most"] == 200
    assert found.facts["log_notes"] == (
        "training loss: as saved in the checkpoints\nthe steps: as saved in the checkpoints"
    )
    for epoch in (1, 2):
        torch.save({"w": torch.ones(2, 2)}, tmp_path / "runs" / f"epoch_{epoch}.pt")
    facts = models(models={"mine": folder})["mine"].facts
    assert facts["log_notes"] == "the numbers in the names of the checkpoints, which are epochs, stand for steps"
    assert found.family == "mine"  # not that of other folders
    with_file = models(models={"mine": {**folder, "losses": "losses.csv"}})["mine"]
    assert (with_file.loss_curve, with_file.saved_losses) == ("losses.csv", [])


@pytest.mark.parametrize(("rates", "bound"), [((0.5, 1.0, 0.8), 200), ((0.5, 0.9, 0.8), 300), ((0.2, 0.4, 0.6), None)])
def test_the_warm_up_is_bounded_by_the_schedules_beside_the_weights(tmp_path, rates, bound):
    torch = pytest.importorskip("torch")
    for step, rate in zip((100, 200, 300), rates, strict=True):
        checkpoint = tmp_path / "runs" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        save_file({"w": step * np.ones((2, 2))}, checkpoint / "model.safetensors")
        torch.save({"base_lrs": [1.0], "_last_lr": [rate], "lr_lambdas": [None]}, checkpoint / "scheduler.pt")
    facts = models(models={"mine": {"kind": "folder", "path": str(tmp_path / "runs")}})["mine"].facts
    assert facts["warmup_at_most"] == bound
    assert facts["log_notes"] is None
    # A log without rates takes nothing away, one that shows more does.
    rows = {"steps": [100, 200, 300], "rates": [np.nan] * 3}
    assert rows_of_model("mine", facts, **rows).model["warmup_at_most"] == bound
    rows = {"steps": [50, 60, 300], "rates": [1.0, 0.9, 0.8]}
    assert rows_of_model("mine", facts, **rows).model["warmup_at_most"] == 60


def test_the_notes_of_a_folder_name_a_schedule_that_cannot_be_read(tmp_path):
    for step in (100, 200):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file({"w": step * np.ones((2, 2))}, tmp_path / f"checkpoint-{step}/model.safetensors")
        (tmp_path / f"checkpoint-{step}/scheduler.pt").write_bytes(b"PK\x03\x04 cut")
    facts = models(models={"mine": {"kind": "folder", "path": str(tmp_path)}})["mine"].facts
    assert facts["warmup_at_most"] is None
    file = tmp_path / "checkpoint-100/scheduler.pt"
    assert facts["log_notes"] == (
        f"{file}: not read (BadZipFile: File is not a zip file) and 1 more, so nothing is known of the warm-up from there"
    )


def test_the_only_checkpoint_may_hold_its_step_itself(tmp_path):
    torch = pytest.importorskip("torch")
    folder = {"kind": "folder", "path": str(tmp_path / "runs")}
    (tmp_path / "runs").mkdir()
    torch.save({"model": {"w": torch.ones(2, 2)}, "step": 700}, tmp_path / "runs/model.pt")
    found = models(models={"mine": folder})["mine"]
    assert (found.steps, found.facts["left_out"]) == ((700,), None)
    assert "the steps: as saved in the checkpoints" in found.facts["log_notes"]


def test_losses_of_other_steps_than_the_checkpoints_are_refused(tmp_path, monkeypatch):
    """Epochs in the names, steps in the log: every checkpoint would have the first loss."""
    monkeypatch.chdir(tmp_path)
    for epoch in (1, 2):
        save_file({"w": np.ones((2, 2))}, tmp_path / f"epoch_{epoch}.safetensors")
    for steps, refused in (((100, 200), True), ((0,), True), ((1, 100), False), ((0, 1), False)):
        rows = "".join(f"{step},{3 - step / 1000}\n" for step in steps)
        (tmp_path / "log.csv").write_text(f"step,loss\n{rows}")
        entry = {"kind": "folder", "path": str(tmp_path), "losses": str(tmp_path / "log.csv")}
        found = plan_of(models={"f": entry})
        with pytest.raises(UserError, match="are of steps 1 to 2 by their names") if refused else nullcontext():
            found.check_folders()


def test_files_of_a_live_monitor_are_those_of_its_folder():
    work = paths.Producer({"a": (0,), "b": (5,)}, monitor_folders={"b": "topology"}, run="results/mine")
    assert work.files("results/mine/features/{model}/{checkpoints}") == [
        "results/mine/features/a/step-00000000",
        "topology/features/b/step-00000005",
    ]


def test_models_with_other_checkpoints_are_trained_by_a_rule_of_their_own():
    steps = {"a": (0, 2), "b": (0, 4), "c": (0, 2)}
    assert paths.training_rules(paths.Producer(steps)) == {"train": (("{checkpoints}",), ["a", "b", "c"])}
    assert paths.training_rules(paths.Producer(steps, set(steps))) == {
        "train": (("step-00000000", "step-00000002"), ["a", "c"]),
        "train_2": (("step-00000000", "step-00000004"), ["b"]),
    }
    assert paths.training_rules(paths.Producer({})) == {"train": (("{checkpoints}",), [])}


def test_a_monitored_model_has_the_steps_and_facts_of_its_folder(tmp_path):
    folder = Folder(tmp_path, "mine")
    for step in (200, 0, 100):
        rows = tables.feature_rows({"all": {"h0_total": 1.0}}, model="mine", step=step, source="weights")
        tables.write(rows, folder.file("features/weights", step))
    folder.write_facts(n_parameters=10, tokens_per_step=64, final_step=500)
    monitored = {"kind": "monitor", "path": str(tmp_path)}
    assert models(models={"mine": monitored})["mine"].steps == (0, 100, 200)
    # What the user says goes before what the training was told.
    settings = models(models={"mine": {**monitored, "final_step": 400}})["mine"].settings
    assert (settings["n_parameters"], settings["tokens_per_step"], settings["final_step"]) == (10, 64, 400)
    with pytest.raises(UserError, match="no rows of a model named other; it has mine"):
        models(models={"other": monitored})


def test_every_kind_of_model_is_one_entry_that_schema_and_documentation_know():
    [entries] = schema()["properties"]["models"]["patternProperties"].values()
    assert sorted(entry["properties"]["kind"]["const"] for entry in entries["oneOf"]) == sorted(MODEL_KINDS)
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "docs/own-models.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(MODEL_KINDS)


def test_a_kind_has_checkpoints_where_it_has_features(tmp_path):
    """Those of a folder and of a monitor are read from disk, and tested where these are."""
    plans = {"shape": "constant", "peak": 1e-3, "steps": 9}
    entries = {
        "gpt": {"d_model": 8, "n_layers": 1, "n_heads": 1},
        "hub": {"repo": "me/model", "revisions": "step{step}", "steps": [2, 1]},
        "table": {"path": str(tmp_path / "losses.csv"), "n_parameters": 9},
        "planned": {"n_parameters": 9, "tokens_per_step": 9, "schedule": plans},
    }
    by_kind = models(models={kind: {"kind": kind, **entry} for kind, entry in entries.items()})
    assert {kind: bool(model.steps) for kind, model in by_kind.items()} == {
        kind: MODEL_KINDS[kind].has_features for kind in entries
    }
    assert all(model.kind is MODEL_KINDS[kind] for kind, model in by_kind.items())
    assert by_kind["hub"].steps == (1, 2)


def test_trainings_from_elsewhere_that_name_a_configuration_are_its_seeds():
    table = {"kind": "table", "path": "losses.csv", "n_parameters": 10}
    hub = {"kind": "hub", "repo": "me/model", "revisions": "step{step}", "steps": [1, 2]}
    found = models(
        models={
            "one": {**table, "configuration": "both", "seed": 7},
            "two": {**hub, "configuration": "both", "seed": 8},
            "alone": table,
        }
    )
    assert [(model.configuration, model.seed) for model in found.values()] == [("both", 7), ("both", 8), ("alone", 42)]


def plan_of(**keys):
    return plan.Plan(config_reading.resolve({"run": "mine", "models": {"a": GPT, "a.b": GPT}, **keys}))


GPT = {"d_model": 8, "n_layers": 1, "n_heads": 1}


def test_a_wildcard_is_one_of_the_names_and_nothing_else():
    found = plan_of(sweep={"models": ["a"], "learning_rate": [0.1, 0.2], "seeds": [1, 2]})
    runs = [name for name in found.models if name != "a.b"]
    assert len(runs) == 4
    pattern = re.compile(found.wildcard_regex(found.models))
    assert all(pattern.fullmatch(name) for name in found.models)
    assert not any(pattern.fullmatch(name) for name in ("a", "axb", "a.lr0.1", "a.lr0.3.seed1"))
    assert found.wildcard_regex(runs).count("|") == 1
    assert not re.fullmatch(found.wildcard_regex([]), "")


def test_every_source_measures_the_models_that_have_what_it_needs():
    models = {
        "a": GPT,
        "b": {**GPT, "embeddings": False},
        "t": {"kind": "table", "path": "losses.csv", "n_parameters": 9},
        "h": {"kind": "hub", "repo": "a/b", "revisions": "step{step}", "steps": [0, 7]},
    }
    found = plan_of(models=models, landscape={"enabled": True, "gradients": False, "every": 1000})
    assert found.sources == {"weights": ["a", "b", "h"], "embeddings": ["a", "h"], "landscape": ["a", "b", "h"]}
    assert found.landscaped["h"] == (0, 7)
    assert (found.trained, found.published, list(found.loss_curves)) == (["a", "b"], ["h"], ["t"])
    assert plan_of(embeddings={"enabled": False}).sources == {"weights": ["a", "a.b"]}


@pytest.mark.parametrize(
    ("model", "landscape", "reads"),
    [
        ({"kind": "hub", "embeddings": False}, False, False),
        ({"kind": "hub", "embeddings": False}, True, True),
        ({"kind": "hub"}, False, True),
        ({**GPT, "embeddings": False}, False, True),
    ],
)
def test_the_corpus_is_read_only_for_what_needs_a_text(model, landscape, reads):
    published = {"repo": "a/b", "revisions": "step{step}", "steps": [0, 7]} if model.get("kind") == "hub" else {}
    assert plan_of(models={"m": model | published}, landscape={"enabled": landscape}).reads_text is reads


def test_how_the_work_is_done_is_no_setting_of_what_is_measured():
    one, other = plan_of(), plan_of(weights={"jobs": "model", "threads": 2}, embeddings={"every": 2, "threads": 3})
    assert one.settings == other.settings
    assert one.settings != plan_of(weights={"max_points": 9}).settings
    assert plan.training_settings(one.config["training"]).keys() == one.config["training"].keys() - {
        "jobs",
        "device",
        "sketch",
    }
