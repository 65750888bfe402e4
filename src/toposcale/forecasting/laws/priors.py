"""The constants of the law and their prior, learnt from published families; docs/constants.md has the table.

`python -m studies.decisions priors` learns these numbers from the curves of the published runs, once from all of them and
once with each source left out: a family is never judged with a prior that was learnt from it.
"""

from typing import Any, NamedTuple, Self

import numpy as np


class Constant(float):
    """A constant of the law: a number with its unit, its meaning, what it was learnt from, and what it was judged on."""

    unit: str
    meaning: str
    learnt_from: str
    judged_on: str

    def __new__(
        cls, value: float, unit: str = "", meaning: str = "", learnt_from: str = "", judged_on: str = "not by itself"
    ) -> Self:
        """Make the number; only a copy has no unit."""
        constant = super().__new__(cls, value)
        constant.unit, constant.meaning = unit, meaning
        constant.learnt_from, constant.judged_on = learnt_from, judged_on
        return constant


_STATED, _UNRECORDED, _ABLATION = "stated beforehand", "not recorded", "ablation of published decisions"
_MUENNIGHOFF = "24 runs of Muennighoff et al. 2023 (arXiv 2305.16264) on C4, of 1 to 44 epochs"
_YOUNG = "98 of 99 decision points of cs336-zli12 on web text lie inside"
_FIRST = "forecasts of thirteen sources from 100 to 6,000 steps (`python -m studies.decisions young`)"
_FIRST_JUDGED = "the same: 96% of the forecasts after it lie inside, 77% of those before, and 48% before 2e7 tokens"
_OWN = "own trainings of 3K to 301K parameters and 600 steps; of five of 400 steps 4 ends lie outside at 80 steps"
_OWN_JUDGED = "the same: the intervals cover 98 to 100% from 120 steps on, at 301K 58 to 83% before 300 steps"
_RATIOS = "684 published runs: all next-token losses lie from .56 (code) to 1.40, past the warm-up"

# Average of both models and its check, see `joint`.
SECOND_WEIGHT = Constant(0.2, "1", "prior weight of the second model", _STATED, _ABLATION)
END_SD = Constant(
    0.015,
    "nats",
    "standard deviation of an end around all that its own curve says",
    _UNRECORDED,
    "240 random laws, on which nothing was chosen: the 95% intervals cover 89%",
)
SAME_RUN_CORR = Constant(
    0.982,
    "1",
    "correlation of this scatter between ends of one run under several schedules: differences scatter by 0.003 nats",
    _UNRECORDED,
)
SURFACE_SD = Constant(
    0.085,
    "nats",
    "standard deviation of an end around the published scaling law; a hundredfold a decade outside the published sizes",
    _UNRECORDED,
    "published decisions, in view of which it was chosen: docs/decisions.md tells how often confident answers are right",
)
FLAT_OFFSET_SD = Constant(
    10.0,
    "nats",
    "standard deviation of an offset from that law that a family shares: its level says nothing",
    _STATED,
    "as SURFACE_SD",
)
CALIBRATION = Constant(
    0.9,
    "1",
    "factor on the standard deviations for a run under way with a stated optimizer or another finished size",
    "interval scores of the published runs, which are lowest at 0.6",
    "published decisions: at 0.8 the coverage of one group is 83%",
)
SD_PER_DECADE = Constant(
    0.05, "nats", "standard deviation that each decade outside the published sizes adds", _UNRECORDED
)
EARLY_INFLATION = Constant(1.5, "1", "factor on the standard deviations before two warm-ups", _UNRECORDED)
MAX_CHECK_ERROR = Constant(
    6.0,
    "SD",
    "error of the forecast of the present, from half of what was seen, above which there is none",
    _UNRECORDED,
)

