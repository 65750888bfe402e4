"""Loss landscapes with and without residual connections: the experiment of Xie et al. (2024, arXiv 2411.09807).

A convolutional network of 20 layers learns scikit-learn's handwritten digits, with and without shortcuts around its pairs
of layers (He et al. 2016; the shortcuts have no parameters). Around each trained network: random planes, merge trees
and curvature of the loss on a fixed batch of training images. The batch normalisation goes by the statistics of that
batch, as in training; by those of the training, which weights far from it do not fit, both kinds of landscape are
one steep funnel (--statistics running). Writes a table, the surfaces and two figures.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from landscapes_figure import compare_landscapes
from measures_figure import measures_by_condition
from toposcale.landscape import LandscapeSettings, measure_landscape, module_loss

CONDITIONS = {"residual": True, "plain": False}
GRAPHS = ("grid8", "grid4", "aknn8")


class Block(nn.Module):
    """Two convolutions, and around them a shortcut or none."""

    def __init__(self, n_in: int, n_out: int, *, residual: bool) -> None:
        super().__init__()
        self.residual, self.stride = residual, n_out // n_in
        self.first = nn.Conv2d(n_in, n_out, 3, stride=self.stride, padding=1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.first_norm(self.first(images)))
        hidden = self.second_norm(self.second(hidden))
        if self.residual:
            # Every second point, and new channels of zeros: a shortcut without parameters.
            shortcut = images[:, :, :: self.stride, :: self.stride]
            new = hidden.shape[1] - shortcut.shape[1]
            hidden = hidden + functional.pad(shortcut, (0, 0, 0, 0, 0, new))
        return functional.relu(hidden)


def network(*, residual: bool, widths: tuple[int, ...] = (8, 16, 32), blocks: int = 3) -> nn.Module:
    """20 layers for three widths and three blocks of each: a convolution, 18 in blocks, and a linear layer."""
    layers: list[nn.Module] = [nn.Conv2d(1, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    before = widths[0]
    for width in widths:
        for _ in range(blocks):
            layers.append(Block(before, width, residual=residual))
            before = width
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return made


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, epochs: int) -> None:
    """SGD with momentum 0.9, weight decay 5e-4, and a learning rate that falls from 0.1 by a cosine."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(128):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    model.eval()


def measure(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, draws: int, resolution: int, probes: int):
    """Rows of features, one a draw of directions, and the surface of each draw."""
    # In training mode the batch normalisation goes by the batch; module_loss leaves the running means as they are.
    loss = module_loss(model, lambda module: functional.cross_entropy(module(images), labels))
    parameters = dict(model.named_parameters())
    for draw in range(draws):
        settings = LandscapeSettings(
            planes={"random": (1.0,)},
            graphs=GRAPHS,
            resolution=resolution,
            eigenvalues=0 if draw else 2,  # the curvature does not depend on the directions
            trace_probes=0 if draw else probes,
            seed=draw,
        )
        found = measure_landscape(loss, parameters, settings)
        yield found.features["all"], found.surfaces["random_1"]


def run(
    *,
    seeds: int,
    draws: int,
    epochs: int,
    resolution: int,
    batch: int,
    statistics: str = "batch",
    blocks: int = 3,
    probes: int = 200,
):
    """Tables: features by condition, seed and draw; surfaces by the same."""
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))
    training, held_out = order[:1500], order[1500:]
    rows, surfaces = [], []
    for seed, (condition, residual) in product(range(seeds), CONDITIONS.items()):
        torch.manual_seed(seed)
        model = network(residual=residual, blocks=blocks)
        train(model, images[training], labels[training], epochs=epochs)
        with torch.no_grad():
            accuracy = float((model(images[held_out]).argmax(1) == labels[held_out]).float().mean())
        probe = training[:batch]
        model.train(statistics == "batch")
        measured = measure(model, images[probe], labels[probe], draws=draws, resolution=resolution, probes=probes)
        for draw, (features, surface) in enumerate(measured):
            where = {"condition": condition, "seed": seed, "draw": draw}
            rows.append(where | {"held_out_accuracy": accuracy} | features)
            surfaces.append(surface_rows(surface, **where))
        print(f"{condition}, seed {seed}: accuracy on held-out digits {accuracy:.3f}", flush=True)
    return pd.DataFrame(rows), pd.concat(surfaces, ignore_index=True)


def surface_rows(surface, **where) -> pd.DataFrame:
    """A surface as rows: x, y, loss."""
    points = pd.DataFrame(surface.points, columns=["x", "y"])
    return points.assign(loss=surface.values.ravel(), **where)


def draw(rows: pd.DataFrame, surfaces: pd.DataFrame, output: Path) -> None:
    """The figures: one surface a condition, and the measures of all."""
    first = surfaces[(surfaces["seed"] == 0) & (surfaces["draw"] == 0)]
    conditions = {f"{name} network": first[first["condition"] == name] for name in CONDITIONS}
    figure = compare_landscapes(conditions, unit="nats per image", title="With and without residual connections")
    figure.savefig(output / "residual_connections_landscapes.png", dpi=150)
    figure = measures_by_condition(
        rows,
        ["n_saddles_random_1_grid8", "average_persistence_random_1_grid8", "average_persistence_closed_random_1_grid8",
         "hessian_max", "hessian_trace", "hessian_min"],
        unit="nats per image",
        title="With and without residual connections: every network and draw",
    )  # fmt: skip
    figure.savefig(output / "residual_connections_measures.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results/landscapes"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--draws", type=int, default=3, help="draws of two random directions")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--resolution", type=int, default=21)
    parser.add_argument("--batch", type=int, default=64, help="training images that the loss is measured on")
    parser.add_argument("--statistics", choices=["batch", "running"], default="batch")
    arguments = vars(parser.parse_args())
    output = arguments.pop("output")
    output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rows, surfaces = run(**arguments)
    rows.to_csv(output / "residual_connections.csv", index=False)
    surfaces.to_parquet(output / "residual_connections_surfaces.parquet", index=False)
    print(rows.drop(columns=["seed", "draw"]).groupby("condition").mean().T.to_string(float_format="%.3g"))
    draw(rows, surfaces, output)


if __name__ == "__main__":
    main()
