"""Diagrams as vectors: what they see, and what they must not."""

import numpy as np
import pytest
from gudhi.representations import Landscape
from scipy.stats import norm

from toposcale.features import vectors
from toposcale.io import tables


def table(by_layer):
    bars = {layer: [np.array(h0), np.array(h1).reshape(-1, 2)] for layer, (h0, h1) in by_layer.items()}
    return tables.diagram_rows(bars, model="m", step=0, source="weights")


BIRTH_EDGES = np.linspace(0.0, vectors.MAX_BIRTH, 11)
PERSISTENCE_EDGES = np.linspace(0.0, vectors.MAX_PERSISTENCE, 11)
ONE_LOOP = ([[0.0, 1.0], [0.0, 0.5]], [[1.0, 1.25]])


def test_diagram_vectors_place_a_loop_at_its_birth():
    found = vectors.diagram_vectors(table({"a": ONE_LOOP}))
    image = found["persistence_image"].reshape(10, 10)
    birth, persistence = np.unravel_index(image.argmax(), image.shape)
    assert BIRTH_EDGES[birth] <= 1.0 <= BIRTH_EDGES[birth + 1]
    assert PERSISTENCE_EDGES[persistence] <= 0.25 <= PERSISTENCE_EDGES[persistence + 1]
    landscape = found["persistence_landscape"].reshape(vectors.N_LAYERS, -1)
    assert landscape[0].max() <= 0.125
    assert vectors.RADII[landscape[0].argmax()] == 1.1  # of the radii, the nearest to the middle, 1.125
    assert not landscape[1:].any()


def test_diagram_vectors_the_size_of_the_weights_does_not_show():
    large = tuple((np.array(bars) * 7).tolist() for bars in ONE_LOOP)
    one, two = (vectors.diagram_vectors(table({"a": bars})) for bars in (ONE_LOOP, large))
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-12)


def test_diagram_vectors_vectors_are_means_over_the_layers():
    none = ([[0.0, 1.0]], [])
    one = vectors.diagram_vectors(table({"a": ONE_LOOP}))
    both = vectors.diagram_vectors(table({"a": ONE_LOOP, "b": none}))
    for name in one:
        np.testing.assert_allclose(both[name], one[name] / 2)


def test_diagram_vectors_nan_weights_are_nan_vectors():
    broken = ([[np.nan, np.nan]], [[np.nan, np.nan]])
    found = vectors.diagram_vectors(table({"a": ONE_LOOP, "b": broken}))
    assert all(np.isnan(vector).all() for vector in found.values())


def some_bars(count):
    rng = np.random.default_rng(count)
    births = rng.uniform(0.2, 1.5, count)
    return np.column_stack([births, births + rng.exponential(0.05, count)])


@pytest.mark.parametrize("count", [1, 7, 60])
def test_persistence_image_image_is_the_integral_of_its_formula(count):
    """Gaussians weighted by persistence, integrated over each pixel in closed form (Adams et al. 2017)."""
    bars = some_bars(count)
    persistences = bars[:, 1] - bars[:, 0]
    along_births = np.diff(norm.cdf(BIRTH_EDGES, bars[:, :1], vectors.BANDWIDTH))
    along_persistences = np.diff(norm.cdf(PERSISTENCE_EDGES, persistences[:, None], vectors.BANDWIDTH))
    expected = (along_births * persistences[:, None]).T @ along_persistences
    np.testing.assert_allclose(vectors.persistence_image(bars), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("count", [1, 7, 60])
def test_persistence_landscape_a_landscape_is_that_of_gudhi(count):
    bars = some_bars(count)
    gudhi = Landscape(num_landscapes=vectors.N_LAYERS, resolution=41, sample_range=[0.0, 2.0])
    expected = gudhi.fit_transform([bars])[0] / np.sqrt(2)  # gudhi's landscapes carry this factor
    np.testing.assert_allclose(vectors.persistence_landscape(bars).ravel(), expected, atol=1e-12)


def test_persistence_landscape_counts_equal_bars_each():
    landscape = vectors.persistence_landscape(np.array([[0.4, 0.6], [0.6, 1.0], [0.4, 0.6]]))
    tents = {0.45: 0.05, 0.5: 0.1, 0.55: 0.05}
    of_equal_bars = [tents.get(radius, 0.0) for radius in vectors.RADII.round(2)]
    later = np.clip(0.2 - np.abs(vectors.RADII - 0.8), 0.0, None)
    np.testing.assert_allclose(landscape, [of_equal_bars + later, of_equal_bars, np.zeros(41)], atol=1e-12)


def test_persistence_image_no_bars_are_empty_image_and_landscape():
    nothing = np.empty((0, 2))
    assert not vectors.persistence_image(nothing).any()
    assert not vectors.persistence_landscape(nothing).any()
