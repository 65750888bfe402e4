"""What is plausible of a family of language models before its losses are seen, learnt from published families.

`make decisions ONLY=published` computes these numbers from the curves of the published runs, once with all of them and once
with each source left out: a family is never forecast there with a prior that was learnt from it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Belief(NamedTuple):
    """A Gaussian: its centre and its standard deviation."""

    centre: float
    width: float


class Prior(NamedTuple):
    """The beliefs on the constants of the joint law (see `joint`), in its order.

    alpha and B: of the multi-power law. kappa: slope of log A in log N. share: log-odds of E / L0 for `SIZE` parameters.
    log_alpha_n: of the exponent of the size.
    """

    log_alpha: Belief
    log_b: Belief
    kappa: Belief
    share: Belief
    log_alpha_n: Belief

    def share_of(self, n_parameters: float) -> Belief:
        """The log-odds of E / L0 for another size: with L0 = E + A' N^-alpha they rise by alpha for each log of N."""
        away = np.log(np.clip(n_parameters, *_KNOWN_SIZES) / SIZE)
        return Belief(self.share.centre + float(np.exp(self.log_alpha_n.centre) * away), self.share.width)


SIZE = 1e8
_KNOWN_SIZES = (3e6, 1e11)
"""Sizes beyond which nothing is known of the share."""

PUBLISHED = Prior(
    log_alpha=Belief(-0.682, 0.199),
    log_b=Belief(-3.113, 0.241),
    kappa=Belief(0.123, 0.094),
    share=Belief(0.728, 0.413),
    log_alpha_n=Belief(-1.180, 0.260),
)
"""Learnt from all published families."""
