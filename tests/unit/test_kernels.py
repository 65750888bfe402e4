"""The fast kernels against plain PyTorch in float64, and their refusal of a second derivative."""

import math

import pytest
import torch
import torch.nn.functional as F

from toposcale import kernels

FLOAT64 = {"rtol": 1e-12, "atol": 1e-13}  # sums of at most a few hundred terms near 1, reordered


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def random_tensor(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def reference_attention(qkv: torch.Tensor, n_heads: int) -> torch.Tensor:
    """One token, one head, one sequence at a time, as the formula reads."""
    d_model = qkv.shape[2] // 3
    d_head = d_model // n_heads
    rows = []
    for sequence in qkv:
        for position in range(qkv.shape[1]):
            parts = []
            for head in range(n_heads):
                columns = slice(head * d_head, (head + 1) * d_head)
                query, keys, values = (
                    sequence[: position + 1, start * d_model : (start + 1) * d_model][:, columns]
                    for start in range(3)
                )
                weights = torch.softmax(keys @ query[-1] / math.sqrt(d_head), dim=0)
                parts.append(weights @ values)
            rows.append(torch.cat(parts))
    return torch.stack(rows).view(qkv.shape[0], qkv.shape[1], d_model)


# 128 and 64 are whole blocks of rows; 33, 70 and 5 end in a short one; 67 sequences end in a short group.
@pytest.mark.parametrize(
    ("batch", "context", "n_heads"), [(2, 64, 2), (1, 33, 1), (2, 70, 3), (1, 5, 2), (1, 1, 1)]
)
@pytest.mark.parametrize("fast", [False, True])
def test_attention_is_the_formula_and_so_is_its_gradient(generator, batch, context, n_heads, fast):
    qkv = random_tensor(generator, batch, context, 3 * 4 * n_heads)
    outer = torch.randn(batch, context, 4 * n_heads, dtype=torch.float64, generator=generator)
    if fast:
        with kernels.first_order_kernels():
            result = kernels.causal_attention(qkv, n_heads)
            (gradient,) = torch.autograd.grad(result, qkv, outer)
    else:
        result = kernels.causal_attention(qkv, n_heads)
        (gradient,) = torch.autograd.grad(result, qkv, outer)
    expected = reference_attention(qkv, n_heads)
    (expected_gradient,) = torch.autograd.grad(expected, qkv, outer)
    torch.testing.assert_close(result, expected, **FLOAT64)
    torch.testing.assert_close(gradient, expected_gradient, **FLOAT64)


def test_attention_of_more_sequences_than_one_tile_holds(generator):
    qkv = random_tensor(generator, 67, 40, 24)
    outer = torch.randn(67, 40, 8, dtype=torch.float64, generator=generator)
    plain = torch.autograd.grad(kernels.causal_attention(qkv, 2), qkv, outer)
    with kernels.first_order_kernels():
        fast = torch.autograd.grad(kernels.causal_attention(qkv, 2), qkv, outer)
    torch.testing.assert_close(fast, plain, **FLOAT64)


def test_linear_is_the_same_in_float32_to_rounding(generator):
    inputs = torch.randn(64, 128, 24, generator=generator).requires_grad_()
    weight = torch.randn(40, 24, generator=generator).requires_grad_()
    bias = torch.randn(40, generator=generator).requires_grad_()
    outer = torch.randn(64, 128, 40, generator=generator)
    exact = [tensor.detach().double().requires_grad_() for tensor in (inputs, weight, bias)]
    with kernels.first_order_kernels():
        result = kernels.linear(inputs, weight, bias)
        gradients = torch.autograd.grad(result, (inputs, weight, bias), outer)
    expected = F.linear(*exact)
    expected_gradients = torch.autograd.grad(expected, exact, outer.double())
    # float32 sums of up to 8,192 terms: the error grows with their root, sqrt(8192) 2^-24 = 5e-6
    # of the root-mean-square term, so 1e-5 of the largest entry.
    for found, wanted in zip((result, *gradients), (expected, *expected_gradients), strict=True):
        assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("n_tokens", [7, 1024, 1500])
def test_cross_entropy_and_its_gradients(generator, n_tokens):
    hidden = random_tensor(generator, 1, n_tokens, 6)
    head = random_tensor(generator, 11, 6)
    targets = torch.randint(11, (1, n_tokens), generator=generator)
    plain = kernels.cross_entropy(hidden, head, targets)
    by_hand = -torch.log_softmax(hidden[0] @ head.T, dim=1)[torch.arange(n_tokens), targets[0]].mean()
    torch.testing.assert_close(plain, by_hand, **FLOAT64)
    with kernels.first_order_kernels():
        fast = kernels.cross_entropy(hidden, head, targets)
    torch.testing.assert_close(fast, plain, **FLOAT64)
    # A factor on the loss has to reach the gradients.
    fast_gradients = torch.autograd.grad(3 * fast, (hidden, head))
    plain_gradients = torch.autograd.grad(3 * plain, (hidden, head))
    torch.testing.assert_close(fast_gradients, plain_gradients, **FLOAT64)


def test_a_target_of_vanishing_probability_has_its_finite_loss():
    hidden = torch.tensor([[[1.0]]])
    head = torch.tensor([[0.0], [500.0]])
    with kernels.first_order_kernels():
        loss = kernels.cross_entropy(hidden, head, torch.tensor([[0]]))
    assert loss.item() == 500.0


def test_a_second_derivative_of_a_fast_kernel_is_refused_not_wrong(generator):
    qkv = random_tensor(generator, 1, 8, 12)
    with kernels.first_order_kernels():
        result = kernels.causal_attention(qkv, 2)
        (gradient,) = torch.autograd.grad(result.square().sum(), qkv, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            gradient.sum().backward()


def test_the_switch_goes_back_even_after_an_error(generator):
    qkv = random_tensor(generator, 1, 3, 12)
    with pytest.raises(KeyError), kernels.first_order_kernels():
        raise KeyError
    assert torch.autograd.gradgradcheck(lambda x: kernels.causal_attention(x, 2), (qkv,), fast_mode=True)
