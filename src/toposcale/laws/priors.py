"""Prior of the constants of a family's law, learnt from published families.

`python -m studies.decisions priors` learns these numbers from the curves of the published runs, once from all of them and
once with each source left out: a family is never judged with a prior that was learnt from it.
"""

from typing import Any, NamedTuple, Self

import numpy as np


class Gaussian(NamedTuple):
    """Mean and standard deviation of a normal distribution: two numbers, or arrays of one shape."""

    mean: Any
    sd: Any


class Prior(NamedTuple):
    """Prior of the constants of a family's law (see `family_law`), in its order.

    log_alpha, log_b: of the multi-power law, B in nats at a peak rate of `PEAK`. kappa: slope of log A in log N. share:
    log-odds of E / L0 for `SIZE` parameters. log_alpha_n: of the exponent in N. log_discrepancy: log of the standard
    deviation of the model discrepancy at the last loss, nats. time_exponent: the training time of a step is its rate to
    this power. decay_exponent: a decay counts as that of the rate to this power. peak_exponent: B grows as the peak rate to
    this power, which has no uncertainty.
    """

    log_alpha: Gaussian
    log_b: Gaussian
    kappa: Gaussian
    share: Gaussian
    log_alpha_n: Gaussian
    log_discrepancy: Gaussian
    time_exponent: Gaussian
    decay_exponent: Gaussian
    peak_exponent: float

    def share_of(self, n_parameters: float) -> Gaussian:
        """Return the prior of the log-odds of E / L0 at a size: with L0 = E + A' N^-alpha they rise by alpha per log N."""
        offset = np.log(np.clip(n_parameters, *_SHARE_RANGE) / SIZE)
        return Gaussian(self.share.mean + float(np.exp(self.log_alpha_n.mean) * offset), self.share.sd)

    def log_b_of(self, peak_rate: float) -> Gaussian:
        """Return the prior of log B at a peak rate; wider where unknown, or outside `PEAKS_KNOWN`."""
        if not PEAKS_KNOWN[0] <= peak_rate <= PEAKS_KNOWN[1]:
            return Gaussian(self.log_b.mean, float(np.hypot(self.log_b.sd, self.peak_exponent * PEAK_SPREAD)))
        return Gaussian(self.log_b.mean + self.peak_exponent * float(np.log(peak_rate / PEAK)), self.log_b.sd)

    @property
    def second(self) -> Self:
        """Prior of the second model of the average.

        The training time of a step is its rate (Luo et al. 2025), and the loss falls more slowly with it, as it does with
        the tokens of whole runs (Hoffmann et al. 2022).
        """
        return self._replace(
            log_alpha=Gaussian(float(np.log(0.4)), 0.2),
            time_exponent=Gaussian(1.0, 0.1),
            decay_exponent=Gaussian(0.85, 0.15),
        )


PEAK, PEAK_SPREAD = 1e-3, 0.7
"""A usual peak of the learning rate, and the standard deviation of the logarithms of peaks."""

PEAKS_KNOWN = (3e-5, 2e-2)
"""Peak rates as optimizers of the kind of Adam have them; a rate outside is that of another optimizer, or relative."""

SIZES_KNOWN = (2.5e7, 3.3e9)
"""Range of the numbers of parameters of the published runs."""


def decades_away(n_parameters: float) -> float:
    """Return the decades between a size and the nearest published one; 0 between these."""
    return float(abs(np.log10(n_parameters / np.clip(n_parameters, *SIZES_KNOWN))))


SIZE = 1e8
_SHARE_RANGE = (3e6, 1e11)
"""Numbers of parameters beyond which the prior of the share is constant."""

PUBLISHED = Prior(
    log_alpha=Gaussian(-0.660, 0.258),
    log_b=Gaussian(-1.895, 0.300),
    kappa=Gaussian(0.157, 0.102),
    share=Gaussian(0.615, 0.397),
    log_alpha_n=Gaussian(-1.124, 0.209),
    log_discrepancy=Gaussian(-4.453, 0.600),
    time_exponent=Gaussian(0.501, 0.100),
    decay_exponent=Gaussian(0.713, 0.150),
    peak_exponent=0.196,
)
"""Learnt from all published families."""
