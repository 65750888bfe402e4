"""A model on fixed texts: forward pass (with torch), mean hidden states, perplexity, and features of the states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale import homology
from toposcale.features import spectra
from toposcale.homology.validation import as_finite
from toposcale.io.schemas import ALL_LAYERS

if TYPE_CHECKING:
    from torch import Tensor

    from toposcale.checkpoints.language_models import LanguageModel

Features = dict[str, float]
Diagrams = list[NDArray[np.float64]]


@dataclass(frozen=True)
class EmbeddingSettings:
    """Settings of the features of embeddings.

    components: number of principal components.
    repeats: number of random subsets of the texts, for the `_spread` of each feature.
    subset: their share of the texts.
    seed: of the subsets.
    """

    components: int = 50
    repeats: int = 5
    subset: float = 0.8
    seed: int = 42


def tokenize(texts: Sequence[str], tokenizer: Any, *, tokens: int = 128) -> list[list[int]]:
    """Encode the texts by a transformers tokenizer, each truncated to that many `tokens`."""
    return [list(ids) for ids in tokenizer(list(texts), truncation=True, max_length=tokens)["input_ids"]]


@dataclass(frozen=True)
class ForwardPass:
    """Results of a forward pass over n texts.

    embeddings: mean hidden state over the tokens of each text, float32 (n, d_model), by layer; the last layer, after the
    final norm, is called "all". With all layers, `hidden.00` is the embedding layer and the others are the blocks.
    cross_entropies: float64 (n,), summed over the predicted tokens of a text, in nats.
    predicted: (n,), numbers of predicted tokens.
    precision: relative rounding of the embeddings: that of float32, or of the model's own dtype if it is coarser, over
    the root of the tokens of a text.
    """

    embeddings: dict[str, NDArray[np.float32]]
    cross_entropies: NDArray[np.float64]
    predicted: NDArray[np.int64]
    precision: float

    @property
    def perplexity(self) -> float:
        """Perplexity, exp(total cross-entropy / total predicted tokens); infinite if that overflows."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.cross_entropies.sum() / self.predicted.sum()))


def forward_pass(
    model: LanguageModel,
    texts: Sequence[Sequence[int]],
    *,
    all_layers: bool = False,
    batch_tokens: int = 1024,
    vocabulary_block: int = 1024,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
) -> ForwardPass:
    """Return embeddings and cross-entropies of tokenised texts from one pass.

    Texts of similar length share a batch of at most `batch_tokens` tokens, padding included. Logits are computed for
    `vocabulary_block` tokens of the vocabulary at a time (4 MB, which fit in the cache). The first token of a text is not
    predicted. progress: called with the batches and their number, returns an iterable of them. ValueError: no texts, an
    empty one, one longer than the context or with an unknown token, or none with two tokens.
    """
    import torch

    lengths = _checked_lengths(model, texts)
    cross_entropies = np.zeros(len(texts))
    pooled: np.ndarray | None = None
    batches = list(_batches(lengths, batch_tokens))
    with torch.inference_mode():
        for rows in progress(batches, len(batches)) if progress else batches:
            batch = [torch.as_tensor(texts[row], dtype=torch.int64) for row in rows]
            tokens = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True).to(model.head_weight.device)
            states = model.hidden_states(tokens, not all_layers)
            means = _mean_over_tokens(states, lengths[rows])
            if pooled is None:
                pooled = np.empty((len(means), len(texts), means.shape[-1]), dtype=np.float32)
            pooled[:, rows] = means
            cross_entropies[rows] = _cross_entropies(model, tokens, states[-1], lengths[rows], vocabulary_block)
    assert pooled is not None
    precision = max(torch.finfo(torch.float32).eps, torch.finfo(states[-1].dtype).eps / float(np.sqrt(lengths.mean())))
    embeddings = {ALL_LAYERS: pooled[-1]}
    if all_layers:
        digits = max(2, len(str(len(pooled) - 1)))
        embeddings = {f"hidden.{i:0{digits}d}": layer for i, layer in enumerate(pooled)} | embeddings
    return ForwardPass(embeddings, cross_entropies, lengths - 1, precision)


