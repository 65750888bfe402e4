"""Steps, tokens and compute of a training, and back."""

from typing import Any, NamedTuple


class StepCost(NamedTuple):
    """Number of parameters, embeddings included, and tokens of a step: numbers or arrays, NaN where unknown."""

    n_parameters: Any
    tokens_per_step: Any

    def tokens(self, steps: Any) -> Any:
        """Return the tokens that steps read."""
        return steps * self.tokens_per_step

    def flop(self, steps: Any) -> Any:
        """Return the compute 6 N D of steps in FLOP (Kaplan et al. 2020, arXiv 2001.08361)."""
        return 6.0 * self.n_parameters * self.tokens(steps)

    def steps_of_tokens(self, tokens: Any) -> Any:
        """Return the steps that read so many tokens."""
        return tokens / self.tokens_per_step

    def steps_of_flop(self, flop: Any) -> Any:
        """Return the steps that so much compute, FLOP, pays for."""
        return flop / self.flop(1)
