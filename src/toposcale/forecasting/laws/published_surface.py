"""Published scaling law L(N, D) of Hoffmann et al. 2022 (arXiv 2203.15556), nats per token."""

import numpy as np


def published_surface(n_parameters: float, n_tokens: float) -> float:
    """Return the loss of Hoffmann et al. 2022 at N parameters and D tokens, nats per token."""
    return _published_floor(n_parameters) + published_reducible_loss(n_tokens)


def published_reducible_loss(n_tokens: float) -> float:
    """Return by how much that surface lies above its value after infinitely many tokens, nats per token."""
    return float(_B / n_tokens**_BETA)


def published_tokens(n_parameters: float, loss: float) -> float:
    """Return the tokens after which that surface has a loss; infinite where it never has."""
    above = loss - _published_floor(n_parameters)
    return float((_B / above) ** (1 / _BETA)) if above > 0 else np.inf


_B, _BETA = 410.7, 0.28
"""Constants of the published scaling law in D tokens, nats per token."""


def _published_floor(n_parameters: float) -> float:
    """Return the loss of that surface after infinitely many tokens."""
    return float(1.69 + 406.4 / n_parameters**0.34)
