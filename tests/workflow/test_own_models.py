"""A person's own training: folders that transformers' Trainer left, bare files of weights, and what is wrong with some."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import toposcale
from page_data import rows_of
from toposcale.io import tables
from workspace import new_workspace

# One worker for all of them: they share one training.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("own")]

STEPS, EVERY, CONTEXT = 40, 10, 8


def train(path, model):
    """A real Trainer on cyclic texts: 2 x 4 texts of 8 tokens a step, logged every four steps."""
    texts = (torch.arange(CONTEXT) + torch.arange(64)[:, None]) % 16
    data = [{"input_ids": text, "labels": text} for text in texts]
    arguments = TrainingArguments(
        str(path),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_steps=4,
        eval_strategy="steps",
        eval_steps=EVERY,
        save_steps=EVERY,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folders of a two-layer Llama and a two-layer GPT-2, and the Trainers."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("own")
    gpt2 = GPT2Config(vocab_size=16, n_positions=CONTEXT, n_embd=8, n_layer=2, n_head=2)
    llama = LlamaConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
    )
    models = {"gpt2": GPT2LMHeadModel(gpt2), "llama": LlamaForCausalLM(llama)}
    return path, {name: train(path / name, model) for name, model in models.items()}


def table(workspace, name):
    return pd.read_parquet(workspace.results / "tables" / f"{name}.parquet")


@pytest.fixture(scope="module")
def measured(trained, tmp_path_factory):
    """The tables of a run on these folders and a table of the person's own, of which one name fits no model."""
    path, trainers = trained
    own = new_workspace(tmp_path_factory.mktemp("measured") / "work")
    # Sizes of one family are compared; of two architectures a person has to say so.
    entry = {"kind": "folder", "family": "mine"}
    own.config = {
        "run": "small",
        "models": {name: {**entry, "path": str(path / name)} for name in trainers},
        "metrics": {"tables": ["accuracy.csv"]},
    }
    rows = [{"model": name, "step": 10, "metric": "accuracy", "value": 0.5} for name in ("gpt2", "other")]
    pd.DataFrame(rows).to_csv(own.path / "accuracy.csv", index=False)
    own.snakemake("tables")
    return own


def test_folders_of_the_trainer_give_losses_forecasts_decisions_and_advice(trained, measured):
    _, trainers = trained
    models = table(measured, "models").set_index("model")
    for name, trainer in trainers.items():
        assert models.loc[name, "tokens_per_step"] == 4 * 2 * CONTEXT
        assert models.loc[name, "final_step"] == STEPS
        assert models.loc[name, "n_parameters"] == sum(value.numel() for value in trainer.model.parameters())
    metrics = table(measured, "metrics").set_index(["model", "metric", "step"])["value"].sort_index()
    for name, trainer in trainers.items():
        evaluated = {row["step"]: row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row}
        assert metrics[name, "validation_loss"].to_dict() == evaluated
        # The checkpoint of step 10 lies between the logged steps 8 and 12.
        logged = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
        assert metrics[name, "training_loss", 10] == logged[12]
    forecasts = table(measured, "forecasts")
    assert set(forecasts.dropna(subset=["forecast"])["model"]) == set(trainers)
    assert set(table(measured, "decisions")["model"]) & set(trainers)
    assert models["left_out"].str.contains("there is no tokenizer").all()
    assert not table(measured, "warnings")["concerns"].str.contains("embeddings").any()
    assert "is finished; nothing is left to decide" in toposcale.advise_run(measured.results).text()


