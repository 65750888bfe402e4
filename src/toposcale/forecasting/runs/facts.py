"""Facts of a training run, each with its provenance."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np

from toposcale.io.errors import UserError

LARGEST_RATIO, LARGEST_EPOCHS_RATIO = {"n_parameters": 1.25, "tokens_per_step": 1.1}, 1.1
"""Ratio of what the user states to what the log does, or of epochs to those that tokens imply, beyond which one of them is
wrong: users round (0.5M for 524,288), and programs count position embeddings or not."""


class Provenance(StrEnum):
    """Source of a fact of a run."""

    STATED = "the user"
    LOGGED = "the log"
    WEIGHTS = "the checkpoint"
    ASSUMED = "an assumption"


READ = (Provenance.LOGGED, Provenance.WEIGHTS)
"""Provenances of facts that were read from a file of the run."""

FACTS_OF_A_LOG = ("n_parameters", "tokens_per_step", "final_step")
"""Facts that a log may state, columns of the table models."""

CountParameters = Callable[[Path], tuple[int, int]]
"""Function of a checkpoint that counts its parameters with and without embeddings; UserError: no weights are there."""


@dataclass(frozen=True)
class RunFacts:
    """Facts about a training run; an unknown one is NaN, None or "".

    Parameters
    ----------
    model : str
        Name of the run.
    n_parameters : int
        Number of parameters, embeddings included; NaN where unknown.
    tokens_per_step : float
        Tokens that one step reads; NaN where unknown.
    family : str
        Runs of one family differ in size and schedule, not in data or tokenizer.
    seed : int
        Seed of the training.
    final_step : int or None
        Last step of the run, where its schedule does not state it.
    warmup_steps : int or None
        Steps of warm-up, where its schedule does not state them.
    optimizer : str
        Name of the optimizer, such as "adamw".
    objective : str
        Objective of the training, such as "next-token" or "masked".
    unique_tokens : float
        Unique tokens of the training text. A run that reads more tokens repeats the text.
    epochs : float
        Epochs of the whole run over the training text.
    adapter_of : str
        The base model, if the weights are an adapter.
    provenances : mapping of str to Provenance
        Provenance of each fact that was not stated.

    Examples
    --------
    >>> from toposcale.forecasting import RunFacts
    >>> RunFacts("25M", n_parameters=25_000_000).provenance("n_parameters").name
    'STATED'
    """

    model: str
    n_parameters: float = np.nan
    tokens_per_step: float = np.nan
    family: str = ""
    seed: int = 0
    final_step: int | None = None
    warmup_steps: int | None = None
    optimizer: str = ""
    objective: str = ""
    unique_tokens: float = np.nan
    epochs: float = np.nan
    adapter_of: str = ""
    provenances: Mapping[str, Provenance] = field(default_factory=dict)

    def is_known(self, name: str) -> bool:
        """Return whether a fact is known."""
        value = getattr(self, name)
        return bool(value not in (None, "") and value == value)

    def provenance(self, name: str) -> Provenance | None:
        """Return the source of a fact; None where it is unknown."""
        return self.provenances.get(name, Provenance.STATED) if self.is_known(name) else None

    def with_provenance(self, provenance: Provenance, **values: Any) -> Self:
        """Return the facts with these values, which have one source."""
        return replace(self, **values, provenances={**self.provenances, **dict.fromkeys(values, provenance)})

    def merged(self, other: Self) -> Self:
        """Return the facts with unknown ones replaced by those of `other`, such as those of its log.

        Raise UserError where the user and a file of the run give two numbers of parameters, or of tokens per step.
        """
        merged = self
        for name in (each.name for each in fields(self)):
            provenance = other.provenance(name)
            if provenance and not self.is_known(name):
                merged = merged.with_provenance(provenance, **{name: getattr(other, name)})
            elif provenance in READ and name in LARGEST_RATIO:
                own_value, other_value = getattr(self, name), getattr(other, name)
                if max(own_value / other_value, other_value / own_value) > LARGEST_RATIO[name]:
                    raise UserError(
                        f"{self.model}: {name} (--{name.replace('_', '-')}) is {own_value:,.0f}, but {provenance} has "
                        f"{other_value:,.0f}; leave the wrong one out"
                    )
        return merged

    def with_unique_tokens(self) -> Self:
        """Return the facts with the unique tokens that follow from the epochs, where they are not known.

        Raise UserError where the user states both, and they contradict each other.
        """
        if (source := self.provenance("epochs")) is None:
            return self
        tokens = (self.final_step or np.nan) * self.tokens_per_step
        if not self.is_known("unique_tokens"):
            return self.with_provenance(source, unique_tokens=tokens / self.epochs)
        implied = tokens / self.unique_tokens
        are_stated = source is self.provenance("unique_tokens") is Provenance.STATED
        if are_stated and max(self.epochs / implied, implied / self.epochs) > LARGEST_EPOCHS_RATIO:
            raise UserError(
                f"{self.model}: epochs (--epochs) is {self.epochs:g}, but the whole run, {tokens:.4g} tokens, makes "
                f"{implied:.3g} epochs of unique_tokens (--unique-tokens) {self.unique_tokens:.4g}; give one of them"
            )
        return self

    def notes(self) -> Iterator[str]:
        """Yield a clause for each number that was read from a file of the run."""
        for name, text in {"n_parameters": "parameters", "tokens_per_step": "tokens per step"}.items():
            if (provenance := self.provenance(name)) in READ:
                yield f"{getattr(self, name):,.0f} {text}, as {provenance} states"


UNKNOWN = RunFacts("")
