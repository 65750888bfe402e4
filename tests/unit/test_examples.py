"""The examples of landscapes, shortened: they run to the end, and their tables and figures hold what they say."""

import sys

import numpy as np
import pandas as pd
import pytest

from paths import ROOT


@pytest.fixture(scope="module")
def examples():
    """The scripts of examples/, imported as they lie there."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import any_model
        import pinn_convection
        import residual_connections
    finally:
        sys.path.pop(0)
    return {"any": any_model, "pinn": pinn_convection, "residual": residual_connections}


def test_any_model(examples, tmp_path):
    features = examples["any"].main(tmp_path, steps=30, resolution=5)
    assert (tmp_path / "any_model.png").stat().st_size > 10_000
    assert features["n_minima_random_1_grid8"] >= 1
    assert features["hessian_max"] > 0 > features["hessian_min"]


def test_residual_connections(examples, tmp_path):
    """Two short networks, with and without shortcuts; the same parameters but for how they are joined."""
    module = examples["residual"]
    names = [
        [(name, tuple(tensor.shape)) for name, tensor in module.network(residual=residual).named_parameters()]
        for residual in (True, False)
    ]
    assert names[0] == names[1]
    convolutions = sum(len(shape) == 4 for _, shape in names[0])
    assert convolutions + 1 == 20
    rows, surfaces = module.run(seeds=1, draws=2, epochs=1, resolution=3, batch=16, blocks=1, probes=2)
    assert rows.groupby("condition").size().to_dict() == {"plain": 2, "residual": 2}
    assert rows["hessian_trace"].notna().sum() == 2  # once a network
    assert len(surfaces) == 4 * 9
    # Both draws are centred on the same network.
    centres = surfaces[(surfaces["x"] == 0) & (surfaces["y"] == 0)].groupby("condition")["loss"]
    assert (centres.nunique() == 1).all()
    module.draw(rows, surfaces, tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_pinn_convection(examples, tmp_path):
    """A short training brings the loss down, and the residual of the exact solution is 0."""
    import torch
    from torch import nn

    module = examples["pinn"]

    class Exact(nn.Module):
        def forward(self, points):
            return torch.sin(points[:, :1] - 3 * points[:, 1:])

    problem = module.Problem(3.0)
    assert float(problem.loss(Exact()).detach()) < 1e-25
    assert problem.error(Exact()) < 1e-12
    torch.manual_seed(0)
    untrained = float(module.Problem(1).loss(module.network()).detach())
    rows, surfaces = module.run(betas=[1, 2], draws=1, adam=20, lbfgs=10, resolution=3, probes=2)
    assert rows["loss"].iloc[0] < untrained
    centres = surfaces[(surfaces["x"] == 0) & (surfaces["y"] == 0)]["loss"]
    np.testing.assert_allclose(centres, rows["loss"])
    both = pd.concat([rows, rows.assign(beta=rows["beta"] + 2)])
    assert module.trends(both.assign(hessian_max=both["beta"])).loc["hessian_max", "all beta"] == pytest.approx(1)
    module.draw(rows, surfaces, tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 2
