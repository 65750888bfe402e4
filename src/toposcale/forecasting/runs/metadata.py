"""Metadata of a training run: what is known beside its rows and its learning-rate schedule."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RunMetadata:
    """Facts about a training run.

    Parameters
    ----------
    model : str
        Name of the run.
    n_parameters : int
        Number of parameters, embeddings included.
    tokens_per_step : float
        Tokens that one step reads; NaN where unknown.
    family : str
        Runs of one family differ in size and schedule, not in data or tokenizer.
    seed : int
        Seed of the training.
    metric : str
        Name of the loss that is forecast, for messages.
    reached_step : int
        Last step known to be done, where more is known than the log.
    notes : tuple of str
        What a reader of the forecast has to know of the log, a clause each.
    low_confidence_reasons : tuple of str
        Reasons for low confidence that were found in the log.
    optimizer : str
        Name of the optimizer, such as "adamw"; "" where unknown.
    unique_tokens : float
        Unique tokens of the training text; NaN if unknown. A run that reads more tokens repeats the text.

    Examples
    --------
    >>> from toposcale.forecasting import RunMetadata
    >>> RunMetadata("25M", n_parameters=25_000_000, tokens_per_step=524_288).metric
    'loss'
    """

    model: str
    n_parameters: int
    tokens_per_step: float = np.nan
    family: str = ""
    seed: int = 0
    metric: str = "loss"
    reached_step: int = 0
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()
    optimizer: str = ""
    unique_tokens: float = np.nan
