"""Decoder-only transformer, the language model that the experiments train."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTShape:
    """Sizes of a `GPT`; ValueError for a size below 1, or a width that is not a multiple of the number of heads."""

    vocab_size: int
    context: int
    d_model: int
    n_layers: int
    n_heads: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name}: {value}, but a model needs at least 1")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model: {self.d_model} is not a multiple of n_heads, {self.n_heads}")

    @property
    def n_parameters(self) -> int:
        """Number of parameters, computed without building the model."""
        d = self.d_model
        return (self.vocab_size + self.context) * d + self.n_layers * (12 * d * d + 13 * d) + 2 * d


class _Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.projection = nn.Linear(d_model, d_model)

    def forward(self, inputs: Tensor) -> Tensor:
        # (batch, time, 3 d_model) -> three of (batch, heads, time, d_head)
        parts = self.qkv(inputs).unflatten(-1, (3, self.n_heads, -1)).unbind(-3)
        query, key, value = (part.transpose(-3, -2) for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(attended.transpose(-3, -2).flatten(-2))


class _FeedForward(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.expansion = nn.Linear(d_model, 4 * d_model)
        self.projection = nn.Linear(4 * d_model, d_model)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.projection(F.gelu(self.expansion(inputs)))


class _Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = _Attention(d_model, n_heads)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = _FeedForward(d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class GPT(nn.Module):
    """Decoder-only transformer: pre-LayerNorm, exact GELU, learned positions, biases, tied head, no dropout.

    It has V d + T d + L (12 d^2 + 13 d) + 2 d parameters for vocabulary V, context T, width d and L layers. Matrices are
    initialised as N(0, 0.02^2) by a generator seeded with `seed`, biases as 0, LayerNorm as 1 and 0.
    """

    def __init__(self, shape: GPTShape, *, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        with torch.random.fork_rng(devices=[]):  # the layers of PyTorch draw from the global generator
            self.token_embedding = nn.Embedding(shape.vocab_size, shape.d_model)
            self.position_embedding = nn.Embedding(shape.context, shape.d_model)
            self.blocks = nn.ModuleList([_Block(shape.d_model, shape.n_heads) for _ in range(shape.n_layers)])
        self.final_norm = nn.LayerNorm(shape.d_model)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    parameter.normal_(0, 0.02, generator=generator)
                elif name.endswith("bias"):
                    parameter.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (batch, context, vocab_size) of the next token for integer tokens (batch, context)."""
        return F.linear(self.hidden_states(tokens), self.token_embedding.weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats of targets (batch, context) given tokens (batch, context)."""
        return F.cross_entropy(self(tokens).flatten(0, -2), targets.flatten())

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """Return the last hidden states (batch, context, d_model), after the final LayerNorm."""
        return self.all_hidden_states(tokens)[-1]

    def all_hidden_states(self, tokens: Tensor) -> list[Tensor]:
        """Return the embeddings and the output of each block, n_layers + 1 in all; the last after the final LayerNorm."""
        length = tokens.shape[-1]
        if length > self.shape.context:
            raise ValueError(f"tokens: {length} in a sequence, but the context is {self.shape.context}")
        stream = [self.token_embedding(tokens) + self.position_embedding.weight[:length]]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        return [*stream[:-1], self.final_norm(stream[-1])]
