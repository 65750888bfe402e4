"""Roles of layers by their names, and layers that are unlike the others of their role."""

import numpy as np
import pytest

from toposcale.features.roles import Role, odd_layers, role_of


@pytest.mark.parametrize(
    ("layer", "role"),
    [
        ("transformer.h.0.attn.c_attn.weight", Role.ATTENTION),
        ("model.layers.3.self_attn.q_proj.weight", Role.ATTENTION),
        ("gpt_neox.layers.0.attention.query_key_value.weight", Role.ATTENTION),
        ("transformer.h.0.mlp.c_fc.weight", Role.FEED_FORWARD),
        ("model.layers.0.block_sparse_moe.experts.w1.0", Role.FEED_FORWARD),
        ("transformer.wte.weight", Role.EMBEDDING),
        ("gpt_neox.embed_in.weight", Role.EMBEDDING),
        ("lm_head.weight", Role.EMBEDDING),
        ("a", Role.OTHER),
    ],
)
def test_role_of_the_role_of_a_layer_is_in_its_name(layer, role):
    assert role_of(layer) is role


def layers(values, name="h.{}.mlp.w"):
    return {name.format(index): {"norm": value} for index, value in enumerate(values)}


def test_odd_layers_one_layer_is_far_off_is_odd_and_says_why():
    """Median 3, MAD 1: z of 40 is 37 / 1.4826."""
    [odd] = odd_layers(layers([1, 2, 3, 4, 40]))
    assert (odd.layer, odd.feature, odd.value, odd.median) == ("h.4.mlp.w", "norm", 40, 3)
    assert odd.z == pytest.approx(37 / 1.4826)
    assert str(odd) == "h.4.mlp.w: norm 40, above the median 3 of such feed-forward layers (z +25)"


def test_odd_layers_compare_the_same_layer_of_other_blocks():
    """The projections back are 100 times as large as twice as many others, and nothing is odd."""
    up, gate, down = (
        layers(scale * np.arange(1.0, 6), f"h.{{}}.mlp.{name}") for name, scale in (("a", 1), ("b", 1), ("c", 100))
    )
    assert odd_layers(up | gate | down) == []


def test_odd_layers_need_a_difference_that_is_large_as_a_share():
    values = [3.4, 3.41, 3.42, 3.43, 3.44, 4.4]
    assert odd_layers(layers(values)) == []
    assert len(odd_layers(layers([*values[:5], 4.5]))) == 1


@pytest.mark.parametrize("n", [8, 12, 24, 48])
def test_odd_layers_noise_is_rarely_odd(n):
    """At most 1% of the groups, of which a model has some thirty."""
    rng = np.random.default_rng(0)
    counts = [len(odd_layers(layers(10 + rng.normal(size=n)))) for _ in range(1000)]
    assert np.mean(np.array(counts) > 0) <= 0.01


@pytest.mark.parametrize("values", [[1, 2, 3, 100], [1, 1, 1, 1, 1, 9], [np.nan, np.nan, 1, 2, 3, 100]])
def test_odd_layers_too_few_or_equal_layers_tell_nothing(values):
    assert odd_layers(layers(values)) == []


def test_odd_layers_numbers_within_part_of_name_are_other_layers():
    """w1, w2 and w3 of a feed-forward block: the third had a z of -30 in every block."""
    rng = np.random.default_rng(0)
    three = {}
    for name, scale in (("w1", 1.0), ("w2", 1.1), ("w3", 30.0)):
        three |= layers(scale * (1 + 0.01 * rng.normal(size=8)), f"layers.{{}}.feed_forward.{name}.weight")
    assert odd_layers(three) == []
    three["layers.3.feed_forward.w3.weight"] = {"norm": 90.0}
    assert [odd.layer for odd in odd_layers(three)] == ["layers.3.feed_forward.w3.weight"]


def test_odd_layers_of_a_list_need_known_equal_shapes():
    """The first layer of a perceptron reads another number of inputs."""
    values = layers([28.0, 16.1, 15.9, 16.0, 16.2, 16.05], "net.{}.weight")
    shapes = dict.fromkeys(values, (256, 256)) | {"net.0.weight": (256, 784)}
    assert odd_layers(values) == odd_layers(values, shapes) == []
    assert [odd.layer for odd in odd_layers(values, dict.fromkeys(values, (256, 256)))] == ["net.0.weight"]
    assert len(odd_layers(layers([28.0, 16.1, 15.9, 16.0, 16.2, 16.05], "h.{}.up.weight"))) == 1
