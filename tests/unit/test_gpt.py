"""The model: sizes, initialisation, causality, and agreement with an independent implementation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, hessian, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from toposcale.training.gpt import GPT, GPTShape

FAMILY = [
    ("tiny-3k", 8, 1, 1, 2_936),
    ("small-7k", 16, 1, 2, 7_408),
    ("med-21k", 24, 2, 2, 20_640),
    ("large-46k", 32, 3, 4, 46_368),
    ("xl-97k", 48, 3, 4, 97_200),
]


@pytest.mark.parametrize(("name", "d_model", "n_layers", "n_heads", "n_parameters"), FAMILY)
def test_gpt_parameter_counts_of_the_family(name, d_model, n_layers, n_heads, n_parameters):
    model = GPT(GPTShape(128, 128, d_model, n_layers, n_heads))
    assert sum(parameter.numel() for parameter in model.parameters()) == n_parameters
    assert GPTShape(128, 128, d_model, n_layers, n_heads).n_parameters == n_parameters


def small_model(seed: int = 3) -> GPT:
    """Random in every parameter: LayerNorm and biases as well, so that a forgotten one shows."""
    model = GPT(GPTShape(11, 9, 8, 2, 2), seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def small_batch(n: int = 3) -> torch.Tensor:
    return torch.randint(11, (n, 10), generator=torch.Generator().manual_seed(5))


ENCODER_NAMES = {
    "attention.qkv.weight": "self_attn.in_proj_weight",
    "attention.qkv.bias": "self_attn.in_proj_bias",
    "attention.projection": "self_attn.out_proj",
    "attention_norm": "norm1",
    "feed_forward.expansion": "linear1",
    "feed_forward.projection": "linear2",
    "feed_forward_norm": "norm2",
    "blocks": "layers",
    "final_norm": "norm",
}


def encoder_name(name: str) -> str:
    for ours, theirs in ENCODER_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def encoder_of_pytorch(model: GPT) -> nn.TransformerEncoder:
    """PyTorch's own pre-norm encoder with the same weights."""
    layer = nn.TransformerEncoderLayer(8, 2, 32, dropout=0, activation="gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False).double()
    state = {encoder_name(name): value for name, value in model.state_dict().items() if "embedding" not in name}
    encoder.load_state_dict(state)
    return encoder


def test_gpt_loss_and_gradient_agree_with_pytorchs_own_encoder():
    model, batch = small_model(), small_batch()
    tokens, targets = batch[:, :-1], batch[:, 1:]
    encoder = encoder_of_pytorch(model)
    token_embedding = model.token_embedding.weight.detach().clone().requires_grad_()
    positions = model.position_embedding.weight.detach().clone().requires_grad_()
    mask = nn.Transformer.generate_square_subsequent_mask(9).double()
    logits = encoder(token_embedding[tokens] + positions, mask=mask) @ token_embedding.T
    expected = F.cross_entropy(logits.transpose(1, 2), targets)
    theirs = {
        "token_embedding.weight": token_embedding,
        "position_embedding.weight": positions,
        **dict(encoder.named_parameters()),
    }
    in_our_order = [theirs[encoder_name(name)] for name, _ in model.named_parameters()]
    wanted = torch.autograd.grad(expected, in_our_order)
    torch.testing.assert_close(model(tokens), logits, rtol=1e-12, atol=1e-12)
    loss = model.loss(tokens, targets)
    found = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)


def test_gpt_a_later_token_changes_no_earlier_logit():
    model, tokens = small_model(), small_batch()[:, :9]
    for changed in range(1, 9):
        other = tokens.clone()
        other[:, changed] = (other[:, changed] + 1) % 11
        difference = (model(tokens) - model(other)).abs().amax(dim=(0, 2))
        assert difference[:changed].max() == 0
        assert difference[changed:].min() > 1e-6


def test_gpt_second_derivative_matches_finite_differences():
    model, batch = small_model(), small_batch(2)
    name = "blocks.0.attention.projection.bias"
    parameters = {key: value.detach() for key, value in model.named_parameters()}

    def loss(bias: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model, {**parameters, name: bias}, (batch[:, :-1],))
        return F.cross_entropy(logits.transpose(1, 2), batch[:, 1:])

    with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no second derivative
        exact = hessian(loss)(parameters[name])
    step = 1e-5  # error of central differences of gradients: step^2 from the curve, 1e-16 / step from rounding
    columns = []
    for direction in torch.eye(8, dtype=torch.float64):
        ends = [torch.func.grad(loss)(parameters[name] + sign * step * direction) for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    torch.testing.assert_close(exact, torch.stack(columns), rtol=1e-6, atol=1e-9)


def test_gpt_vmap_over_weights_is_a_loop_over_weights():
    model, batch = small_model(), small_batch(2)
    others = [small_model(seed) for seed in (1, 2, 3)]
    stacked = {
        name: torch.stack([dict(other.named_parameters())[name].detach() for other in others])
        for name, _ in model.named_parameters()
    }

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = functional_call(model, parameters, (batch[:, :-1],))
        return F.cross_entropy(logits.transpose(1, 2), batch[:, 1:])

    expected = torch.stack([other.loss(batch[:, :-1], batch[:, 1:]) for other in others])
    torch.testing.assert_close(vmap(loss)(stacked), expected, rtol=1e-12, atol=0)


def test_gpt_hidden_states_end_in_what_the_head_reads():
    model, tokens = small_model(), small_batch()[:, :6]
    stream = model.all_hidden_states(tokens)
    assert len(stream) == 3
    assert torch.equal(stream[-1], model.hidden_states(tokens))
    assert torch.equal(stream[-1] @ model.token_embedding.weight.T, model(tokens))
    embedded = model.token_embedding.weight[tokens] + model.position_embedding.weight[:6]
    assert torch.equal(stream[0], embedded)


def test_gpt_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    first = GPT(GPTShape(128, 128, 48, 3, 4), seed=42)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1)), "building a model drew from the global generator"
    second, other = GPT(GPTShape(128, 128, 48, 3, 4), seed=42), GPT(GPTShape(128, 128, 48, 3, 4), seed=43)
    for (name, one), two, three in zip(first.named_parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        values = one.detach().numpy()
        if one.dim() == 2:
            assert not torch.equal(one, three)
            # Five standard errors of the mean and of the standard deviation of n normal numbers.
            assert abs(values.mean()) < 5 * 0.02 / np.sqrt(values.size)
            assert abs(values.std() - 0.02) < 5 * 0.02 / np.sqrt(2 * values.size)
        else:
            assert np.all(values == (1 if name.endswith("norm.weight") else 0))


def test_gpt_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="d_model: 10 is not a multiple of n_heads, 4"):
        GPT(GPTShape(128, 128, 10, 1, 4))
    with pytest.raises(ValueError, match="n_layers: 0"):
        GPT(GPTShape(128, 128, 8, 0, 1))
    with pytest.raises(ValueError, match="tokens: 10 in a sequence, but the context is 9"):
        small_model()(small_batch())