def damage(folder):
    """One checkpoint with a NaN weight, one of another shape, one that is half written."""
    nan = load_file(folder / "step20.safetensors")
    name = next(name for name in nan if name.endswith("q_proj.weight"))
    nan[name][0, 0] = np.nan
    save_file(nan, folder / "step20.safetensors")
    other = load_file(folder / "step30.safetensors")
    save_file({name: tensor[:4] for name, tensor in other.items()}, folder / "step30.safetensors")
    whole = (folder / "step40.safetensors").read_bytes()
    (folder / "step40.safetensors").write_bytes(whole[: len(whole) // 2])


def test_bare_weights_some_of_them_damaged_give_a_report_that_names_each(trained, tmp_path):
    path, _ = trained
    own = new_workspace(tmp_path / "work")
    (own.path / "files").mkdir()
    for step in range(EVERY, STEPS + 1, EVERY):
        weights = path / "llama" / f"checkpoint-{step}" / "model.safetensors"
        shutil.copy(weights, own.path / "files" / f"step{step}.safetensors")
    damage(own.path / "files")
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "files"}}}
    own.snakemake()
    page = (own.results / "report.html").read_text()
    assert "features are NaN" in rows_of(page, "warnings")
    assert "Claims of the sources" not in page
    assert {path.stem for path in (own.results / "tables").glob("*.parquet")}.isdisjoint({"claims", "comparison"})
    assert "There are no warnings" not in page
    [sentence] = table(own, "summary")["answer"]
    assert "No loss is known" in sentence
    assert "The layers that changed most" in page
    assert "Does the shape of the weights tell more" not in page
    assert "1 language model" not in page
    features = table(own, "features").query("feature == 'frobenius_norm' and source == 'weights'")
    measured = sorted(set(range(EVERY, STEPS + 1, EVERY)) - {30, 40})
    assert sorted(features.loc[features["layer"] == "all", "step"]) == measured
    warnings = table(own, "warnings")
    assert set(warnings["model"]) == {"mine"}
    # What has no remedy is a fact, such as a matrix that is too small for an exponent.
    warnings = warnings[warnings["remedy"] != ""]
    said = {row.steps: f"{row.concerns}: {row.warning}" for row in warnings.itertuples() if row.steps}
    assert sorted(said) == ["20", "30", "40"]
    assert "q_proj" in said["20"]
    assert "shapes" in said["30"]
    assert "step40.safetensors" in said["40"]
    assert pd.isna(
        table(own, "models").loc[0, "left_out"]
    )  # nobody expects embeddings where no language model is known


def test_a_table_with_names_that_fit_no_model_is_a_warning_that_names_both(measured):
    warning = table(measured, "warnings").set_index("model").loc["other"]
    assert "accuracy.csv" in warning["concerns"]
    assert "'other'" in warning["warning"]
    assert "gpt2" in warning["warning"]
    found = table(measured, "metrics").query("metric == 'accuracy'")
    assert found["model"].tolist() == ["gpt2"]


def test_a_checkpoint_that_is_damaged_inside_is_a_gap(trained, tmp_path):
    """Its header is whole, so only the job that reads it can see the damage."""
    path, _ = trained
    own = new_workspace(tmp_path / "work")
    shutil.copytree(path / "gpt2", own.path / "gpt2")
    index = own.path / "gpt2" / "checkpoint-20" / "model.safetensors"
    header = index.read_bytes()
    size = int.from_bytes(header[:8], "little")
    entries = json.loads(header[8 : 8 + size])
    assert "__metadata__" in entries
    torch.save({"wte": "no tensor"}, own.path / "gpt2" / "checkpoint-20" / "pytorch_model.bin")
    index.unlink()
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "gpt2"}}}
    own.snakemake("results/small/tables/warnings.parquet")
    warnings = table(own, "warnings").set_index("steps")
    assert "pytorch_model.bin" in warnings.loc["20", "warning"]
    assert 20 not in set(table(own, "features")["step"])
    assert tables.read_metadata(own.results / "tables" / "warnings.parquet")["left_out"] == "1"
    # The words of its remedy.
    assert "fix the checkpoint and run again" in warnings.loc["20", "remedy"]
    shutil.copy(path / "gpt2" / "checkpoint-20" / "model.safetensors", index)
    own.snakemake("results/small/tables/warnings.parquet")
    assert 20 in set(table(own, "features")["step"])
    assert "20" not in set(table(own, "warnings")["steps"])
    assert tables.read_metadata(own.results / "tables" / "warnings.parquet")["left_out"] == "0"
    # A file that is replaced by an older one changes neither the time of its folder nor that of any output.
    assert own.planned("results/small/tables/warnings.parquet") == {}
    shutil.copy2(path / "gpt2" / "checkpoint-10" / "model.safetensors", index)
    assert own.planned("results/small/tables/warnings.parquet")["weight_features"] == 1


