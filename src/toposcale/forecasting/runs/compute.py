"""Training compute."""

from typing import Any


def flop(n_parameters: Any, tokens: Any) -> Any:
    """Return the training compute C = 6 N D in FLOP, of numbers or arrays (Kaplan et al. 2020, arXiv 2001.08361)."""
    return 6.0 * n_parameters * tokens
