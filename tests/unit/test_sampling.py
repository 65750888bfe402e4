"""Draws that depend only on their seed, and scores against null models."""

import math

import numpy as np
import pytest

from toposcale.homology import (
    neural_persistence,
    null_z_scores,
    seeded_generator,
    spectrum_surrogate,
    subsample_rows,
    z_score,
)


def test_subsample_rows_are_distinct_sorted_and_seeded():
    rows = subsample_rows(1000, 200, seed=(42, "blocks.0", "rows"))
    assert len(rows) == len(set(rows)) == 200
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < 1000
    np.testing.assert_array_equal(rows, subsample_rows(1000, 200, seed=(42, "blocks.0", "rows")))
    for other in ((43, "blocks.0", "rows"), (42, "blocks.1", "rows"), (42, "blocks.0r", "ows")):
        assert not np.array_equal(rows, subsample_rows(1000, 200, seed=other))


def test_seeded_generator_the_draw_is_the_same_on_every_machine():
    # Recorded once: a change of this number changes every published feature of a subsampled layer.
    assert seeded_generator((42, "tiny-3k", "head")).integers(10**9) == 897251650


def test_subsample_rows_few_rows_are_all_taken():
    np.testing.assert_array_equal(subsample_rows(5, 200, seed=(0,)), np.arange(5))


def test_subsample_rows_rows_are_drawn_uniformly():
    counts = sum(np.bincount(subsample_rows(20, 5, seed=(seed,)), minlength=20) for seed in range(2000))
    # Each row is drawn with probability 1/4: standard deviation sqrt(2000 * 3/16) = 19.4; five of them.
    assert (np.abs(counts - 500) < 97).all()


def test_null_z_scores_scores_by_hand():
    seen = []

    def features(matrix):
        seen.append(matrix)
        return {"corner": float(matrix[0, 0])}

    weight = np.array([[9.0, 1.0], [2.0, 3.0]], dtype=np.float32)
    scores = null_z_scores(weight, features, draws=50, seed=(1,))
    original, permuted, gaussian = seen[0], seen[1:51], seen[51:]
    np.testing.assert_array_equal(original, weight)
    for matrix in permuted:
        np.testing.assert_array_equal(np.sort(matrix, axis=None), [1, 2, 3, 9])
    assert len({matrix.tobytes() for matrix in permuted}) > 10
    for null, drawn in (("permuted", permuted), ("gaussian", gaussian)):
        corners = [matrix[0, 0] for matrix in drawn]
        expected = (9.0 - np.mean(corners)) / np.std(corners, ddof=1)
        assert scores[f"corner_z_{null}"] == pytest.approx(expected, rel=1e-12)
    assert null_z_scores(weight, features, draws=50, seed=(1,), observed={"corner": 9.0}) == scores


def test_null_z_scores_gaussian_null_mean_and_variance_of_matrix():
    weight = 3.0 + 2.0 * np.random.default_rng(0).random((100, 100))
    drawn = []
    null_z_scores(weight, lambda matrix: drawn.append(matrix) or {}, draws=2, seed=(0,))
    # 10,000 entries: standard error of the mean sd / 100, of the deviation sd / 141; five of them.
    assert drawn[-1].mean() == pytest.approx(weight.mean(), abs=0.05 * weight.std())
    assert drawn[-1].std() == pytest.approx(weight.std(), rel=0.036)


def test_null_z_scores_of_planted_structure_and_of_noise():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((40, 30))
    planted = noise * np.exp(2.0 * rng.standard_normal((40, 1)))

    def features(matrix):
        return {"neural_persistence": neural_persistence(matrix)}

    assert abs(null_z_scores(noise, features, draws=30, seed=(0,))["neural_persistence_z_gaussian"]) < 3
    assert abs(null_z_scores(planted, features, draws=30, seed=(0,))["neural_persistence_z_permuted"]) > 3


def test_null_z_scores_no_spread_is_nan_with_one_warning():
    with pytest.warns(RuntimeWarning, match="size_z_permuted, size_z_gaussian") as caught:
        scores = null_z_scores(np.eye(3), lambda matrix: {"size": matrix.size}, draws=3, seed=(0,))
    assert len(caught) == 1
    assert all(map(math.isnan, scores.values()))


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (12, 12), (1, 5)])
def test_spectrum_surrogate_keeps_singular_values_and_gram(shape):
    weight = np.random.default_rng(3).standard_normal(shape) * np.linspace(1, 5, shape[1])
    surrogate = spectrum_surrogate(weight, seed=(42, "a", 0))
    values = np.linalg.svd(weight, compute_uv=False)
    np.testing.assert_allclose(np.linalg.svd(surrogate, compute_uv=False), values, rtol=1e-12)
    np.testing.assert_allclose(surrogate.T @ surrogate, weight.T @ weight, atol=1e-12 * values[0] ** 2)
    np.testing.assert_array_equal(surrogate, spectrum_surrogate(weight, seed=(42, "a", 0)))
    assert shape[0] == 1 or not np.allclose(surrogate, spectrum_surrogate(weight, seed=(42, "a", 1)))


def test_spectrum_surrogate_keeps_a_deficient_rank():
    weight = np.outer(np.arange(1.0, 9.0), [1.0, -2.0, 3.0])
    surrogate = spectrum_surrogate(weight, seed=(1,))
    np.testing.assert_allclose(surrogate.T @ surrogate, weight.T @ weight, atol=1e-10)
    assert np.linalg.matrix_rank(surrogate) == 1


def test_spectrum_surrogate_left_vectors_of_surrogates_uniform():
    # A column of a Haar matrix (3, 1) is uniform on the sphere: mean 0, each squared entry 1/3.
    left = np.array([spectrum_surrogate(np.ones((3, 1)), seed=(draw,))[:, 0] for draw in range(4000)]) / np.sqrt(3)
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 1, rtol=1e-12)
    # Standard errors sqrt(1/3 / 4000) = .0091 and sqrt(4/45 / 4000) = .0047; four of them.
    np.testing.assert_allclose(left.mean(axis=0), 0, atol=0.037)
    np.testing.assert_allclose((left**2).mean(axis=0), 1 / 3, atol=0.019)


def test_z_score_z_scores_by_hand():
    assert z_score(5.0, [1.0, 2.0, 3.0]) == 3.0
    for value, draws in ((5.0, [0.1, 0.1 + 1e-16]), (math.nan, [1.0, 2.0]), (1.0, [1.0, math.inf])):
        with pytest.warns(RuntimeWarning, match="no z-score"):
            assert math.isnan(z_score(value, draws))
    with pytest.raises(ValueError, match=r"^drawn must hold 2 or more draws, got 1$"):
        z_score(5.0, [1.0])


def test_subsample_rows_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^n_rows must"):
        subsample_rows(0, 5, seed=(0,))
    with pytest.raises(ValueError, match=r"^max_points must"):
        subsample_rows(5, 0, seed=(0,))
    with pytest.raises(ValueError, match=r"^draws must"):
        null_z_scores(np.eye(2), lambda matrix: {}, draws=1, seed=(0,))
    with pytest.raises(ValueError, match=r"^weight must"):
        null_z_scores([[math.nan]], lambda matrix: {}, draws=2, seed=(0,))