def test_tables_have_the_same_bytes_however_the_checkpoints_of_a_folder_are_cut_into_jobs(tmp_path):
    made = {}
    for jobs, started in (("auto", 1), ("checkpoint", 3)):
        own = new_workspace(tmp_path / jobs)
        rng = np.random.default_rng(0)
        (own.path / "files").mkdir()
        for step in (10, 20, 30):
            # The second cannot be measured.
            matrix = rng.standard_normal((8, 6)) if step != 20 else np.full((8, 6), np.nan)
            save_file({"w": matrix}, own.path / "files" / f"step{step}.safetensors")
        own.config = {
            "run": "small",
            "models": {"mine": {"kind": "folder", "path": "files"}},
            "weights": {"jobs": jobs},
        }
        said = own.snakemake("results/small/tables/vectors.parquet", "results/small/tables/warnings.parquet").stderr
        assert said.count(": Topology of the weights") == started
        made[jobs] = own.tables()
    assert made["auto"] == made["checkpoint"]
    assert {"features.parquet", "vectors.parquet", "warnings.parquet"} <= made["auto"].keys()


def test_masks_and_tensors_that_never_change_are_said_and_left_out(tmp_path):
    own = new_workspace(tmp_path)
    rng = np.random.default_rng(0)
    (own.path / "files").mkdir()
    base, mask = rng.standard_normal((20, 18)), np.tri(16)
    for step in (10, 20, 30):
        moved = step * rng.standard_normal((20, 18))
        save_file({"base": base, "mask": mask, "moved": moved}, own.path / "files" / f"step{step}.safetensors")
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "files"}}}
    own.snakemake("results/small/tables/warnings.parquet")
    features = pd.read_parquet(own.results / "tables" / "features.parquet").query("source == 'weights'")
    assert set(features["layer"]) == {"moved", "all"}
    norms = features[features["feature"] == "frobenius_norm"].pivot(index="step", columns="layer", values="value")
    assert (norms["all"] == norms["moved"]).all()
    warnings = pd.read_parquet(own.results / "tables" / "warnings.parquet")["warning"]
    assert warnings.str.contains("not measured: 1 tensor, 26.2%, masks: mask", regex=False).sum() == 1
    assert warnings.str.contains("not measured: 1 tensor, 36.9%, the same at every checkpoint", regex=False).sum() == 1
    # What changes at last was never frozen, so the others are measured again.
    save_file({"base": 2 * base, "mask": mask, "moved": base}, own.path / "files" / "step40.safetensors")
    own.snakemake("results/small/tables/warnings.parquet")
    features = pd.read_parquet(own.results / "tables" / "features.parquet").query("source == 'weights'")
    assert features.groupby("layer")["step"].nunique().to_dict() == {"all": 4, "base": 4, "moved": 4}


def test_a_damaged_last_state_of_a_trainer_stands_in_the_warnings(tmp_path):
    own = new_workspace(tmp_path / "work")
    for step in (10, 20):
        checkpoint = own.path / "out" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        save_file({"w": np.full((3, 4), step, dtype=np.float32)}, checkpoint / "model.safetensors")
        state = {"global_step": step, "log_history": [{"step": at, "loss": 4.0} for at in range(1, step)]}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    (checkpoint / "trainer_state.json").write_text("{")
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "out"}}}
    own.snakemake("results/small/tables/warnings.parquet")
    warnings = pd.read_parquet(own.results / "tables" / "warnings.parquet")
    [row] = warnings[warnings["concerns"] == "training log"].to_dict("records")
    assert (row["model"], row["steps"]) == ("mine", "20")
    assert row["warning"].startswith("out/checkpoint-20/trainer_state.json: not the state of a Trainer (")


def test_two_trainings_in_one_folder_are_refused(trained, tmp_path):
    path, _ = trained
    own = new_workspace(tmp_path / "work")
    shutil.copytree(path / "gpt2", own.path / "gpt2")
    state = own.path / "gpt2" / "checkpoint-20" / "trainer_state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"log_history": [{"loss": 9.0, "step": 2}]}))
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "gpt2"}}}
    done = own.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("toposcale: ")
    assert "steps: [10, 30, 40] or steps: [20]" in last
