"""A training step against a plain PyTorch loop of the same model with fused AdamW, batch 64, context 128."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import Line, Row, best_in_turn
from toposcale.training.gpt import GPTShape
from toposcale.training.trainer import TrainingSettings, configure_torch, initial_state, train

FAMILY = {
    "tiny-3k": GPTShape(128, 128, 8, 1, 1),
    "small-7k": GPTShape(128, 128, 16, 1, 2),
    "med-21k": GPTShape(128, 128, 24, 2, 2),
    "large-46k": GPTShape(128, 128, 32, 3, 4),
    "xl-97k": GPTShape(128, 128, 48, 3, 4),
}
STEPS = 2  # in one measurement
ROUNDS = 60


class PlainBlock(nn.Module):
    """A transformer block as a tutorial writes it, with PyTorch's own fused attention."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.projection = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.expansion, self.contraction = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, context, width = hidden.shape
        parts = self.qkv(self.norm_1(hidden)).split(width, dim=2)
        heads = [part.view(batch, context, self.n_heads, -1).transpose(1, 2) for part in parts]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + self.projection(attended.transpose(1, 2).reshape(batch, context, width))
        return hidden + self.contraction(F.gelu(self.expansion(self.norm_2(hidden))))


class PlainGPT(nn.Module):
    """The reference model of the benchmark."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.blocks = nn.Sequential(*(PlainBlock(shape.d_model, shape.n_heads) for _ in range(shape.n_layers)))
        self.norm = nn.LayerNorm(shape.d_model)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(hidden)), self.tokens.weight)


def plain_loop(shape: GPTShape, settings: TrainingSettings, tokens: np.ndarray) -> Callable[[], None]:
    """A function that takes `STEPS` steps the plain way."""
    torch.manual_seed(settings.seed)
    model = PlainGPT(shape)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    text = torch.from_numpy(tokens.astype(np.int64))

    def steps() -> None:
        for _ in range(STEPS):
            starts = torch.randint(len(text) - shape.context, (settings.batch_size, 1))
            sequences = text[starts + torch.arange(shape.context + 1)]
            logits = model(sequences[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            loss.item()

    return steps


def library_loop(name: str, shape: GPTShape, settings: TrainingSettings, tokens: np.ndarray) -> Callable[[], None]:
    """A function that takes `STEPS` steps with the library."""
    state = initial_state(name, shape, settings, torch.device("cpu"))
    return lambda: train(state, settings, tokens, state.step + STEPS) and None


def rows() -> Iterator[Line]:
    """Seconds a step of every size, the least of rounds in turn."""
    configure_torch("cpu")
    settings = TrainingSettings(steps=10**6)
    # As frequent as letters in text, so that the gradient of the embedding meets as many repeats as in training.
    tokens = np.random.default_rng(0).zipf(1.3, 100_000).clip(1, 100).astype(np.uint16)
    for name, shape in FAMILY.items():
        loops = library_loop(name, shape, settings, tokens), plain_loop(shape, settings, tokens)
        best_in_turn(*loops, rounds=1)  # pays for memory and for what PyTorch prepares on first use
        ours, plain = best_in_turn(*loops, rounds=ROUNDS)
        yield Row(f"training step, {name} / plain PyTorch, fused AdamW", ours / STEPS, 1.0, plain / STEPS)