def _checked_lengths(model: LanguageModel, texts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    if len(texts) == 0 or lengths.min() == 0 or lengths.max() < 2:
        raise ValueError("texts must be one or more sequences of tokens, none empty and one of at least two")
    if lengths.max() > model.context:
        raise ValueError(f"texts: one has {lengths.max()} tokens, the model's context is {model.context}")
    smallest, largest = min(map(min, texts)), max(map(max, texts))
    if smallest < 0 or largest >= model.vocab_size:
        raise ValueError(f"texts: tokens {smallest} to {largest}, but the model has 0 to {model.vocab_size - 1}")
    return lengths


def _batches(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of the texts of each batch, longest texts first, so that the first batch needs the most memory."""
    rest = np.argsort(-lengths, kind="stable")
    while len(rest):
        count = max(1, batch_tokens // int(lengths[rest[0]]))
        yield rest[:count]
        rest = rest[count:]


def _mean_over_tokens(states: Sequence[Tensor], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """Average each layer's states (batch, length, d) over each text's own tokens: (layers, batch, d), rounded once."""
    import torch

    positions = np.arange(states[0].shape[1])
    shares = (positions < lengths[:, None]) / lengths[:, None]
    weights = torch.from_numpy(shares[:, None, :]).to(states[0].device)
    means = [torch.bmm(weights, state.double())[:, 0].float() for state in states]
    return torch.stack(means).cpu().numpy()


def _cross_entropies(
    model: LanguageModel, tokens: Tensor, hidden: Tensor, lengths: NDArray[np.int64], vocabulary_block: int
) -> NDArray[np.float64]:
    """Return the summed cross-entropy of each text; the head sees only positions that predict a token of the text."""
    import torch

    predicts_a_token = np.arange(tokens.shape[1] - 1) < lengths[:, None] - 1
    mask = torch.from_numpy(predicts_a_token).to(tokens.device)
    losses = _token_losses(model, hidden[:, :-1][mask], tokens[:, 1:][mask], vocabulary_block)
    weights = losses.double().cpu().numpy()
    return np.bincount(np.nonzero(predicts_a_token)[0], weights, minlength=len(lengths)).astype(np.float64)


def _token_losses(model: LanguageModel, inputs: Tensor, targets: Tensor, vocabulary_block: int) -> Tensor:
    """Return log sum exp(logits) - logits[target] for inputs (n, d_model), targets (n,), by blocks of the vocabulary."""
    import torch

    weight, bias = model.head_weight, model.head_bias
    target_logits = (inputs.float() * weight[targets].float()).sum(dim=1)
    if bias is not None:
        target_logits += bias[targets].float()
    target_logits = model.logits(target_logits)
    largest = torch.full_like(target_logits, -torch.inf)
    total = torch.zeros_like(target_logits)  # of exp(logit - largest), over the blocks so far
    # One buffer for all blocks: fresh memory of this size is cleared by the system each time.
    buffer = torch.empty(len(inputs) * vocabulary_block, dtype=inputs.dtype, device=inputs.device)
    for first in range(0, model.vocab_size, vocabulary_block):
        part = weight[first : first + vocabulary_block]
        logits = torch.mm(inputs, part.T, out=buffer[: len(inputs) * len(part)].view(len(inputs), len(part)))
        if bias is not None:
            logits += bias[first : first + vocabulary_block]
        logits = model.logits(logits.float())
        larger = torch.maximum(largest, logits.amax(dim=1))
        total = total * (largest - larger).exp() + logits.sub_(larger[:, None]).exp_().sum(dim=1)
        largest = larger
    return total.log() + (largest - target_logits)


def compute_features(
    embeddings: Mapping[str, ArrayLike], settings: EmbeddingSettings, *, precision: float | None = None
) -> tuple[dict[str, Features], dict[str, Diagrams]]:
    """Return features and diagrams by layer, with the `_spread` of every feature if `settings.repeats` is 2 or more.

    The subsets depend only on the seed and the number of texts. A layer that is not finite has NaN features, and diagrams
    of one NaN bar. `precision`: relative rounding of the embeddings (`ForwardPass.precision`), by default that of
    their dtype.
    """

    def describe_cloud(points: ArrayLike) -> tuple[Features, Diagrams]:
        values, bars = embedding_features(points, components=settings.components, precision=precision)
        if settings.repeats >= 2:
            rng = homology.seeded_generator((settings.seed, "probe subsets"))
            values |= feature_spread(points, settings, rng, precision)
        return values, bars

    descriptions = {
        layer: describe_cloud(points)
        if np.isfinite(points).all()
        else homology.nan_features(describe_cloud, np.shape(points))
        for layer, points in embeddings.items()
    }
    features = {layer: values for layer, (values, _) in descriptions.items()}
    return features, {layer: bars for layer, (_, bars) in descriptions.items()}


def embedding_features(
    embeddings: ArrayLike, *, components: int = 50, precision: float | None = None
) -> tuple[Features, Diagrams]:
    """Return the topology and spectra of embedded texts (n, d): features by name, and the diagrams H0 and H1.

    After PCA to `components`: those of `homology.cloud_features`, and `pca_variance_kept`, between 0 and 1. Before PCA, of
    the centred matrix: `effective_rank`, `participation_ratio`, and of 16 columns and 17 texts on `eigenspectrum_decay`.
    ValueError: not 2-D, empty, NaN or infinite.
    """
    points, kept = principal_components(embeddings, components)
    topology, diagrams = homology.cloud_features(points)
    features = {"pca_variance_kept": kept, **topology}
    for function in (spectra.effective_rank, spectra.participation_ratio, spectra.eigenspectrum_decay):
        features[function.__name__] = function(embeddings, precision)
    if min(len(points) - 1, np.shape(embeddings)[1]) < spectra.MIN_EIGENVALUES:
        del features["eigenspectrum_decay"]
    return features, diagrams


def feature_spread(
    embeddings: ArrayLike, settings: EmbeddingSettings, rng: np.random.Generator, precision: float | None = None
) -> Features:
    """Return the standard deviation of each feature over random subsets of the texts, as `{feature}_spread`.

    The divisor is repeats - 1. Subsets are drawn without replacement; features that grow with the number of texts are those
    of the smaller number. NaN if a subset's feature is NaN. ValueError: fewer than 2 repeats, or subsets of fewer than 3
    texts.
    """
    points = np.asarray(embeddings)
    size = round(settings.subset * len(points))
    if settings.repeats < 2 or size < 3:
        raise ValueError(f"a spread needs 2 repeats of 3 texts, got {settings.repeats} of {size}")
    parts = [np.sort(rng.choice(len(points), size, replace=False)) for _ in range(settings.repeats)]
    draws = [embedding_features(points[rows], components=settings.components, precision=precision)[0] for rows in parts]
    return {f"{name}_spread": float(np.std([draw[name] for draw in draws], ddof=1)) for name in draws[0]}


def principal_components(embeddings: ArrayLike, components: int) -> tuple[NDArray[np.float64], float]:
    """Return the PCA by SVD in float64: scores (n, k), k = min(components, n, d), and the fraction of variance kept.

    Identical points have no variance: a fraction of NaN. ValueError: not 2-D, empty, NaN, infinite; or `components` below
    1.
    """
    points = as_finite(embeddings, "embeddings", np.float64)
    if components < 1:
        raise ValueError(f"components must be 1 or more, got {components}")
    points = points - points[0]  # makes equal points exactly 0, which subtracting the mean may not
    left, singular, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    variances = singular**2
    total = variances.sum()
    share = float(variances[:components].sum() / total) if total else float("nan")
    return left[:, :components] * singular[:components], share
