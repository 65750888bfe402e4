"""The loss landscape of any PyTorch module: here a small classifier of scikit-learn's digits."""

from pathlib import Path

import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from landscapes_figure import compare_landscapes
from toposcale.landscape import LandscapeSettings, measure_landscape, module_loss


def main(output: Path = Path("results/landscapes"), steps: int = 200, resolution: int = 21) -> dict[str, float]:
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    # A loss is a function of the module; any other function of parameters will do too.
    loss = module_loss(model, lambda module: functional.cross_entropy(module(images), labels))
    settings = LandscapeSettings(planes={"random": (1.0,), "mixed": (1.0,)}, resolution=resolution)
    found = measure_landscape(loss, dict(model.named_parameters()), settings)

    for name, value in sorted(found.features["all"].items()):
        print(f"{name:45s} {value:10.4g}")
    surfaces = {
        plane: pd.DataFrame(surface.points, columns=["x", "y"]).assign(loss=surface.values.ravel())
        for plane, surface in found.surfaces.items()
    }
    output.mkdir(parents=True, exist_ok=True)
    figure = compare_landscapes(surfaces, unit="nats per image", title="A classifier of digits on two planes")
    figure.savefig(output / "any_model.png", dpi=150)
    return found.features["all"]


if __name__ == "__main__":
    main()
