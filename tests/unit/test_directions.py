"""Directions: filter norms and orthogonality at once."""

import numpy as np
import pytest
import torch

from toposcale.landscape import random_directions


def parameters(dtype=torch.float64):
    torch.manual_seed(0)
    return {
        "embedding": torch.randn(30, 12, dtype=dtype),
        "bias": torch.randn(7, dtype=dtype),
        "up": torch.cat([torch.randn(6, 12, dtype=dtype) * 5, torch.zeros(1, 12, dtype=dtype)]),
        "filters": torch.randn(4, 2, 3, 3, dtype=dtype),
        "norm": torch.ones(12, dtype=dtype),
    }


def flat(direction):
    return torch.cat([tensor.double().reshape(-1) for tensor in direction.values()]).numpy()


def rows(tensor):
    return tensor.double().reshape(len(tensor), -1).norm(dim=1).numpy()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(3))
def test_rows_have_the_norms_of_the_weights_and_directions_are_orthogonal(count, dtype, seed):
    weights = parameters(dtype)
    directions = random_directions(weights, count, seed=seed)
    assert len(directions) == count
    for direction in directions:
        assert list(direction) == list(weights)
        for name, tensor in weights.items():
            assert direction[name].shape == tensor.shape
            assert direction[name].dtype == dtype
            if tensor.dim() >= 2:
                np.testing.assert_allclose(rows(direction[name]), rows(tensor), rtol=1e-6)
            else:
                assert not direction[name].any()
    vectors = np.array([flat(direction) for direction in directions])
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / np.outer(lengths, lengths)
    np.testing.assert_allclose(cosines, np.eye(count), atol=1e-6)


def test_seed_decides_everything_and_the_weights_only_scale():
    weights = parameters()
    scaled = {name: 3.0 * tensor for name, tensor in weights.items()}
    one, two = (random_directions(weights, 2, seed=4) for _ in range(2))
    other = random_directions(weights, 2, seed=5)
    tripled = random_directions(dict(reversed(scaled.items())), 2, seed=4)
    for i in range(2):
        assert all(torch.equal(one[i][name], two[i][name]) for name in weights)
        assert not torch.equal(one[i]["up"], other[i]["up"])
        for name in weights:
            torch.testing.assert_close(tripled[i][name], 3.0 * one[i][name])


def test_first_direction_of_a_row_is_uniform_on_the_sphere():
    # Coordinates of a uniform unit vector in d dimensions have variance 1 / d; 4 standard errors.
    direction = random_directions({"w": torch.full((20_000, 5), 5**-0.5)}, 2, seed=0)
    for one in direction:
        squares = one["w"].double().numpy() ** 2
        assert np.abs(squares.mean(axis=0) - 0.2).max() < 4 * squares.std() / np.sqrt(20_000)
        assert np.abs(one["w"].double().numpy().mean(axis=0)).max() < 4 * np.sqrt(0.2 / 20_000)


def test_short_rows_leave_later_directions_zero():
    weights = {"narrow": torch.ones(3, 1), "wide": torch.ones(2, 4)}
    first, second = random_directions(weights, 2, seed=0)
    assert rows(first["narrow"]).tolist() == [1.0, 1.0, 1.0]
    assert not second["narrow"].any()
    assert abs(flat(first) @ flat(second)) < 1e-6


def test_parameters_that_require_gradients_are_left_alone():
    weights = {"w": torch.nn.Parameter(torch.ones(3, 4)), "b": torch.nn.Parameter(torch.ones(3))}
    (direction,) = random_directions(weights, 1, seed=0)
    assert not any(tensor.requires_grad for tensor in direction.values())


@pytest.mark.parametrize("weights", [{"b": torch.ones(3)}, {"w": torch.ones(3, 2)}, {}])
def test_too_many_directions_are_refused(weights):
    with pytest.raises(ValueError, match=r"^count:"):
        random_directions(weights, 3, seed=0)
    with pytest.raises(ValueError, match=r"^count:"):
        random_directions(weights, 0, seed=0)
