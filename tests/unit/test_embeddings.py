import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale import homology
from toposcale.features import spectra
from toposcale.features.embeddings import (
    EmbeddingSettings,
    compute_features,
    embedding_features,
    feature_spread,
    forward_pass,
    principal_components,
)

torch = pytest.importorskip("torch")
from toposcale.checkpoints.language_models import LanguageModel  # noqa: E402

VOCABULARY, WIDTH, CONTEXT = 37, 8, 24


def causal_model(*, bias: bool = False, scale: float = 1.0, vocabulary: int = VOCABULARY) -> LanguageModel:
    """Two causal layers, each the running mean of what came before through a matrix."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int):
        return scale * torch.randn(*shape, generator=generator)

    table, first, second = draw(vocabulary, WIDTH), draw(WIDTH, WIDTH), draw(WIDTH, WIDTH)

    def hidden_states(tokens, last_only):
        counts = torch.arange(1, tokens.shape[1] + 1)[:, None]
        states = [table[tokens]]
        for matrix in (first, second):
            states.append(torch.tanh((states[-1].cumsum(1) / counts) @ matrix))
        return states[-1:] if last_only else states

    return LanguageModel(hidden_states, draw(vocabulary, WIDTH), draw(vocabulary) if bias else None, CONTEXT)


def random_texts(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, rng.integers(1, CONTEXT + 1)).tolist() for _ in range(count)]


def one_by_one(model: LanguageModel, texts):
    """Each text by itself, all its logits at once: embeddings of every layer, cross-entropies."""
    layers, losses = [], []
    for text in texts:
        tokens = torch.tensor([text])
        states = model.hidden_states(tokens, False)
        layers.append([state[0].mean(0).numpy() for state in states])
        logits = torch.nn.functional.linear(states[-1][0], model.head_weight, model.head_bias)
        losses.append(torch.nn.functional.cross_entropy(logits[:-1].double(), tokens[0, 1:], reduction="sum").item())
    return np.array(layers).swapaxes(0, 1), np.array(losses)


@pytest.mark.parametrize("bias", [False, True])
@given(st.integers(1, 12), st.integers(1, 200), st.integers(1, 50), st.integers(0, 5))
@settings(max_examples=25)
def test_forward_pass_batches_and_blocks_change_nothing(bias, count, batch_tokens, vocabulary_block, seed):
    model = causal_model(bias=bias)
    texts = [*random_texts(count, seed), [1, 2]]
    found = forward_pass(model, texts, all_layers=True, batch_tokens=batch_tokens, vocabulary_block=vocabulary_block)
    layers, losses = one_by_one(model, texts)
    assert list(found.embeddings) == ["hidden.00", "hidden.01", "hidden.02", "all"]
    # float32 sums of at most 24 terms of size 1 in another order: a few units of 2^-23.
    for layer, expected in zip(found.embeddings.values(), [*layers, layers[-1]], strict=True):
        np.testing.assert_allclose(layer, expected, rtol=0, atol=3e-6)
    np.testing.assert_allclose(found.cross_entropies, losses, rtol=1e-5, atol=1e-5)
    predicted = sum(len(text) - 1 for text in texts)
    assert found.predicted.sum() == predicted
    assert found.perplexity == pytest.approx(math.exp(losses.sum() / predicted), rel=1e-5)


def test_forward_pass_last_layer_alone_is_the_same():
    model, texts = causal_model(), random_texts(9)
    last = forward_pass(model, texts).embeddings
    assert list(last) == ["all"]
    np.testing.assert_array_equal(last["all"], forward_pass(model, texts, all_layers=True).embeddings["hidden.02"])


def test_forward_pass_same_bytes_every_time():
    model, texts = causal_model(), random_texts(20)
    first, second = forward_pass(model, texts), forward_pass(model, texts)
    assert first.embeddings["all"].tobytes() == second.embeddings["all"].tobytes()
    assert first.cross_entropies.tobytes() == second.cross_entropies.tobytes()


def test_forward_pass_of_a_zero_head_is_uniform():
    model = causal_model()
    blind = LanguageModel(model.hidden_states, torch.zeros_like(model.head_weight), None, CONTEXT)
    assert forward_pass(blind, [[0, 1, 2], [5, 6]]).perplexity == pytest.approx(VOCABULARY, rel=1e-6)


def test_forward_pass_large_logits_do_not_overflow():
    model = causal_model()
    loud = LanguageModel(model.hidden_states, 1e4 * model.head_weight, None, CONTEXT)
    texts = random_texts(5)
    _, losses = one_by_one(loud, texts)
    assert forward_pass(loud, texts).cross_entropies == pytest.approx(losses, rel=1e-5)


def test_forward_pass_every_text_has_its_own_row():
    model, texts = causal_model(), random_texts(12)
    found, turned = forward_pass(model, texts), forward_pass(model, texts[::-1])
    np.testing.assert_allclose(found.embeddings["all"], turned.embeddings["all"][::-1], rtol=0, atol=3e-6)
    np.testing.assert_array_equal(found.predicted, turned.predicted[::-1])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "one or more"),
        ([[1, 2], []], "none empty"),
        ([[1], [2]], "at least two"),
        ([[1, VOCABULARY]], f"tokens 1 to {VOCABULARY}, but the model has 0 to {VOCABULARY - 1}"),
        ([[1, -1]], "tokens -1 to 1"),
        ([[1] * (CONTEXT + 1)], f"the model's context is {CONTEXT}"),
    ],
)
def test_forward_pass_texts_that_cannot_be_used(texts, message):
    with pytest.raises(ValueError, match=message):
        forward_pass(causal_model(), texts)


def test_forward_pass_model_gives_nan_has_same_features_all_nan():
    texts = [[1, 2, 3], [2, 3], [3, 1, 2], [1, 1]]
    settings = EmbeddingSettings(repeats=2)
    found = {}
    for scale in (1.0, float("nan")):
        passed = forward_pass(causal_model(scale=scale), texts)
        features, diagrams = compute_features(passed.embeddings, settings)
        found[scale == 1.0] = passed.perplexity, features["all"], diagrams["all"]
    assert np.isfinite(found[True][0])
    assert np.isnan(found[False][0])
    assert found[True][1].keys() == found[False][1].keys()
    assert np.isnan(list(found[False][1].values())).all()
    assert len(found[False][2]) == len(found[True][2])
    assert all(np.isnan(diagram).all() for diagram in found[False][2])


def normed_model(dtype):
    """One layer behind a LayerNorm, which takes a dimension away; its mean over a vector is 0 before gain and bias."""
    torch.manual_seed(4)
    table, norm = torch.randn(VOCABULARY, 18), torch.nn.LayerNorm(18)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.bias.normal_(0, 3)
    norm, table = norm.to(dtype), table.to(dtype)
    return LanguageModel(lambda tokens, last_only: [norm(table[tokens])], table, None, CONTEXT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_pass_the_decay_is_that_of_the_model_in_float64(dtype):
    texts = [[*text, 1, 2, 3] for text in random_texts(60) if len(text) < CONTEXT - 3]
    decay = {}
    for precision in (torch.float64, dtype):
        passed = forward_pass(normed_model(precision), texts)
        features, _ = compute_features(passed.embeddings, EmbeddingSettings(repeats=0), precision=passed.precision)
        decay[precision] = features["all"]["eigenspectrum_decay"]
    assert decay[dtype] == pytest.approx(decay[torch.float64], rel=1e-5 if dtype == torch.float32 else 0.05)


def test_forward_pass_means_over_tokens_are_rounded_once():
    states = torch.full((1, 4096, 1), 0.1)
    states[0, 0] = 3e4
    passed = forward_pass(
        LanguageModel(lambda tokens, last_only: [states], torch.zeros(5, 1), None, 4096), [[1] * 4096]
    )
    exact = states[0].double().mean(0).numpy().astype(np.float32)
    np.testing.assert_array_equal(passed.embeddings["all"][0], exact)


# Features.


def test_embedding_features_features_of_a_square_in_the_plane():
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=np.float32) + 7
    features, diagrams = embedding_features(square)
    np.testing.assert_allclose(diagrams[0], [[0, 1]] * 3, atol=1e-12)
    np.testing.assert_allclose(diagrams[1], [[1, math.sqrt(2)]], atol=1e-12)
    assert features["h0_count"] == 3
    assert features["h0_total"] == pytest.approx(3)
    assert features["h1_total"] == pytest.approx(math.sqrt(2) - 1)
    mean_distance = (4 + 2 * math.sqrt(2)) / 6
    assert features["h0_total_scaled"] == pytest.approx(3 / mean_distance)
    assert features["pca_variance_kept"] == pytest.approx(1)
    # Two equal singular values.
    assert features["effective_rank"] == pytest.approx(2)
    assert features["participation_ratio"] == pytest.approx(2)


def cloud(seed: int, n_points: int = 30, dimension: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_points, dimension)) * np.arange(1, dimension + 1) ** -0.5


@given(st.integers(0, 20), st.floats(0.01, 100))
@settings(max_examples=10)
def test_embedding_features_moving_turning_and_growing(seed, factor):
    points = cloud(seed)
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    plain, _ = embedding_features(points)
    changed, _ = embedding_features(factor * points @ turn + rng.standard_normal(12))
    grows = re.compile(r"h\d_(total|total_l2|max|mean)$")
    for name, value in plain.items():
        expected = value * factor if grows.fullmatch(name) else value
        assert changed[name] == pytest.approx(expected, rel=1e-6), name


def test_principal_components_of_full_rank_keep_distances():
    points = cloud(3)
    scores, kept = principal_components(points, 50)
    np.testing.assert_allclose(homology.pairwise_distances(scores), homology.pairwise_distances(points))
    assert kept == pytest.approx(1)
    assert scores.shape == (30, 12)


def test_principal_components_variance_kept_against_covariance():
    points = cloud(4)
    eigenvalues = np.linalg.eigvalsh(np.cov(points.T))[::-1]
    scores, kept = principal_components(points, 5)
    assert kept == pytest.approx(eigenvalues[:5].sum() / eigenvalues.sum())
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), eigenvalues[:5])


def test_embedding_features_spectra_are_those_before_components():
    points = cloud(5)
    features, _ = embedding_features(points, components=2)
    assert features["effective_rank"] == spectra.effective_rank(points)
    assert features["effective_rank"] > 2


def test_embedding_features_texts_are_all_alike_have_no_scale():
    with pytest.warns(RuntimeWarning):
        features, _ = embedding_features(np.full((5, 3), 0.1, dtype=np.float32))
    assert features["h0_total"] == 0
    assert math.isnan(features["h0_total_scaled"])
    assert math.isnan(features["pca_variance_kept"])


@pytest.mark.parametrize("points", [np.ones(3), np.empty((0, 3)), [[1.0, np.nan]], [[np.inf, 1.0]]])
def test_embedding_features_clouds_that_are_none(points):
    with pytest.raises(ValueError, match="embeddings"):
        embedding_features(points)


def test_feature_spread_spread_is_the_deviation_over_subsets():
    points, wanted = cloud(6), EmbeddingSettings(repeats=4, subset=0.5)
    spread = feature_spread(points, wanted, np.random.default_rng(9))
    rng = np.random.default_rng(9)
    draws = [embedding_features(points[np.sort(rng.choice(30, 15, replace=False))])[0] for _ in range(4)]
    assert spread.keys() == {f"{name}_spread" for name in draws[0]}
    assert spread["h0_total_spread"] == pytest.approx(np.std([draw["h0_total"] for draw in draws], ddof=1))
    assert spread["h0_count_spread"] == 0


def test_feature_spread_whole_set_again_and_again_has_no_spread():
    spread = feature_spread(cloud(7), EmbeddingSettings(repeats=2, subset=1.0), np.random.default_rng(0))
    assert set(spread.values()) == {0.0}


def test_compute_features_subsets_depend_only_on_the_seed():
    points = cloud(8)
    features, diagrams = compute_features({"hidden.00": points, "all": points}, EmbeddingSettings(repeats=2))
    assert features["hidden.00"] == features["all"]
    assert "h0_total_spread" in features["all"]
    assert len(diagrams["all"]) == 2
    other, _ = compute_features({"all": points}, EmbeddingSettings(repeats=2, seed=43))
    assert other["all"]["h0_total_spread"] != features["all"]["h0_total_spread"]
    without, _ = compute_features({"all": points}, EmbeddingSettings(repeats=0))
    assert not any(name.endswith("_spread") for name in without["all"])


# Texts.
