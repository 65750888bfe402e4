"""What explains neural persistence: by the definitions written out, on cases by hand, and where it is undefined."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from toposcale import homology

matrices = st.integers(0, 10**6).map(
    lambda seed: (rng := np.random.default_rng(seed)).standard_normal(rng.integers(1, 9, 2))
)


def max_min_product(first, second):
    """S[i, j] = max over k of min(A[k, i], B[j, k]), of the standardised matrices, written out."""

    def standardised(weight):
        return np.abs((weight - weight.mean()) / weight.std())

    a, b = standardised(first), standardised(second)
    largest = max(a.max(), b.max())
    return np.minimum(a[:, :, None], b.T[:, None, :]).max(axis=0) / largest


def concentration(weight):
    """The three tau of the sorted matrix, written out."""
    sizes = np.abs(weight)
    sizes = sizes[np.argsort(sizes.mean(axis=1), kind="stable")]
    sizes = sizes[:, np.argsort(sizes.mean(axis=0), kind="stable")]
    rows, columns = np.indices(sizes.shape)
    taus = [kendalltau(place.ravel(), sizes.ravel()).statistic for place in (rows, columns, rows + columns)]
    return np.nanmax(taus)


def test_weight_variance_variance_by_hand():
    # |w| / max |w| is 0, 1/2, 1/2, 1: mean 1/2, variance (1/4 + 0 + 0 + 1/4) / 4.
    assert homology.weight_variance([[0.0, -2.0], [2.0, 4.0]]) == 0.125


@pytest.mark.parametrize("shape", [(3, 5), (700, 900)])
def test_weight_variance_variance_over_blocks_is_that_of_whole(shape):
    weight = 1e3 * np.random.default_rng(0).standard_normal(shape)
    expected = np.var(np.abs(weight) / np.abs(weight).max())
    assert homology.weight_variance(weight) == pytest.approx(expected, rel=1e-12)
    assert homology.weight_variance(weight.astype(np.float16)) == pytest.approx(expected, rel=1e-2)


@settings(max_examples=50)
@given(weight=matrices.filter(lambda weight: weight.size > 1))
def test_spatial_concentration_concentration_is_of_definition(weight):
    assert homology.spatial_concentration(weight) == pytest.approx(concentration(weight), abs=1e-12)


def test_spatial_concentration_of_a_large_matrix():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((100, 120)) * np.linspace(0.1, 3, 100)[:, None]
    found = homology.spatial_concentration(weight)
    assert found == pytest.approx(concentration(weight), abs=0.02)
    assert found > 0.3
    assert homology.spatial_concentration(rng.standard_normal((100, 120))) < 0.1


@settings(max_examples=150)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_deep_graph_persistence_of_two_layers(seed, ties):
    rng = np.random.default_rng(seed)
    n_in, n_hidden, n_out = rng.integers(1, 8, 3)
    first, second = rng.standard_normal((n_hidden, n_in)), rng.standard_normal((n_out, n_hidden))
    if ties:
        first, second = first.round(), second.round()
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return
    expected = homology.neural_persistence(max_min_product(first, second))
    assert homology.deep_graph_persistence(first, second) == pytest.approx(expected, abs=1e-12)


def test_deep_graph_persistence_two_layers_of_a_real_width():
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((256, 64)), rng.standard_t(3, (64, 256))
    expected = homology.neural_persistence(max_min_product(first, second))
    assert homology.deep_graph_persistence(first, second) == pytest.approx(expected, rel=1e-12)


def test_weight_variance_what_has_none():
    zeros, ones = np.zeros((3, 4)), np.ones((3, 4))
    weight = np.arange(12.0).reshape(3, 4)
    with pytest.warns(RuntimeWarning, match="all-zero"):
        assert np.isnan(homology.weight_variance(zeros))
    with pytest.warns(RuntimeWarning, match="no spatial concentration"):
        assert np.isnan(homology.spatial_concentration(ones))
    with pytest.warns(RuntimeWarning, match="constant"):
        assert np.isnan(homology.deep_graph_persistence(ones, weight.T))
    with pytest.raises(ValueError, match="as many rows as second has columns, got 3 and 4"):
        homology.deep_graph_persistence(weight, weight)
    for function in (homology.weight_variance, homology.spatial_concentration):
        with pytest.raises(ValueError, match="finite"):
            function(np.full((2, 2), np.inf))


def test_weight_variance_nan_far_into_a_large_matrix_is_refused():
    large = np.ones((1000, 1000))
    large[-1, -1] = np.nan
    with pytest.raises(ValueError, match="weight must be finite"):
        homology.weight_variance(large)
    with pytest.raises(ValueError, match="second must be finite"):
        homology.deep_graph_persistence(np.eye(1000), large)