# Family and model discrepancy, see `family_law` and `discrepancy`.
FIRST_STEPS_EXPONENT = Constant(
    1.8, "1", "exponent of the cost of the first steps", "the first three sources of published runs", _ABLATION
)
REPETITION_EXPONENT = Constant(
    0.88,
    "1",
    "exponent of the repetitions of a text (tokens read over unique tokens, less 1)",
    _MUENNIGHOFF,
    "the same runs, to a fifth of the cost",
)
OVERFIT_EXPONENT = Constant(
    0.66,
    "1",
    "exponent of the parameters over the unique tokens",
    _MUENNIGHOFF,
    "the same runs, to a fifth of the cost",
)
REDUCIBLE_SHARE = Constant(
    0.5,
    "1",
    "the last loss less L0, in the prior, as a share of what the published scaling law has still to lose",
    "stated after cs336-zli12 was seen; shares from .35 to .75 forecast alike",
    "forecasts from 100 to 6,000 steps of the other sources",
)
DISCREPANCY_GROWTH = Constant(
    1.0, "1", "the discrepancy at a share s of the training time so far is s to minus this power", _STATED, _ABLATION
)
TIME_CORR_LENGTH = Constant(1.5, "1", "correlation length of the discrepancy in log training time", _STATED)
SIZE_CORR_LENGTH = Constant(3.0, "1", "correlation length of the discrepancy in log size", _STATED)
SAME_SIZE_CORR = Constant(
    0.8, "1", "correlation of the discrepancies of two runs of one size at one training time", _STATED, _ABLATION
)
MIN_NOISE_SD = Constant(0.003, "nats", "least standard deviation of the noise of a point", _UNRECORDED)

# Published runs around the published scaling law, see `published_law`.
LEVEL_SD = Constant(
    0.34,
    "nats",
    "standard deviation around the published scaling law that the runs of a family share (text, tokenizer)",
    "22 published families, of which the 95% intervals cover 21",
    ".30 to .34 at decision points of other sources, web texts alone",
)
RUN_SD = Constant(
    0.106,
    "nats",
    "standard deviation of each run around it",
    "845 published pairs of ends, of whose differences the 95% intervals cover 95%",
    ".10 to .13 at decision points of other sources, web texts alone",
)
YOUNG_TOKENS = Constant(1e8, "tokens", "tokens seen below which runs scatter more", _YOUNG, "no other source")
YOUNG_SD_PER_DECADE = Constant(
    1.2, "nats", "standard deviation that each decade of tokens below adds", _YOUNG, "no other source"
)
MIN_STEPS = Constant(700.0, "steps", "steps seen before which there is no forecast", _FIRST, _FIRST_JUDGED)
MIN_TOKENS = Constant(5e7, "tokens", "tokens seen before which there is no forecast", _FIRST, _FIRST_JUDGED)
MIN_TOKENS_PER_PARAMETER = Constant(
    2.0, "1", "tokens seen per parameter that suffice for a smaller model", _STATED, "22M models of cs336-zli12 alone"
)
MAX_SMALL_SIZE = Constant(1e5, "parameters", "size up to which `MIN_SMALL_STEPS` suffice", _OWN, _OWN_JUDGED)
MIN_SMALL_STEPS = Constant(
    120.0, "steps", "steps seen before which there is no forecast of such models", _OWN, _OWN_JUDGED
)
MIN_LEVEL_RATIO = Constant(0.5, "1", "least loss of a pretraining over that of the published scaling law", _RATIOS)
MAX_LEVEL_RATIO = Constant(1.45, "1", "largest loss of a pretraining over that of the published scaling law", _RATIOS)
UNIFORM_LOSS = Constant(
    11.0, "nats", "loss with which a training from scratch begins", "a uniform guess among 60,000 tokens"
)

# Any forecast, see `prediction`.
MAX_LOSS_RATIO = Constant(2.0, "1", "largest factor between a plausible forecast and the present loss", _UNRECORDED)
MAX_RELATIVE_SD = Constant(
    0.15,
    "1",
    "largest standard deviation of a plausible forecast, as a share",
    "1,992 forecasts of published runs: all but one are at most .136 wide, so that no coverage is known beyond",
    "the one above it (xlstm) missed the end by 1.2 nats",
)


class Gaussian(NamedTuple):
    """Mean and standard deviation of a normal distribution: two numbers, or arrays of one shape."""

    mean: Any
    sd: Any


