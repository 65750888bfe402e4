"""Once-differentiable forms of the three operations that a training step spends its time in.

Outside `first_order_kernels()` a linear layer, causal attention and the loss are plain PyTorch operations,
which `torch.func` can vectorise and differentiate as often as it likes. Inside it they are exact float32
rewrites that only allow a first derivative; asking for a second one raises. Training and evaluation use
them; curvature does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_first_order = ContextVar("first_order_kernels", default=False)

# Tuned for a second-level cache of 1 MiB: the scores of one tile are SEQUENCES x ROWS x context float32
# numbers.
_SEQUENCES = 64
_ROWS = 32
_LOSS_TOKENS = 1024


@contextmanager
def first_order_kernels() -> Iterator[None]:
    """Within this context the model runs the fast kernels, which can be differentiated only once."""
    token = _first_order.set(True)
    try:
        yield
    finally:
        _first_order.reset(token)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """inputs (..., n_in) times weight (n_out, n_in) transposed, plus bias (n_out,).

    On a CPU the fast form is a 1 x 1 convolution over (batch, token): oneDNN runs it with the widest
    vectors that the processor has, whereas the matrix library behind `F.linear` does so on one vendor's
    processors only.
    """
    if _first_order.get() and inputs.dim() == 3 and inputs.device.type == "cpu" and _has_onednn():
        # Strides of a channels-last image: oneDNN then reads the tokens where they lie, without a copy.
        image = inputs.unsqueeze(2).permute(0, 3, 1, 2)
        output = F.conv2d(image, weight[:, :, None, None], bias)
        return output.permute(0, 2, 3, 1).squeeze(2)
    return F.linear(inputs, weight, bias)


def causal_attention(qkv: Tensor, n_heads: int) -> Tensor:
    """Multi-head softmax attention in which a token sees itself and earlier ones.

    qkv (batch, context, 3 d_model) holds queries, keys and values, each with its heads side by side; returns
    (batch, context, d_model). Scores are divided by sqrt(d_model / n_heads).
    """
    if not _first_order.get():
        return _plain_attention(qkv, n_heads)
    if qkv.device.type == "cpu":
        return _TiledAttention.apply(qkv, n_heads)
    query, key, value = _split_heads(qkv, n_heads)
    return _join_heads(F.scaled_dot_product_attention(query, key, value, is_causal=True))


def cross_entropy(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of targets (batch, context) under the logits hidden @ head.T.

    hidden (batch, context, d_model), head (vocab_size, d_model). The fast form never holds all the logits.
    """
    if _first_order.get() and hidden.device.type == "cpu":
        return _TiledCrossEntropy.apply(hidden, head, targets)
    logits = F.linear(hidden, head)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available()


