"""Train a small language model, and save what docs/tutorials/checkpoints.md measures: `train_checkpoints.py FOLDER`.

A program as people have them: plain PyTorch, a checkpoint every 40 steps, and the losses in a table. It knows nothing of
toposcale. It takes about a minute on one core.
"""

import csv
import math
import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy

STEPS, EVERY, WARMUP, PEAK = 1640, 40, 40, 3e-3
BATCH, CONTEXT, WIDTH, LAYERS, HEADS = 16, 64, 48, 2, 4
CHARACTERS = 128
MODEL = "mine"
"""The name of the training in the table of losses, and in the configuration."""


class Transformer(nn.Module):
    """A decoder of characters."""

    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.position_embedding = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CHARACTERS, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding.weight
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


def loss_of(model, text, starts):
    """Return the mean loss on the sequences of the text that begin there."""
    sequences = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())


def rate(step):
    """Return the learning rate: a linear warm-up, then a cosine to a tenth of the peak."""
    decay = 0.55 + 0.45 * math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))
    return PEAK * (step / WARMUP if step < WARMUP else decay)


def main(folder, steps=STEPS):
    """Write FOLDER/checkpoints/step-{step}.safetensors and FOLDER/metrics.csv."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = "".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    text = torch.tensor(list(text), dtype=torch.long)
    training, validation = text[: -len(text) // 10], text[-len(text) // 10 :]
    fixed = torch.linspace(0, len(validation) - CONTEXT - 1, 64).long()
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    rows = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate(step)
        loss = loss_of(model, training, torch.randint(len(training) - CONTEXT, (BATCH,)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                loss = loss_of(model, validation, fixed).item()
            rows.append([MODEL, step, "validation_loss", f"{loss:.6g}"])
            save_file(model.state_dict(), folder / f"checkpoints/step-{step}.safetensors")
    with (folder / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["model", "step", "metric", "value"], *rows])
    print(f"{len(rows)} checkpoints in {folder}/checkpoints, the losses in {folder}/metrics.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
