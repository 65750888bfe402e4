"""Loss landscapes of physics-informed networks as the problem gets harder: the experiment of Xie et al. (2024).

A network of 4 x 50 tanh units solves u_t + beta u_x = 0 with u(x, 0) = sin x and periodic ends (Krishnapriyan et al.
2021, arXiv 2109.01050), by Adam and then L-BFGS. The loss needs derivatives by the inputs. Around each solution:
random planes in several draws, merge trees and curvature. Writes a table, the surfaces and two figures.
"""

import argparse
import math
from itertools import pairwise
from pathlib import Path

import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from landscapes_figure import compare_landscapes
from measures_figure import measures_by_condition
from toposcale.landscape import LandscapeSettings, measure_landscape, module_loss

BETAS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)
GRAPHS = ("grid8", "grid4", "aknn8")
MEASURES = ("n_saddles_random_1_grid8", "n_saddles_random_1_grid4", "average_persistence_random_1_grid8",
            "average_persistence_closed_random_1_grid8", "total_persistence_random_1_grid8", "hessian_max",
            "hessian_trace")  # fmt: skip


class Problem:
    """The equation at fixed points: 500 inside, 100 at time 0 and 100 at each end."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        generator = torch.Generator().manual_seed(0)

        def uniform(count: int, high: float) -> Tensor:
            return high * torch.rand(count, 1, generator=generator, dtype=torch.float64)

        self.x, self.t = uniform(500, 2 * math.pi), uniform(500, 1.0)
        self.start, self.times = uniform(100, 2 * math.pi), uniform(100, 1.0)

    def loss(self, module: nn.Module) -> Tensor:
        """Mean squares of the residual, of the start and of the difference between the ends."""
        inside = torch.cat([self.x, self.t], dim=1).requires_grad_()
        (slopes,) = torch.autograd.grad(module(inside).sum(), inside, create_graph=True)
        residual = slopes[:, 1] + self.beta * slopes[:, 0]
        start = module(torch.cat([self.start, torch.zeros_like(self.start)], dim=1)) - self.start.sin()
        left, right = torch.zeros_like(self.times), torch.full_like(self.times, 2 * math.pi)
        ends = module(torch.cat([left, self.times], 1)) - module(torch.cat([right, self.times], 1))
        return (residual**2).mean() + (start**2).mean() + (ends**2).mean()

    @torch.no_grad()
    def error(self, module: nn.Module) -> float:
        """Relative l2 error against the solution sin(x - beta t) on a grid."""
        x, t = torch.meshgrid(torch.linspace(0, 2 * math.pi, 100), torch.linspace(0, 1, 100), indexing="ij")
        points = torch.stack([x.ravel(), t.ravel()], dim=1).double()
        truth = torch.sin(points[:, 0] - self.beta * points[:, 1])
        return float((module(points)[:, 0] - truth).norm() / truth.norm())


def network(width: int = 50, depth: int = 4) -> nn.Module:
    """tanh units in float64."""
    sizes = [2] + [width] * depth
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1)).double()


def solve(model: nn.Module, problem: Problem, *, adam: int, lbfgs: int) -> None:
    """Steps of Adam, then of L-BFGS."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(adam):
        optimizer.zero_grad()
        problem.loss(model).backward()
        optimizer.step()
    finish = torch.optim.LBFGS(
        model.parameters(), max_iter=lbfgs, history_size=50, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        finish.zero_grad()
        loss = problem.loss(model)
        loss.backward()
        return loss

    finish.step(closure)


def run(*, betas, draws: int, adam: int, lbfgs: int, resolution: int, probes: int = 200):
    """Tables: features by beta and draw, surfaces by the same."""
    rows, surfaces = [], []
    for beta in betas:
        torch.manual_seed(0)
        problem, model = Problem(beta), network()
        solve(model, problem, adam=adam, lbfgs=lbfgs)
        loss, error = module_loss(model, problem.loss), problem.error(model)
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
            surface = found.surfaces["random_1"]
            where = {"condition": f"β = {beta}", "beta": beta, "draw": draw}
            rows.append(where | {"error": error, "loss": float(loss(parameters).detach())} | found.features["all"])
            points = pd.DataFrame(surface.points, columns=["x", "y"])
            surfaces.append(points.assign(loss=surface.values.ravel(), **where))
        print(f"beta {beta}: relative error {error:.3f}, loss {rows[-1]['loss']:.2e}", flush=True)
    return pd.DataFrame(rows), pd.concat(surfaces, ignore_index=True)


def trends(rows: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlation of each measure, mean over the draws, with beta: up to 10, and over all."""
    means = rows.drop(columns="condition").groupby("beta").mean()
    easy = means[means.index <= 10]
    return pd.DataFrame(
        {
            "beta up to 10": {name: spearmanr(easy.index, easy[name])[0] for name in MEASURES},
            "all beta": {name: spearmanr(means.index, means[name])[0] for name in MEASURES},
        }
    )


def draw(rows: pd.DataFrame, surfaces: pd.DataFrame, output: Path) -> None:
    """The figures: one surface for some beta, and the measures of all."""
    betas = sorted(set(rows["beta"]))
    shown = betas if len(betas) < 4 else [betas[0], *(b for b in betas if b in (10, 20)), betas[-1]]
    first = surfaces[surfaces["draw"] == 0]
    conditions = {f"β = {beta}": first[first["beta"] == beta] for beta in shown}
    figure = compare_landscapes(conditions, unit="squared residual", title="Convection: harder to the right")
    figure.savefig(output / "pinn_convection_landscapes.png", dpi=150)
    names = [name for name in MEASURES if "grid4" not in name and "total" not in name] + ["error"]
    figure = measures_by_condition(
        rows, names, unit="squared residual", title="Convection: measures against β, mean and spread over the draws"
    )
    figure.savefig(output / "pinn_convection_measures.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results/landscapes"))
    parser.add_argument("--betas", type=int, nargs="+", default=BETAS)
    parser.add_argument("--draws", type=int, default=5, help="draws of two random directions")
    parser.add_argument("--adam", type=int, default=500, help="steps of Adam")
    parser.add_argument("--lbfgs", type=int, default=500, help="steps of L-BFGS at most")
    parser.add_argument("--resolution", type=int, default=21)
    arguments = vars(parser.parse_args())
    output = arguments.pop("output")
    output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rows, surfaces = run(**arguments)
    rows.to_csv(output / "pinn_convection.csv", index=False)
    surfaces.to_parquet(output / "pinn_convection_surfaces.parquet", index=False)
    print(rows.drop(columns="condition").groupby("beta").mean().T.to_string(float_format="%.3g"))
    print(trends(rows).to_string(float_format="%.2f"))
    draw(rows, surfaces, output)


if __name__ == "__main__":
    main()
