"""config/polypythias.yaml against a small Hub: its seeds are one configuration, what is planted is found, and nothing
else is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file, save
from transformers import AutoTokenizer

import config_reading
import plan
from paths import ROOT
from small_hub import Repository, SmallHub
from studies.over_seeds import between_runs_table, run_permutation_table
from tiny_model import TEXT, save_checkpoints
from toposcale import checkpoints
from toposcale.checkpoints import language_models
from toposcale.checkpoints.hub import HubSource
from toposcale.features import embeddings, weights
from toposcale.statistics.multiple_testing import benjamini_hochberg

STEPS = 16
SENTENCES = [f"{sentence}." for sentence in TEXT.split(". ") if sentence]


# One worker for all of them: they share what is planted.
pytestmark = pytest.mark.xdist_group("polypythias")


@pytest.fixture(scope="module")
def trainings():
    """The models of the configuration, with fewer of their steps."""
    config = yaml.safe_load((ROOT / "config/polypythias.yaml").read_text())
    return plan.models(config_reading.resolve(config))


def test_nine_seeds_are_one_configuration_at_evenly_spaced_steps_after_twice_the_warmup(trainings):
    assert {model.configuration for model in trainings.values()} == {"pythia-14m"}
    assert {model.family for model in trainings.values()} == {"pythia"}
    assert sorted(model.seed for model in trainings.values()) == list(range(1, 10))
    for name, model in trainings.items():
        assert model.settings["repo"] == f"EleutherAI/{name}"
        steps = np.array(model.steps)
        assert len(steps) == 36
        assert set(np.diff(steps)) == {4000}
        assert steps[0] >= 2 * model.settings["warmup_steps"]
        assert steps[-1] == 143_000


def planted(state, unigrams, told, noise, step):
    """The weights of a checkpoint: `told` moves its loss, and the H0 of its first block with the whole norm held."""
    state = dict(state)
    # Every token has the same hidden state, so the head is the log frequency of tokens, nearer to the truth as it trains.
    state["gpt_neox.final_layer_norm.weight"] = torch.zeros(16)
    state["gpt_neox.final_layer_norm.bias"] = torch.eye(16)[0]
    head = torch.zeros_like(state["embed_out.weight"])
    head[:, 0] = unigrams * (1 - 0.8 * np.exp(-step / 5) + 0.03 * told)
    state["embed_out.weight"] = head
    one, two = (f"gpt_neox.layers.{block}.mlp.dense_h_to_4h.weight" for block in (0, 1))
    spread = state[one] / state[one].norm()
    alike = torch.ones_like(state[two]) + 0.01 * state[two]
    angle = np.pi / 4 + 0.05 * told
    state[one] = spread * float(np.sin(angle))
    state[two] = alike / alike.norm() * float(np.cos(angle))
    drift = "gpt_neox.layers.0.attention.dense.weight"
    state[drift] = state[drift] * float(1 + 0.02 * step + 0.02 * noise)
    return save({key: value.contiguous() for key, value in state.items()}, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def measured(trainings, tmp_path_factory):
    """Features, metrics and models of the trainings, fetched from a Hub and read as the jobs read them."""
    base = save_checkpoints(tmp_path_factory.mktemp("checkpoints"))["step0"]
    state = load_file(base / "model.safetensors")
    others = {file.name: file.read_bytes() for file in base.iterdir() if file.suffix != ".safetensors"}
    tokens = embeddings.tokenize(SENTENCES, AutoTokenizer.from_pretrained(base), tokens=64)
    counts = np.bincount(np.concatenate([text[1:] for text in tokens]), minlength=320) + 0.5
    unigrams = torch.tensor(np.log(counts / counts.sum()), dtype=torch.float32)
    settings = weights.WeightSettings.from_mapping({"layers": {"include": ["*"], "exclude": ["*embed*"]}})
    random, features, metrics, models = np.random.default_rng(5), [], [], []
    with SmallHub() as hub, pytest.MonkeyPatch.context() as patched:
        patched.setenv("HF_ENDPOINT", hub.url)
        for name, model in trainings.items():
            steps = model.steps[:STEPS]
            told, noise = random.normal(size=(2, STEPS))
            files = {
                f"step{step}": others | {"model.safetensors": planted(state, unigrams, *draw)}
                for step, *draw in zip(steps, told, noise, range(STEPS), strict=True)
            }
            hub.repositories[model.settings["repo"]] = Repository(files, {})
            source, base = (
                HubSource(model.settings["repo"], model.settings["revisions"]),
                tmp_path_factory.mktemp("fetched"),
            )
            for step, facts in source.listing(steps).items():
                folder = base / str(step)
                source.fetch(facts, folder)
                found, _ = weights.compute_features(checkpoints.Checkpoint(folder).matrices(), settings)
                where = {"model": name, "step": step}
                features += [
                    {**where, "source": "weights", "layer": "all", "feature": key, "value": value}
                    for key, value in found["all"].items()
                ]
                passed = embeddings.forward_pass(language_models.load_model(folder), tokens)
                metrics.append({**where, "metric": "perplexity", "value": passed.perplexity})
            facts = {"warmup_steps": model.settings["warmup_steps"], "final_step": steps[-1]}
            models.append({"model": name, "configuration": model.configuration, "seed": model.seed, **facts})
    return pd.DataFrame(features), pd.DataFrame(metrics), pd.DataFrame(models)


def q_values(features, metrics, models):
    table = run_permutation_table(features, metrics, models, metric="perplexity", seed=1).set_index("feature")
    assert set(table["n_runs"].dropna()) == {9}
    return pd.Series(benjamini_hochberg(table["p"].to_numpy()), index=table.index)


def test_a_planted_effect_within_the_seeds_is_found_and_that_of_another_seed_is_not(measured):
    features, metrics, models = measured
    assert (metrics["value"] > 1).all()
    assert q_values(*measured)["h0_total"] <= 0.01
    # The losses of the next seed: nothing can be there.
    names = sorted(models["model"])
    after = dict(zip(names, [*names[1:], names[0]], strict=True))
    crossed = metrics.assign(model=metrics["model"].map(after))
    assert not (q_values(features, crossed, models) <= 0.05).any()


def test_nine_seeds_are_tested_between_runs_and_nothing_is_found_where_nothing_was_planted(measured):
    table = between_runs_table(*measured, metric="perplexity", seed=1)
    assert set(table["n_runs"]) == {9}
    assert not (benjamini_hochberg(table["p"].to_numpy()) <= 0.05).any()
