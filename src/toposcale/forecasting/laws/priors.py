"""The constants of the law and their prior, learnt from published families.

docs/constants.md has the table: what each constant was learnt from, and what it was judged on.

`python -m studies.decisions priors` learns these numbers from the curves of the published runs, once from all of them and
once with each source left out: a family is never judged with a prior that was learnt from it.
"""

from typing import Any, NamedTuple, Self

import numpy as np

# Average of both models and its check, see `joint`.
SECOND_WEIGHT = 0.2
"""Prior weight of the second model."""
OUTLYING_SCATTER = 5.0
"""Factor on the scatter of a size that is far from the scaling law of its family, such as one of an unusual shape."""
OUTLYING_WEIGHT = 0.2
"""Prior weight of the models in which the size that is decided on is such a size."""
END_SD = 0.015
"""Standard deviation of an end around all that its own curve says, nats."""
SAME_RUN_CORR = 0.982
"""Correlation of this scatter between ends of one run under several schedules: differences scatter by 0.003 nats."""
SURFACE_SD = 0.085
"""Standard deviation of an end around the published scaling law, nats; a hundredfold a decade outside published sizes."""
CALIBRATION = 0.9
"""Factor on the standard deviations for a run under way with a stated optimizer or another finished size."""
SD_PER_DECADE = 0.05
"""Standard deviation that each decade outside the published sizes adds, nats."""
EARLY_INFLATION = 1.5
"""Factor on the standard deviations before two warm-ups."""
SHIFT_INFLATION = 1.5
"""Factor on the standard deviations of a curve whose levels before and after a shift were joined."""
MAX_CHECK_ERROR = 6.0
"""Error of the forecast of the present, from half of what was seen, above which there is none, in standard deviations."""

# Family and model discrepancy, see `family_law` and `discrepancy`.
FIRST_STEPS_EXPONENT = 1.8
"""Exponent of the cost of the first steps."""
REPETITION_EXPONENT = 0.88
"""Exponent of the repetitions of a text (tokens read over unique tokens, less 1)."""
OVERFIT_EXPONENT = 0.66
"""Exponent of the parameters over the unique tokens."""
REDUCIBLE_SHARE = 0.5
"""The last loss less L0, in the prior, as a share of what the published scaling law has still to lose."""
DISCREPANCY_GROWTH = 1.0
"""The discrepancy at a share s of the intrinsic training time so far is s to minus this power."""
TIME_CORR_LENGTH = 1.5
"""Correlation length of the discrepancy in the logarithm of the intrinsic training time."""
SIZE_CORR_LENGTH = 3.0
"""Correlation length of the discrepancy in log size."""
SAME_SIZE_CORR = 0.8
"""Correlation of the discrepancies of two runs of one size at one intrinsic training time."""
MIN_NOISE_SD = 0.003
"""Least standard deviation of the noise of a point, nats."""

# Published runs around the published scaling law, see `published_law`.
LEVEL_SD = 0.34
"""Standard deviation around the published scaling law that the runs of a family share (text, tokenizer), nats."""
RUN_SD = 0.106
"""Standard deviation of each run around it, nats."""
YOUNG_TOKENS = 1e8
"""Tokens seen below which runs scatter more."""
YOUNG_SD_PER_DECADE = 1.2
"""Standard deviation that each decade of tokens below adds, nats."""
MIN_STEPS = 700.0
"""Steps seen before which there is no forecast."""
MIN_TOKENS = 5e7
"""Tokens seen before which there is no forecast."""
MIN_TOKENS_PER_PARAMETER = 2.0
"""Tokens seen per parameter that suffice for a smaller model."""
MAX_SMALL_SIZE = 1e5
"""Size up to which `MIN_SMALL_STEPS` suffice, parameters."""
MIN_SMALL_STEPS = 120.0
"""Steps seen before which there is no forecast of such models."""
MIN_LEVEL_RATIO = 0.5
"""Least loss of a pretraining over that of the published scaling law."""
MAX_LEVEL_RATIO = 1.45
"""Largest loss of a pretraining over that of the published scaling law."""
UNIFORM_LOSS = 11.0
"""Loss with which a training from scratch begins, nats."""

# Any forecast, see `prediction`.
MAX_LOSS_RATIO = 2.0
"""Largest factor between a plausible forecast and the present loss."""
MAX_RELATIVE_SD = 0.15
"""Largest standard deviation of a plausible forecast, as a share."""


class Gaussian(NamedTuple):
    """Mean and standard deviation of a normal distribution: two numbers, or arrays of one shape."""

    mean: Any
    sd: Any


