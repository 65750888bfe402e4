"""What is plausible of a family of language models before its losses are seen, learnt from published families.

`python -m studies.decisions priors` learns these numbers from the curves of the published runs, once from all of them and
once with each source left out: a family is never judged with a prior that was learnt from it.
"""

from typing import NamedTuple, Self

import numpy as np


class Belief(NamedTuple):
    """A Gaussian: its centre and its standard deviation."""

    centre: float
    width: float


class Prior(NamedTuple):
    """The beliefs on the constants of a family's law (see `family_law`), in its order.

    alpha and B: of the multi-power law, B in nats at a peak rate of `PEAK`. kappa: slope of log A in log N. share: log-odds
    of E / L0 for `SIZE` parameters. log_alpha_n: of the exponent of the size. log_misfit: of the size of the misfit at the
    last loss that was seen, nats. clock: the training time of a step is its rate to this power. gain: a fall of the rate
    counts as that of the rate to this power. peak: B grows as the peak rate to this power, which is no belief.
    """

    log_alpha: Belief
    log_b: Belief
    kappa: Belief
    share: Belief
    log_alpha_n: Belief
    log_misfit: Belief
    clock: Belief
    gain: Belief
    peak: float

    def share_of(self, n_parameters: float) -> Belief:
        """The log-odds of E / L0 for another size: with L0 = E + A' N^-alpha they rise by alpha for each log of N."""
        away = np.log(np.clip(n_parameters, *_KNOWN_SIZES) / SIZE)
        return Belief(self.share.centre + float(np.exp(self.log_alpha_n.centre) * away), self.share.width)

    def log_b_of(self, peak_rate: float) -> Belief:
        """log B under this peak rate; wider where it is not known, or outside those that were published (`PEAKS_KNOWN`)."""
        if not PEAKS_KNOWN[0] <= peak_rate <= PEAKS_KNOWN[1]:
            return Belief(self.log_b.centre, float(np.hypot(self.log_b.width, self.peak * PEAK_SPREAD)))
        return Belief(self.log_b.centre + self.peak * float(np.log(peak_rate / PEAK)), self.log_b.width)

    @property
    def slow(self) -> Self:
        """The same beliefs, but a step counts as its rate (Luo et al. 2025), and the loss falls more slowly with it, as it
        does with the tokens of whole trainings (Hoffmann et al. 2022)."""
        return self._replace(log_alpha=Belief(float(np.log(0.4)), 0.2), clock=Belief(1.0, 0.1), gain=Belief(0.85, 0.15))


PEAK, PEAK_SPREAD = 1e-3, 0.7
"""A usual peak of the learning rate, and by how much the logarithms of peaks differ."""

PEAKS_KNOWN = (3e-5, 2e-2)
"""Peak rates as optimizers of the kind of Adam have them; a rate outside is that of something else, or relative."""

SIZES_KNOWN = (2.5e7, 3.3e9)
"""Parameters of the published trainings: what is known of sizes is known there."""


def decades_away(n_parameters: float) -> float:
    """Decades between a size and the nearest one that was published; 0 between these."""
    return float(abs(np.log10(n_parameters / np.clip(n_parameters, *SIZES_KNOWN))))


SIZE = 1e8
_KNOWN_SIZES = (3e6, 1e11)
"""Sizes beyond which nothing is known of the share."""

PUBLISHED = Prior(
    log_alpha=Belief(-0.660, 0.258),
    log_b=Belief(-1.895, 0.300),
    kappa=Belief(0.157, 0.102),
    share=Belief(0.615, 0.397),
    log_alpha_n=Belief(-1.124, 0.209),
    log_misfit=Belief(-4.453, 0.600),
    clock=Belief(0.501, 0.100),
    gain=Belief(0.713, 0.150),
    peak=0.196,
)
"""Learnt from all published families."""
