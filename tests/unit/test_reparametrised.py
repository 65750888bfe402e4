"""Weights that a layer computes from other tensors are measured as the layer uses them, or refused by name."""

import numpy as np
import pytest

import toposcale
from toposcale.checkpoints import Checkpoint
from toposcale.io.errors import UserError

torch = pytest.importorskip("torch")
norms = torch.nn.utils.parametrizations


def linear(bias=False):
    return torch.nn.Linear(6, 6, bias=bias)


def old(normalise, layer, *inputs, **options):
    """Return a layer of the older functions, which compute the weight when the layer is called."""
    layer = normalise(layer, **options).eval()
    layer(torch.zeros(inputs))
    return layer


def pruned(layer):
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", 0.5)


LAYERS = {
    "weight norm": lambda: norms.weight_norm(linear()),
    "weight norm of a bias": lambda: norms.weight_norm(linear(bias=True)),
    "weight norm, last axis": lambda: norms.weight_norm(torch.nn.Conv1d(6, 4, 3), dim=2),
    "weight norm, all axes": lambda: norms.weight_norm(linear(), dim=None),
    "weight norm of a hook": lambda: old(torch.nn.utils.weight_norm, linear(), 1, 6),
    "spectral norm": lambda: norms.spectral_norm(linear()).eval(),
    "spectral norm, transposed": lambda: norms.spectral_norm(torch.nn.ConvTranspose1d(6, 4, 3)).eval(),
    "spectral norm of a hook": lambda: old(torch.nn.utils.spectral_norm, linear(), 1, 6),
    "pruned": lambda: pruned(linear()),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_computed_weights_are_those_of_the_layer(tmp_path, kind):
    layer = LAYERS[kind]()
    for name, part in layer.named_parameters():
        if name.endswith(("_v", "original1")):  # the size of the direction changes nothing
            part.data *= 7
    layer(torch.eye(6)[None])  # hooks compute the weight now
    torch.save({f"net.{name}": values for name, values in layer.state_dict().items()}, tmp_path / "w.pt")
    for checkpoint in (
        Checkpoint(tmp_path / "w.pt"),
        Checkpoint({f"net.{k}": v for k, v in layer.state_dict().items()}),
    ):
        name, matrix = next(checkpoint.matrices())
        weight = layer.weight.detach().numpy()
        assert name == "net.weight"
        assert (
            checkpoint.count.total == sum(v.numel() for n, v in layer.named_parameters() if n == "bias") + weight.size
        )
        np.testing.assert_allclose(matrix, weight.reshape(matrix.shape), rtol=1e-6)
    assert toposcale.describe(layer, features="norms").loc["all", "frobenius_norm"] == pytest.approx(
        np.linalg.norm(weight)
    )


def test_computed_weights_of_an_unknown_kind_are_refused(tmp_path):
    for layer in (
        norms.orthogonal(linear()),
        torch.nn.utils.parametrize.register_parametrization(linear(), "weight", torch.nn.Tanh()),
    ):
        with pytest.raises(
            UserError, match=r"^weight is computed by its layer from parametrizations\.weight\.original"
        ):
            toposcale.describe(layer)
        torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")  # the remedy that the message names
        assert "weight" in toposcale.describe(layer).index


def test_computed_weights_need_parts_of_fitting_shapes():
    """Gates that are called g and v, and a weight next to a mask of another shape, are what they are called."""
    tensors = {"w_g": np.ones((4, 4)), "w_v": np.eye(4), "a_orig": np.eye(3), "a_mask": np.eye(4), "x_v": np.eye(5)}
    assert list(Checkpoint(tensors).weights) == list(tensors)
