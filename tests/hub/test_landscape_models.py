"""The loss of a published model as a function of its parameters, and its landscape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from toposcale.checkpoints.language_models import load_model
from toposcale.features import landscape
from toposcale.io.errors import UserError
from toposcale.landscape import Hessian, probe_loss

TOKENS = torch.arange(48).reshape(3, 16) % 300


def test_the_loss_is_that_of_transformers(checkpoint_folders):
    loaded = load_model(checkpoint_folders["step10"], differentiable=True)
    loss = probe_loss(loaded.module, TOKENS[:, :-1], TOKENS[:, 1:])
    reference = AutoModelForCausalLM.from_pretrained(checkpoint_folders["step10"])
    expected = reference(TOKENS, labels=TOKENS).loss.item()
    assert float(loss(dict(loaded.module.named_parameters()))) == pytest.approx(expected, rel=1e-5)
    assert loaded.vocab_size == reference.config.vocab_size


def test_curvature_through_a_model_of_transformers_is_that_of_finite_differences(checkpoint_folders):
    module = load_model(checkpoint_folders["step10"], differentiable=True).module.double()
    loss = probe_loss(module, TOKENS[:, :-1], TOKENS[:, 1:])
    parameters = {name: tensor.detach() for name, tensor in module.named_parameters()}
    estimate, _ = Hessian(loss, parameters).traces(probes=2, seed=0)["all"]
    # The same two probes by second differences of the loss.
    size = sum(tensor.numel() for tensor in parameters.values())
    rng, step, found = np.random.default_rng(0), 1e-3, []
    for _ in range(2):
        signs = torch.from_numpy(rng.integers(0, 2, size=size) * 2.0 - 1.0)
        parts = signs.split([tensor.numel() for tensor in parameters.values()])
        at = [
            float(
                loss(
                    {
                        name: tensor + place * step * part.reshape(tensor.shape)
                        for part, (name, tensor) in zip(parts, parameters.items(), strict=True)
                    }
                )
            )
            for place in (-1, 0, 1)
        ]
        found.append((at[0] - 2 * at[1] + at[2]) / step**2)
    assert estimate == pytest.approx(np.mean(found), rel=1e-2)


def test_a_landscape_has_the_layers_of_the_checkpoint(checkpoint_folders):
    module = load_model(checkpoint_folders["step10"], differentiable=True).module
    loss = probe_loss(module, TOKENS[:, :-1], TOKENS[:, 1:])
    settings = landscape.LandscapeFeatureSettings(
        planes={"random": (1.0,)}, resolution=3, trace_probes=2, density_runs=0
    )
    found = landscape.compute_features([loss], dict(module.named_parameters()), settings)
    assert "gpt_neox.layers.0.attention.query_key_value.weight" in found.features
    assert np.isfinite(found.surfaces["random_1"].values).all()


def test_missing_weights_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such checkpoint"):
        load_model(tmp_path / "nothing", differentiable=True)