class Prior(NamedTuple):
    """Prior of the constants of a family's law (see `family_law`), in its order.

    log_alpha, log_b: of the multi-power law, B in nats. kappa: slope of log A in log N. share:
    log-odds of E / L0 for `SIZE` parameters. log_alpha_n: of the exponent in N. log_discrepancy: log of the standard
    deviation of the model discrepancy at the last loss, nats. time_exponent: the intrinsic training time of a step is its
    rate to this power. decay_exponent: a decay counts as that of the rate to this power. b_by_peak, b_by_tokens, b_by_size:
    B grows as the peak rate, the tokens of a step and the size to these powers; `log_b` is for `PEAK`, `TOKENS`, `SIZE`.
    b_by_size_spread: standard deviation of the last power between families. b_scatter: that of log B between the runs of
    a family.
    """

    log_alpha: Gaussian
    log_b: Gaussian
    kappa: Gaussian
    share: Gaussian
    log_alpha_n: Gaussian
    log_discrepancy: Gaussian
    time_exponent: float
    decay_exponent: float
    b_by_peak: float
    b_by_tokens: float
    b_by_size: float
    b_by_size_spread: float
    b_scatter: float

    def share_of(self, n_parameters: float) -> Gaussian:
        """Return the prior of the log-odds of E / L0 at a size: with L0 = E + A' N^-alpha they rise by alpha per log N."""
        offset = np.log(np.clip(n_parameters, *_SHARE_RANGE) / SIZE)
        return Gaussian(self.share.mean + float(np.exp(self.log_alpha_n.mean) * offset), self.share.sd)

    def log_b_of(
        self,
        peak: float,
        tokens_per_step: float,
        n_parameters: float,
        optimizer: str = "adamw",
        *,
        is_averaged: bool = False,
    ) -> Gaussian:
        """Return the prior of log B; wider by the spread of each fact that is unknown: NaN, or a peak out of `PEAKS_KNOWN`.

        optimizer: "" where unknown. is_averaged: whether an average of the weights is evaluated at the end.
        """
        logs = decay_covariates(peak, tokens_per_step, n_parameters)
        slopes = np.array([self.b_by_peak, self.b_by_tokens, self.b_by_size])
        unknown = np.where(np.isnan(logs), slopes * [PEAK_SPREAD, TOKENS_SPREAD, 0.0], 0.0)
        offset = WEIGHT_AVERAGE if is_averaged else OPTIMIZER_OFFSETS.get(optimizer.lower(), OTHER_OPTIMIZER)
        mean = self.log_b.mean + float(np.nansum(slopes * logs)) + offset.mean
        return Gaussian(mean, float(np.linalg.norm([self.log_b.sd, *unknown, offset.sd])))

    @property
    def second_model(self) -> Self:
        """Prior of the second model of the average.

        Time exponent and decay exponent are 1 (Luo et al. 2025), and the loss falls more slowly with the intrinsic training
        time, as it does with the tokens of whole runs (Hoffmann et al. 2022).
        """
        return self._replace(log_alpha=Gaussian(float(np.log(0.4)), 0.2), time_exponent=1.0, decay_exponent=1.0)


PEAK, PEAK_SPREAD, TOKENS, TOKENS_SPREAD = 1e-3, 0.7, 5e5, 1.0
"""A usual peak of the learning rate and usual tokens of a step, and the standard deviations of the logarithms of each."""

PEAKS_KNOWN, TOKENS_KNOWN = (3e-5, 2e-2), (1e5, 4.2e6)
"""Peak rates as optimizers of the kind of Adam have them; a rate outside is that of another optimizer, or relative; tokens
of a step of the published runs, beyond which B is constant."""

OPTIMIZER_OFFSETS = {
    "": Gaussian(0.0, 0.36),
    "adamw": Gaussian(0.0, 0.0),
    "adam": Gaussian(0.0, 0.0),
    "muon": Gaussian(0.0, 0.2),
    "soap": Gaussian(0.0, 0.3),
    "shampoo": Gaussian(0.0, 0.3),
    "normed": Gaussian(0.9, 0.4),
}
"""Offsets of log B by optimizer from that of AdamW, from which B was learnt; "": unknown, in half of all runs another one.
Of Muon, SOAP and Shampoo .00 on average in modded-nanogpt, +.05 in cs336-zli12 (13 runs), +.33 in modded-track3 (7 unseen
ones). "normed" holds the norm of weights or updates (hyperball, floors of updates, no weight decay): only modded-track3 has
it, with a mean of +.94 and a standard deviation of .41; these round numbers cover all its ends."""

WEIGHT_AVERAGE = Gaussian(1.0, 0.4)
"""Offset of log B where an average of the weights is evaluated at the end, whatever the optimizer: an average acts as a
decay. One lineage of 7 programs, which is not part of the data set, has a mean of 1.00."""

OTHER_OPTIMIZER = Gaussian(0.0, 0.5)
"""Offset of log B under an optimizer of which no published run is known."""


def decay_covariates(peak: float, tokens_per_step: float, n_parameters: float) -> np.ndarray:
    """Return the logarithms that log B is linear in, (3,): 0 for usual values, constant beyond known ones, NaN: unknown."""
    peak = peak if PEAKS_KNOWN[0] <= peak <= PEAKS_KNOWN[1] else np.nan
    values = [peak, np.clip(tokens_per_step, *TOKENS_KNOWN), np.clip(n_parameters, *SIZES_KNOWN)]
    return np.log(np.array(values) / [PEAK, TOKENS, SIZE])


SIZES_KNOWN = (2.5e7, 3.3e9)
"""Range of the numbers of parameters of the published runs."""


def decades_away(n_parameters: float) -> float:
    """Return the decades between a size and the nearest published one; 0 between these."""
    return float(abs(np.log10(n_parameters / np.clip(n_parameters, *SIZES_KNOWN))))


SIZE = 1e8
_SHARE_RANGE = (3e6, 1e11)
"""Numbers of parameters beyond which the prior of the share is constant."""

PUBLISHED = Prior(
    log_alpha=Gaussian(-0.750, 0.264),
    log_b=Gaussian(-1.765, 0.200),
    kappa=Gaussian(0.1585, 0.1170),
    share=Gaussian(0.658, 0.372),
    log_alpha_n=Gaussian(-1.137, 0.197),
    log_discrepancy=Gaussian(-4.423, 0.600),
    time_exponent=0.5,
    decay_exponent=0.7,
    b_by_peak=0.348,
    b_by_tokens=-0.196,
    b_by_size=0.084,
    b_by_size_spread=0.1,
    b_scatter=0.141,
)
"""Learnt from all published families."""
