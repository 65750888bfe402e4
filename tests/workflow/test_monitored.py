"""From transformers' Trainer to the workflow: what the callback wrote goes through the tables and the advice."""

import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import toposcale
from toposcale import checkpoints
from toposcale.analysis.user_tables import metric_table, training_table
from toposcale.features import weights
from toposcale.features.feature import RELATIVE_CHANGE
from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.io import schemas, tables
from toposcale.monitor import TopologyCallback
from toposcale.monitor.folder import Folder
from workspace import new_workspace

# One worker for all of them: they share one training.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("monitored")]

STEPS, STOPPED_AT, EVERY = 40, 36, 6
NAME = "tiny-gpt2"


class StopAt(TrainerCallback):
    """Ends a training before its time."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


class Norms(TrainerCallback):
    """Keeps the norm of one matrix after each step."""

    def __init__(self):
        self.at = {}

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.at[state.global_step] = float(model.transformer.wte.weight.detach().double().norm())


def tiny_gpt2_and_texts():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    texts = (torch.arange(8) + torch.arange(64)[:, None]) % 16
    data = [{"input_ids": text, "labels": text} for text in texts]
    return model, data


def short_training(path, *others, callback=None, **options):
    """A real Trainer that makes 10 steps from a small GPT-2, with the callback; return the callback."""
    model, data = tiny_gpt2_and_texts()
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments(
        str(path / "trainer"), **({"max_steps": 10, "save_strategy": "no", "logging_steps": 1} | quiet | options)
    )
    callback = callback or TopologyCallback(path / "topology", NAME, every=4, when_busy="wait", tensorboard=False)
    Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[*others, callback]).train()
    return callback


def norm_at(path, step):
    """The norm of the embedding in the snapshot of a step."""
    rows = tables.read(schemas.TABLES["features"], Folder(path / "topology", NAME).file("features/weights", step))
    by_name = rows.to_pandas().set_index(["layer", "feature"])["value"]
    return by_name["transformer.wte.weight", "frobenius_norm"]


def train(path, stop_at, resume_from=None):
    """A real Trainer on a tiny GPT-2, with the callback."""
    model, data = tiny_gpt2_and_texts()
    arguments = TrainingArguments(
        str(path / "trainer"),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=EVERY,
        save_strategy="steps",
        save_steps=STOPPED_AT,
        include_num_input_tokens_seen=True,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    callback = TopologyCallback(path / "topology", NAME, every=EVERY, when_busy="wait", tensorboard=False)
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[callback, StopAt(stop_at)]
    )
    trainer.train(resume_from_checkpoint=resume_from)
    return trainer


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    """A training that was stopped before its end, and a folder to run the workflow in on what it left."""
    made = new_workspace(tmp_path_factory.mktemp("monitored") / "work")
    trainer = train(made.path, STOPPED_AT)
    made.config["models"] = {NAME: {"kind": "monitor", "path": str(made.path / "topology")}}
    return made, trainer


def test_the_rows_of_the_last_snapshot_are_those_of_the_trainers_own_checkpoint(monitored):
    made, _ = monitored
    saved = made.path / "trainer" / f"checkpoint-{STOPPED_AT}"
    features, _ = weights.compute_features(checkpoints.Checkpoint(saved).matrices(), weights.WeightSettings())
    file = Folder(made.path / "topology", NAME).file("features/weights", STOPPED_AT)
    rows = tables.read(schemas.TABLES["features"], file).to_pandas()
    rows = rows[rows["feature"] != RELATIVE_CHANGE]  # it reads the snapshot before, too
    written = rows.set_index(["layer", "feature"])["value"].to_dict()
    expected = {(layer, name): value for layer in features for name, value in features[layer].items()}
    assert written == pytest.approx(expected, rel=1e-12)


def test_a_folder_of_the_same_training_says_the_same(monitored):
    made, _ = monitored
    state = made.path / "trainer" / f"checkpoint-{STOPPED_AT}" / trainer_states.FILE_NAME
    curve, folder = loss_curves.read(state), Folder(made.path / "topology", NAME)
    log = tables.gather(schemas.TABLES["training"], folder.files("training").values())
    assert log == training_table(curve)
    metrics = tables.gather(schemas.TABLES["metrics"], folder.files("metrics/monitor").values())
    assert metrics == metric_table(curve, NAME, folder.steps())
    told = trainer_states.facts(
        trainer_states.read_state(state), checkpoints.Checkpoint(state.parent).count.without_embeddings
    )
    facts = folder.facts()
    assert told["tokens_per_step"] == facts["tokens_per_step"] == 8 * 8
    assert told["final_step"] == facts["final_step"] == STEPS
    assert checkpoints.Checkpoint(state.parent).count.total == facts["n_parameters"]


def test_advice_on_a_training_that_is_under_way(monitored):
    made, trainer = monitored
    made.snakemake("resolved_configuration")
    said = " ".join(toposcale.advise_run(made.results).text().split())
    loss = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row][-1]
    assert f"{NAME}: step {STOPPED_AT} of {STEPS} (90%), validation loss {loss:.4g}" in said
    # The Trainer's own plan is known without asking.
    assert "Schedule learning rate" in said
    assert "0 at the end" in said


def test_the_rows_go_through_the_tables_and_the_analyses(monitored):
    made, trainer = monitored
    made.snakemake(*(f"results/small/tables/{name}.parquet" for name in ("verdicts", "models")))
    features = pd.read_parquet(made.results / "tables" / "features.parquet")
    assert set(features["step"]) == set(range(0, STOPPED_AT + 1, EVERY))
    assert "h0_wasserstein_1" in set(features["feature"])
    metrics = pd.read_parquet(made.results / "tables" / "metrics.parquet")
    ours = metrics[metrics["metric"] == "training_loss"].set_index("step")["value"]
    logged = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
    assert ours.to_dict() == {step: logged[step] for step in range(EVERY, STOPPED_AT + 1, EVERY)}
    [model] = pd.read_parquet(made.results / "tables" / "models.parquet").to_dict("records")
    assert model["n_parameters"] == sum(value.numel() for value in trainer.model.parameters())
    assert model["final_step"] == STEPS
    assert model["tokens_per_step"] == 8 * 8
    verdicts = pd.read_parquet(made.results / "tables" / "verdicts.parquet")
    assert {"neural_persistence", "h0_total", "frobenius_norm"} <= set(verdicts["feature"])


def test_a_training_that_goes_on_takes_up_its_rows(monitored):
    made, _ = monitored
    saved = made.path / "trainer" / f"checkpoint-{STOPPED_AT}"
    train(made.path, STEPS, resume_from=str(saved))
    folder = Folder(made.path / "topology", NAME)
    assert folder.steps() == [*range(0, STOPPED_AT + 1, EVERY), STEPS]
    log = tables.gather(schemas.TABLES["training"], folder.files("training").values())
    assert log["step"].to_pylist() == list(range(1, STEPS + 1))


def test_the_last_snapshot_is_of_the_last_step_though_the_trainer_loads_the_best_weights(tmp_path):
    norms = Norms()
    each_other_step = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    short_training(tmp_path, norms, learning_rate=1e-2, **each_other_step, **best)
    assert Folder(tmp_path / "topology", NAME).steps() == [0, 4, 8, 10]
    assert [norm_at(tmp_path, step) for step in (4, 8, 10)] == pytest.approx([norms.at[step] for step in (4, 8, 10)])


class OutOfMemory(TrainerCallback):
    """Runs out of memory once, in the sixth step."""

    def __init__(self):
        self.begun = 0

    def on_step_begin(self, args, state, control, **kwargs):
        self.begun += 1
        if self.begun == 6:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_training_that_begins_again_with_smaller_batches_replaces_its_rows(tmp_path):
    norms = Norms()
    short_training(tmp_path, norms, OutOfMemory(), auto_find_batch_size=True, learning_rate=1e-2)
    folder = Folder(tmp_path / "topology", NAME)
    assert folder.steps() == [0, 4, 8, 10]
    assert [norm_at(tmp_path, step) for step in (4, 8, 10)] == pytest.approx([norms.at[step] for step in (4, 8, 10)])
    log = tables.gather(schemas.TABLES["training"], folder.files("training").values())
    assert log["step"].to_pylist() == list(range(1, 11))


def test_a_callback_that_follows_a_second_training_records_its_tokens(tmp_path):
    options = {"every": 4, "when_busy": "wait", "tensorboard": False, "overwrite": True}
    callback = TopologyCallback(tmp_path / "topology", NAME, **options)
    for _ in range(2):
        short_training(tmp_path, callback=callback)
        assert Folder(tmp_path / "topology", NAME).facts()["tokens_per_step"] == 8 * 8


def test_a_training_without_a_step_is_not_stopped(tmp_path):
    short_training(tmp_path, max_steps=-1, num_train_epochs=0)
    assert Folder(tmp_path / "topology", NAME).steps() == [0]