class Prior(NamedTuple):
    """Prior of the constants of a family's law (see `family_law`), in its order.

    log_alpha, log_b: of the multi-power law, B in nats. kappa: slope of log A in log N. share:
    log-odds of E / L0 for `SIZE` parameters. log_alpha_n: of the exponent in N. log_discrepancy: log of the standard
    deviation of the model discrepancy at the last loss, nats. time_exponent: the training time of a step is its rate to
    this power. decay_exponent: a decay counts as that of the rate to this power. b_by_peak, b_by_tokens, b_by_size: B grows
    as the peak rate, the tokens of a step and the size to these powers; `log_b` is that of `PEAK`, `TOKENS` and `SIZE`.
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

    def share_of(self, n_parameters: float) -> Gaussian:
        """Return the prior of the log-odds of E / L0 at a size: with L0 = E + A' N^-alpha they rise by alpha per log N."""
        offset = np.log(np.clip(n_parameters, *_SHARE_RANGE) / SIZE)
        return Gaussian(self.share.mean + float(np.exp(self.log_alpha_n.mean) * offset), self.share.sd)

    def log_b_of(self, peak: float, tokens_per_step: float, n_parameters: float, optimizer: str = "adamw") -> Gaussian:
        """Return the prior of log B; wider by the spread of each fact that is unknown: NaN, or a peak out of `PEAKS_KNOWN`.

        optimizer: "" where unknown.
        """
        logs = decay_covariates(peak, tokens_per_step, n_parameters)
        slopes = np.array([self.b_by_peak, self.b_by_tokens, self.b_by_size])
        unknown = np.where(np.isnan(logs), slopes * [PEAK_SPREAD, TOKENS_SPREAD, 0.0], 0.0)
        spreads = [self.log_b.sd, *unknown, OPTIMIZER_SPREADS.get(optimizer.lower(), OTHER_OPTIMIZER_SPREAD)]
        return Gaussian(self.log_b.mean + float(np.nansum(slopes * logs)), float(np.linalg.norm(spreads)))

    @property
    def second(self) -> Self:
        """Prior of the second model of the average.

        The training time of a step is its rate (Luo et al. 2025), and the loss falls more slowly with it, as it does with
        the tokens of whole runs (Hoffmann et al. 2022).
        """
        return self._replace(log_alpha=Gaussian(float(np.log(0.4)), 0.2), time_exponent=1.0, decay_exponent=0.85)


PEAK, PEAK_SPREAD, TOKENS, TOKENS_SPREAD = 1e-3, 0.7, 5e5, 1.0
"""A usual peak of the learning rate and usual tokens of a step, and the standard deviations of the logarithms of each."""

PEAKS_KNOWN, TOKENS_KNOWN = (3e-5, 2e-2), (1e5, 4.2e6)
"""Peak rates as optimizers of the kind of Adam have them; a rate outside is that of another optimizer, or relative; tokens
of a step of the published runs, beyond which B is constant."""

OPTIMIZER_SPREADS = {"adamw": 0.0, "adam": 0.0, **dict.fromkeys(("muon", "soap", "shampoo"), 0.2), "": 0.36}
OTHER_OPTIMIZER_SPREAD = 0.5
"""Standard deviations of log B around that of AdamW, from which B was learnt; an unknown one is taken to be another in
half of all runs. Of Muon, SOAP and Shampoo log B is .00 on average in modded-nanogpt (6 runs), +.05 in cs336-zli12 (7)."""


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
    log_alpha=Gaussian(-0.743, 0.257),
    log_b=Gaussian(-1.766, 0.200),
    kappa=Gaussian(0.1639, 0.1108),
    share=Gaussian(0.607, 0.398),
    log_alpha_n=Gaussian(-1.172, 0.214),
    log_discrepancy=Gaussian(-4.423, 0.600),
    time_exponent=0.5,
    decay_exponent=0.7,
    b_by_peak=0.348,
    b_by_tokens=-0.198,
    b_by_size=0.085,
)
"""Learnt from all published families."""

CONSTANTS = {name: value for name, value in vars().items() if isinstance(value, Constant)}
"""Constants of the law by name."""
