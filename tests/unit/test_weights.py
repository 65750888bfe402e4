"""Features of a checkpoint: right by layer, right for the model, stable over steps, and honest about NaN."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from paths import ROOT
from toposcale import homology
from toposcale.features import registry, spectra, weights
from toposcale.features.registry import group_of
from toposcale.io.errors import UserError

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def matrices(seed=0):
    rng = np.random.default_rng(seed)
    return [("a.weight", rng.standard_normal((12, 5))), ("b.weight", 3 * rng.standard_normal((30, 4)))]


def describe(named, **settings):
    return weights.compute_features(iter(named), weights.WeightSettings(**settings))


def test_compute_features_a_square_has_one_loop():
    features, diagrams = describe([("square", SQUARE)])
    assert features["square"]["h1_count"] == 1
    assert features["square"]["h1_total"] == pytest.approx(np.sqrt(2) - 1, abs=1e-15)
    assert features["square"]["h0_total"] == 3
    np.testing.assert_allclose(diagrams["square"][1], [[1, np.sqrt(2)]], atol=1e-15)
    mean_distance = (4 * 1 + 2 * np.sqrt(2)) / 6
    assert features["square"]["h1_total_scaled"] == pytest.approx((np.sqrt(2) - 1) / mean_distance)


def test_compute_features_the_model_has_sums_means_and_roots():
    features, _ = describe(matrices())
    a, b, whole = features["a.weight"], features["b.weight"], features["all"]
    assert whole["h0_total"] == a["h0_total"] + b["h0_total"]
    assert whole["h1_count"] == a["h1_count"] + b["h1_count"]
    assert whole["neural_persistence"] == pytest.approx((a["neural_persistence"] + b["neural_persistence"]) / 2)
    assert whole["h0_max"] == max(a["h0_max"], b["h0_max"])
    everything = np.concatenate([matrix.ravel() for _, matrix in matrices()])
    assert whole["frobenius_norm"] == pytest.approx(np.linalg.norm(everything))


def test_compute_features_neural_persistence_p2_shares_a_scale():
    features, _ = describe(matrices())
    largest = max(np.abs(matrix).max() for _, matrix in matrices())
    for layer, matrix in matrices():
        assert features[layer]["neural_persistence_p2"] == pytest.approx(
            homology.neural_persistence(matrix, p=2, scale=largest)
        )


def test_compute_features_scale_is_that_of_the_whole_model():
    whole, _ = describe(matrices())
    for left_out, layer in (("a.*", "b.weight"), ("b.*", "a.weight")):  # b has the largest entry of the two
        some, _ = describe(matrices(), exclude=(left_out,))
        assert some[layer] == whole[layer]
    elsewhere = max(np.abs(matrix).max() for _, matrix in matrices())
    some, _ = weights.compute_features(matrices()[:1], weights.WeightSettings(), largest_elsewhere=elsewhere)
    assert some["a.weight"] == whole["a.weight"]


def test_compute_features_without_a_finite_scale_warns():
    (layer, matrix), other = matrices()
    matrix[0, 0] = np.inf
    with pytest.warns(RuntimeWarning, match="not chosen holds NaN or infinity, so neural_persistence_p2 is NaN"):
        features, _ = describe([(layer, matrix), other], exclude=("a.*",))
    assert [name for name, value in features["b.weight"].items() if np.isnan(value)] == ["neural_persistence_p2"]


def test_compute_features_growth_changes_only_totals():
    small, _ = describe(matrices())
    large, _ = describe([(layer, 7 * matrix) for layer, matrix in matrices()])
    for layer in ("a.weight", "b.weight"):
        assert large[layer]["h0_total"] == pytest.approx(7 * small[layer]["h0_total"])
        for name in ("h0_total_scaled", "h1_max_scaled", "neural_persistence", "h0_entropy", "stable_rank"):
            assert large[layer][name] == pytest.approx(small[layer][name]), name


def test_compute_features_same_rows_in_every_checkpoint():
    matrix = np.random.default_rng(1).standard_normal((50, 3))

    def total(matrix, layer="layer", **settings):
        return describe([(layer, matrix)], max_points=10, **settings)[0][layer]["h0_total"]

    # The same rows are drawn, so scaling the matrix scales the total exactly.
    assert total(2 * matrix) == 2 * total(matrix)
    assert total(matrix, "another") != total(matrix) != total(matrix, seed=43)


def test_compute_features_layers_are_chosen_by_globs():
    features, diagrams = describe(matrices(), exclude=("a.*",))
    assert set(features) == {"b.weight", "all"}
    assert set(diagrams) == {"b.weight"}
    with pytest.raises(UserError, match="chooses none of"):
        describe(matrices(), include=("nothing",))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])  # the square of the last one overflows
def test_compute_features_of_a_broken_matrix_are_nan(bad):
    (layer, matrix), other = matrices()
    matrix = matrix.copy()
    matrix[3, 2] = bad
    healthy, _ = describe([other])
    with pytest.warns(RuntimeWarning, match=r"a\.weight holds NaN or infinity"):
        features, diagrams = describe([(layer, matrix), other])
    assert all(np.isnan(value) for value in features[layer].values())
    assert set(features[layer]) == set(features["b.weight"])
    assert np.isnan(diagrams[layer][0]).all()
    assert features["b.weight"]["h0_total"] == healthy["b.weight"]["h0_total"]
    assert np.isnan(features["all"]["h0_total"])


def test_compute_features_nulls_of_random_matrices_and_a_circle():
    rng = np.random.default_rng(2)
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    features, _ = describe([("noise", rng.standard_normal((40, 6))), ("circle", circle)], null_draws=20)
    assert abs(features["noise"]["h1_total_z_gaussian"]) < 4
    assert features["circle"]["h1_max_z_permuted"] > 5


def test_h0_of_surrogates_tells_clusters_from_a_surrogate():
    weight = np.random.default_rng(6).standard_normal((40, 6)) * np.linspace(1, 3, 6)
    clusters = np.repeat(np.random.default_rng(7).standard_normal((4, 6)), 10, axis=0)
    clusters += 0.01 * np.random.default_rng(8).standard_normal(clusters.shape)
    surrogate = homology.spectrum_surrogate(weight, seed=(0, "another"))
    features, _ = describe([("surrogate", surrogate), ("clusters", clusters)], surrogate_draws=20)
    assert abs(features["surrogate"]["h0_surrogate_z"]) < 4
    assert features["clusters"]["h0_surrogate_z"] < -8
    assert features["all"]["h0_surrogate_z"] == pytest.approx(
        (features["surrogate"]["h0_surrogate_z"] + features["clusters"]["h0_surrogate_z"]) / 2
    )
    drawn = weights.h0_of_surrogates(clusters, "clusters", weights.WeightSettings(surrogate_draws=20))
    first = homology.spectrum_surrogate(clusters, seed=(42, "clusters", 0))
    assert drawn[0]["h0_total"] == homology.cloud_features(first)[0]["h0_total"]
    assert len(drawn) == 20
    assert "h0_surrogate_z" not in describe([("a", weight)])[0]["a"]


def test_compute_features_orthogonal_matrix_has_no_score():
    with pytest.warns(RuntimeWarning, match="no z-score"):
        features, _ = describe([("a", np.linalg.qr(matrices()[0][1][:5])[0])], surrogate_draws=5)
    assert np.isnan(features["a"]["h0_surrogate_z"])


def test_compute_features_half_precision_is_computed_in_double():
    matrix = np.random.default_rng(3).standard_normal((20, 8)).astype(np.float16)
    half, _ = describe([("layer", matrix)])
    double, _ = describe([("layer", matrix.astype(np.float64))])
    assert half["layer"] == pytest.approx(double["layer"], rel=1e-12)


def test_compute_features_job_does_not_import_what_does_not_need():
    code = "import sys, toposcale.features.weights, toposcale.io.tables; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert not {"torch", "pandas", "matplotlib", "sklearn", "transformers"} & set(done.stdout.split())


def test_compute_features_of_whole_layers_have_exact_h0():
    matrix = np.random.default_rng(0).standard_normal((60, 5))
    features, _ = describe([("a", matrix)], max_points=20, whole_layers=True)
    bars = homology.rips_diagrams(matrix, maxdim=0)[0]
    for name, value in homology.summarize_diagram(bars).items():
        assert features["a"][f"h0_{name}_whole"] == pytest.approx(value, rel=1e-12), name
    assert features["a"]["h0_count"] == 19
    assert features["all"]["h0_count_whole"] == 59
    assert "h0_total_whole" not in describe([("a", matrix)])[0]["a"]


def test_compute_features_whole_layers_of_weights_not_finite_nan():
    with pytest.warns(RuntimeWarning, match="a holds NaN"):
        features, _ = describe([("a", np.full((3000, 4), np.nan))], whole_layers=True)
    assert np.isnan(features["a"]["h0_total_whole"])


def block(seed=0, n_in=6, n_hidden=24, names=("dense_h_to_4h", "dense_4h_to_h")):
    rng = np.random.default_rng(seed)
    shapes = (n_hidden, n_in), (n_in, n_hidden)
    return [(f"mlp.{name}.weight", rng.standard_normal(shape)) for name, shape in zip(names, shapes, strict=True)]


@pytest.mark.parametrize("names", [("dense_h_to_4h", "dense_4h_to_h"), ("up_proj", "down_proj"), ("c_fc", "c_proj")])
@pytest.mark.parametrize("order", [1, -1])
def test_compute_features_of_both_matrices_of_a_block(names, order):
    pair = block(names=names)
    features, _ = describe([*pair, ("attention.dense.weight", SQUARE)][::order])
    expected = homology.deep_graph_persistence(pair[0][1], pair[1][1])
    assert features[pair[1][0]]["deep_graph_persistence"] == expected
    assert features["all"]["deep_graph_persistence"] == expected
    assert "deep_graph_persistence" not in features[pair[0][0]]


def test_compute_features_pairs_only_consecutive_matrices():
    (expansion, wide), (projection, narrow) = block()
    features, _ = describe([(expansion, wide), (projection, narrow[:, 1:])])
    assert "deep_graph_persistence" not in features["all"]
    other_block = projection.replace("mlp", "mlp2")
    features, _ = describe([(expansion, wide), (other_block, narrow)])
    assert "deep_graph_persistence" not in features["all"]


def test_compute_features_a_pair_with_a_nan_is_nan():
    (expansion, wide), (projection, narrow) = block()
    wide[0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match="NaN"):
        features, _ = describe([(expansion, wide), (projection, narrow)])
    assert np.isnan(features[projection]["deep_graph_persistence"])


def test_compute_features_has_baselines_of_neural_persistence():
    features, _ = describe(matrices())
    for layer, weight in matrices():
        assert features[layer]["weight_variance"] == homology.weight_variance(weight)
        assert features[layer]["spatial_concentration"] == homology.spatial_concentration(weight)


def test_compute_features_spread_is_of_whole_layers():
    features, _ = describe(matrices(), max_points=3)
    for layer, weight in matrices():
        values = np.linalg.svd(weight, compute_uv=False)
        assert features[layer]["nuclear_norm"] == pytest.approx(values.sum(), rel=1e-13)
        distances = cdist(weight, weight) + np.diag(np.full(len(weight), np.inf))
        assert features[layer]["nearest_neighbour_mean"] == pytest.approx(distances.min(axis=1).mean(), rel=1e-14)
    a, b, whole = features["a.weight"], features["b.weight"], features["all"]
    assert whole["nuclear_norm"] == a["nuclear_norm"] + b["nuclear_norm"]
    assert whole["nearest_neighbour_mean"] == pytest.approx(
        (a["nearest_neighbour_mean"] + b["nearest_neighbour_mean"]) / 2
    )
    assert [group_of(name) for name in ("nuclear_norm", "nearest_neighbour_mean")] == ["spectrum", "norm"]


GROUP_OF = {"neural_persistence": "topology", "frobenius_norm": "norms", "stable_rank": "spectra"}


@pytest.mark.parametrize("chosen", [("topology",), ("norms",), ("spectra",), ("norms", "spectra")])
def test_compute_features_only_the_chosen_groups_are_computed(chosen, monkeypatch):
    everything, _ = describe([*matrices(), *block()])
    if "spectra" not in chosen:
        monkeypatch.setattr(spectra, "weight_eigenvalues", None)  # nobody pays for what is not wanted
    features, diagrams = describe([*matrices(), *block()], features=chosen)
    assert {name for name in GROUP_OF if name in features["all"]} == {
        name for name, group in GROUP_OF.items() if group in chosen
    }
    for layer, values in features.items():
        assert values == {name: everything[layer][name] for name in values}
    assert all(bool(of_layer) == ("topology" in chosen) for of_layer in diagrams.values())


def test_compute_features_of_a_large_matrix_within_its_errors(monkeypatch):
    weight = np.random.default_rng(0).normal(size=(900, 300)).astype(np.float32)
    names = ["nuclear_norm", "nearest_neighbour_mean"]

    def measured():
        return weights.compute_features([("w", weight)], weights.WeightSettings(), names=names)[0]["w"]

    exact = measured()
    for constant, value in (("MAX_SINGULAR_VALUES", 100), ("MAX_ROWS", 500), ("SAMPLED_ROWS", 300)):
        monkeypatch.setattr(registry, constant, value)
    fast = measured()
    assert fast["nuclear_norm"] == pytest.approx(exact["nuclear_norm"], rel=1e-12)
    assert fast["nuclear_norm"] == pytest.approx(np.linalg.norm(weight.astype(np.float64), "nuc"), rel=1e-12)
    assert fast["nearest_neighbour_mean"] != exact["nearest_neighbour_mean"]
    assert fast["nearest_neighbour_mean"] == pytest.approx(exact["nearest_neighbour_mean"], rel=0.01)


@pytest.mark.parametrize("shape", [(1, 20), (20, 1), (1, 1)])
def test_compute_features_of_one_row_or_column_have_no_nan(shape):
    """One output unit, as of a value head, used to turn 14 features of the whole model to NaN."""
    large = ("a.weight", np.random.default_rng(3).standard_normal((20, 18)))
    head = ("head.weight", np.random.default_rng(4).standard_normal(shape))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features, _ = describe([large, head])
    assert all(np.isfinite(list(values.values())).all() for values in features.values())
    alone, _ = describe([large])
    assert features["all"].keys() == alone["all"].keys()
    assert features["all"]["powerlaw_alpha"] == alone["all"]["powerlaw_alpha"]
    [sentence] = weights.undefined_sentences(features)
    assert sentence.startswith("no ")
    assert sentence.endswith("(too small): head.weight")
    assert sentence.count(",") <= 2
    assert weights.undefined_sentences(alone) == []
    broken, _ = describe([large, ("head.weight", np.full(shape, np.nan))])
    assert np.isnan(broken["all"]["frobenius_norm"])


def test_undefined_sentences_of_an_exponent_of_no_matrix():
    features, _ = describe([("w", SQUARE), ("v", SQUARE.T + 1)], features=("spectra",))
    assert "powerlaw_alpha" not in features["all"]
    assert "stable_rank" in features["all"]
    assert weights.undefined_sentences(features) == ["no ESD exponent α (too small): w, v"]


def test_compute_features_matrix_not_finite_has_names_of_one_is():
    weight = np.random.default_rng(5).standard_normal((30, 20))
    with pytest.warns(RuntimeWarning, match="holds NaN"):
        broken, _ = describe([("w", np.where(weight > 2, np.nan, weight))])
    assert broken["w"].keys() == describe([("w", weight)])[0]["w"].keys()