def _split_heads(qkv: Tensor, n_heads: int) -> list[Tensor]:
    """(batch, context, 3 d_model) -> three of (batch, n_heads, context, d_head)."""
    batch, context, width = qkv.shape
    parts = qkv.view(batch, context, 3, n_heads, width // (3 * n_heads))
    return [part.transpose(1, 2) for part in parts.unbind(2)]


def _join_heads(attended: Tensor) -> Tensor:
    return attended.transpose(1, 2).flatten(2)


def _plain_attention(qkv: Tensor, n_heads: int) -> Tensor:
    query, key, value = _split_heads(qkv, n_heads)
    context = qkv.shape[1]
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    future = torch.ones(context, context, dtype=torch.bool, device=qkv.device).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    return _join_heads(weights @ value)


class _Tile:
    """One head of some sequences: its slices of qkv, and the attention weights of a block of its rows."""

    def __init__(self, qkv: Tensor, head: int, n_heads: int) -> None:
        d_model = qkv.shape[2] // 3
        self.size = d_model // n_heads
        self.columns = slice(head * self.size, (head + 1) * self.size)
        self.query, self.key, self.value = (part[:, :, self.columns] for part in qkv.split(d_model, dim=2))

    def probabilities(self, rows: slice, scratch: Tensor) -> tuple[Tensor, Tensor]:
        """Attention weights (sequences, rows, rows.stop), and as much spare room; both live in `scratch`."""
        shape = (self.query.shape[0], rows.stop - rows.start, rows.stop)
        scores, weights = (buffer[: math.prod(shape)].view(shape) for buffer in scratch)
        keys = self.key[:, : rows.stop].transpose(1, 2)
        scale = 1 / math.sqrt(self.size)
        torch.baddbmm(scores, self.query[:, rows], keys, beta=0, alpha=scale, out=scores)
        future = torch.full((shape[1], shape[1]), -math.inf, dtype=scores.dtype).triu_(1)
        scores[:, :, rows.start :] += future
        torch.softmax(scores, -1, out=weights)
        return weights, scores


def _row_blocks(context: int) -> list[slice]:
    return [slice(start, min(start + _ROWS, context)) for start in range(0, context, _ROWS)]


def _scratch(qkv: Tensor) -> Tensor:
    batch, context, _ = qkv.shape
    return qkv.new_empty(2, min(batch, _SEQUENCES) * min(_ROWS, context) * context)


class _TiledAttention(torch.autograd.Function):
    """Causal attention in tiles that stay in cache and leave out keys beyond a block of rows.

    The weights are computed again in the backward pass: cheaper than writing them out and reading them
    back. Products with few columns (a head is 8 to 12 wide) are computed transposed, which the matrix
    library does 2 to 3 x faster.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, n_heads: int) -> Tensor:
        batch, context, width = qkv.shape
        ctx.save_for_backward(qkv)
        ctx.n_heads = n_heads
        output = qkv.new_empty(batch, context, width // 3)
        scratch = _scratch(qkv)
        for start in range(0, batch, _SEQUENCES):
            some = slice(start, start + _SEQUENCES)
            for head in range(n_heads):
                tile = _Tile(qkv[some], head, n_heads)
                attended = qkv.new_empty(tile.query.shape).transpose(1, 2).contiguous()
                for rows in _row_blocks(context):
                    weights, _ = tile.probabilities(rows, scratch)
                    values = tile.value[:, : rows.stop].transpose(1, 2)
                    attended[:, :, rows] = torch.bmm(values, weights.transpose(1, 2))
                output[some, :, tile.columns] = attended.transpose(1, 2)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (qkv,) = ctx.saved_tensors
        result = torch.empty_like(qkv)
        scratch = _scratch(qkv)
        for start in range(0, qkv.shape[0], _SEQUENCES):
            some = slice(start, start + _SEQUENCES)
            for head in range(ctx.n_heads):
                tile = _Tile(qkv[some], head, ctx.n_heads)
                parts = _tile_backward(tile, gradient[some, :, tile.columns], scratch)
                for target, part in zip(result[some].chunk(3, dim=2), parts, strict=True):
                    target[:, :, tile.columns] = part.transpose(1, 2)
        return result, None


def _tile_backward(tile: _Tile, gradient: Tensor, scratch: Tensor) -> Tensor:
    """Gradients of one tile's queries, keys and values, stacked: (3, sequences, d_head, context)."""
    sequences, context, size = gradient.shape
    stacked = gradient.new_zeros(3, sequences, size, context)
    d_query, d_key, d_value = stacked
    for rows in _row_blocks(context):
        seen = slice(0, rows.stop)
        weights, d_weights = tile.probabilities(rows, scratch)
        outer = gradient[:, rows]
        d_value[:, :, seen] += torch.bmm(outer.transpose(1, 2), weights)
        torch.bmm(outer, tile.value[:, seen].transpose(1, 2), out=d_weights)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        d_query[:, :, rows] = torch.bmm(tile.key[:, seen].transpose(1, 2), d_scores.transpose(1, 2))
        d_key[:, :, seen] += torch.bmm(tile.query[:, rows].transpose(1, 2), d_scores)
    stacked[:2] *= 1 / math.sqrt(size)
    return stacked


class _TiledCrossEntropy(torch.autograd.Function):
    """Output head and loss together, some tokens at a time; the gradient is found on the way forward.

    The logarithm of a row's normaliser is its largest logit minus the log of its largest probability: the one
    probability that cannot underflow. The products are transposed for the reason given at `_TiledAttention`.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
        inputs = hidden.reshape(-1, hidden.shape[-1])
        wanted = targets.reshape(-1, 1)
        d_inputs = torch.empty_like(inputs)
        d_head = torch.zeros_like(head.T, memory_format=torch.contiguous_format)
        total = inputs.new_zeros(())
        minus_one = inputs.new_full((_LOSS_TOKENS, 1), -1.0)
        for start in range(0, len(inputs), _LOSS_TOKENS):
            some = slice(start, start + _LOSS_TOKENS)
            logits = inputs[some] @ head.T
            probabilities = torch.softmax(logits, dim=-1)
            normalisers = logits.amax(dim=1) - probabilities.amax(dim=1).log()
            total += normalisers.sum() - logits.gather(1, wanted[some]).sum()
            d_logits = probabilities.scatter_add_(1, wanted[some], minus_one[: len(logits)])
            d_inputs[some] = torch.mm(head.T, d_logits.T).T
            d_head.addmm_(inputs[some].T, d_logits)
        weight = 1 / len(inputs)
        ctx.save_for_backward(d_inputs.mul_(weight).view_as(hidden), d_head.mul_(weight).T)
        return total * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        d_hidden, d_head = ctx.saved_tensors
        return gradient * d_hidden, gradient * d_head, None
