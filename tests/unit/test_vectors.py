"""Diagrams as vectors: what they see, and what they must not."""

import numpy as np

from toposcale import tables, vectors


def table(by_layer):
    bars = {layer: [np.array(h0), np.array(h1).reshape(-1, 2)] for layer, (h0, h1) in by_layer.items()}
    return tables.diagram_rows(bars, model="m", step=0, source="weights")


ONE_LOOP = ([[0.0, 1.0], [0.0, 0.5]], [[1.0, 1.25]])


def test_a_loop_stands_where_it_is_born_and_as_high_as_it_lives():
    found = vectors.diagram_vectors(table({"a": ONE_LOOP}))
    image = found["persistence_image"].reshape(len(vectors.BIRTH_EDGES) - 1, -1)
    birth, persistence = np.unravel_index(image.argmax(), image.shape)
    assert vectors.BIRTH_EDGES[birth] <= 1.0 <= vectors.BIRTH_EDGES[birth + 1]
    assert vectors.PERSISTENCE_EDGES[persistence] <= 0.25 <= vectors.PERSISTENCE_EDGES[persistence + 1]
    landscape = found["persistence_landscape"].reshape(vectors.N_LAYERS, -1)
    assert landscape[0].max() <= 0.125
    assert vectors.RADII[landscape[0].argmax()] == 1.1  # of the radii, the nearest to the middle, 1.125
    assert not landscape[1:].any()


def test_the_size_of_the_weights_does_not_show():
    large = tuple((np.array(bars) * 7).tolist() for bars in ONE_LOOP)
    one, two = (vectors.diagram_vectors(table({"a": bars})) for bars in (ONE_LOOP, large))
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-12)


def test_vectors_are_means_over_the_layers():
    none = ([[0.0, 1.0]], [])
    one = vectors.diagram_vectors(table({"a": ONE_LOOP}))
    both = vectors.diagram_vectors(table({"a": ONE_LOOP, "b": none}))
    for name in one:
        np.testing.assert_allclose(both[name], one[name] / 2)


def test_nan_weights_are_nan_vectors():
    broken = ([[np.nan, np.nan]], [[np.nan, np.nan]])
    found = vectors.diagram_vectors(table({"a": ONE_LOOP, "b": broken}))
    assert all(np.isnan(vector).all() for vector in found.values())
