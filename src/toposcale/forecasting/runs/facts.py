"""Facts of a training run: how users state each, and those of one run, each with its provenance."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict, get_args, get_type_hints

import numpy as np

from toposcale.forecasting.amounts import number, one_of, parameters, text_of, whole_number
from toposcale.forecasting.runs.schedules import MAX_STEPS
from toposcale.io.errors import UserError, did_you_mean


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


Optimizer = Literal[
    "adamw", "adam", "sgd", "lion", "adafactor", "muon", "normed", "soap", "shampoo", "schedule-free", "other"
]
"""Name of an optimizer; "normed" stands for those that hold the norm of weights or updates, "other" for any other one."""

OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)

WeightAverage = Literal["none", "ema", "tail", "lawa"]
"""Averages of weights that are evaluated at the end of a run: exponential, of the last steps, of the latest checkpoints."""

WEIGHT_AVERAGES: tuple[str, ...] = get_args(WeightAverage)

CLASSIFICATION = "classification"
"""Objective of a log that is not stated, and that its accuracies and losses suggest."""

MIN_TOKENS = 64
"""Least tokens of a step: a sequence."""

MAX_TOKENS = 1e12
"""Most tokens of a step."""

MIN_EPOCHS = 0.01
"""Least epochs of a run."""

MAX_EPOCHS = 1e6
"""Most epochs of a run."""

LARGEST_RATIO = {"n_parameters": 1.25, "tokens_per_step": 1.1}
"""Ratio of what the user states to what the log does beyond which one of them is wrong: users round (0.5M for 524,288), and
programs count position embeddings or not."""

RECIPE = ("optimizer", "weight_decay", "weight_average")
"""Facts besides batch and learning rates on which it depends how much a decay gains."""

LARGEST_EPOCHS_RATIO = 1.1
"""Ratio of the epochs to those that the tokens imply beyond which one of them is wrong."""


USUAL_ASPECT_RATIOS = 10, 100
"""Width over number of layers of usual transformers, which the law was learnt from."""


def is_usual_aspect_ratio(ratio: float) -> bool:
    """Return whether a width over a number of layers is that of a usual transformer; unknown, NaN, counts as such."""
    least, most = USUAL_ASPECT_RATIOS
    return not (ratio < least or ratio > most)


MIN_ASPECT_RATIO = 0.01
"""Least width over the number of layers that is not a mistake."""

MAX_ASPECT_RATIO = 1e5
"""Largest such ratio."""


class FactKind(StrEnum):
    """Kind of a fact: of the run, of its learning-rate schedule, or of how its log is read."""

    RUN = "run"
    SCHEDULE = "schedule"
    LOG = "log"


@dataclass(frozen=True)
class Fact:
    """Statement of a fact: its help text, and how it is parsed and bounded."""

    help: str
    parse: Callable[[Any, str], Any] = lambda value, _: value  # UserError: out of bounds
    kind: FactKind = FactKind.RUN
    label: str = ""  # its name in the output of `check`
    alias: str = ""  # another option for it
    elsewhere: tuple[str, ...] = ()  # its options in other tools


_steps = partial(whole_number, most=MAX_STEPS)
_column = partial(text_of, example="train/loss", noun="the name of a column")
_tokens = partial(
    number,
    least=MIN_TOKENS,
    most=MAX_TOKENS,
    hint=": a step reads sequences x tokens per sequence (--tokens-per-step)",
    example="5e5",
)
Number = float | str | None
"""A number, also as a text: "25M", "25,000,000"."""


class StatedFacts(TypedDict, total=False):
    """Facts that a user states about a run: arguments of `advise`, options of the commands, keys of a known run."""

    n_parameters: Annotated[
        Number,
        Fact(
            "number of parameters, embeddings included, such as 25e6",
            parameters,
            label="parameters",
            alias="--parameters",
            elsewhere=("--params", "--model-size"),
        ),
    ]
    tokens_per_step: Annotated[
        Number,
        Fact(
            "tokens that one step reads", _tokens, label="tokens per step", elsewhere=("--batch-size", "--batch-tokens")
        ),
    ]
    schedule: Annotated[
        Mapping[str, Any] | str | Path | None,
        Fact(
            "constant, linear, cosine or wsd, or a file with the columns step and learning_rate",
            kind=FactKind.SCHEDULE,
            elsewhere=("--lr-schedule", "--scheduler"),
        ),
    ]
    steps: Annotated[
        Number,
        Fact(
            "the last step of the run",
            partial(_steps, least=1),
            FactKind.SCHEDULE,
            "last step",
            elsewhere=("--max-steps", "--total-steps"),
        ),
    ]
    warmup_steps: Annotated[
        Number, Fact("steps of warm-up", partial(_steps, least=0), FactKind.SCHEDULE, alias="--warmup")
    ]
    loss_column: Annotated[
        str | None, Fact("the column of the loss, if its name is not a usual one", _column, FactKind.LOG)
    ]
    step_column: Annotated[
        str | None, Fact("the column of the step, if its name is not a usual one", _column, FactKind.LOG)
    ]
    pattern: Annotated[
        str | None,
        Fact(
            r"a regular expression of the lines of a text log, with groups such as (?P<step>\d+) and (?P<loss>[\d.]+)",
            partial(text_of, example=r"step (?P<step>\d+) loss (?P<loss>[\d.]+)"),
            FactKind.LOG,
        ),
    ]
    run: Annotated[
        Number,
        Fact(
            "which run of the file to read, from 1, where it holds several",
            partial(_steps, least=1, example="1"),
            FactKind.LOG,
        ),
    ]
    unique_tokens: Annotated[
        Number, Fact("unique tokens of the training text, if it is repeated", partial(number, least=1, example="1e9"))
    ]
    epochs: Annotated[
        Number,
        Fact(
            "epochs of the whole run over the training text",
            partial(number, least=MIN_EPOCHS, most=MAX_EPOCHS, example="4"),
        ),
    ]
    optimizer: Annotated[
        str | None,
        Fact(
            f"{', '.join(OPTIMIZERS[:-1])} or {OPTIMIZERS[-1]}; under another than adamw, or an unknown one, the forecast "
            "of a decay is less certain",
            partial(one_of, names=OPTIMIZERS),
        ),
    ]
    weight_average: Annotated[
        str | None,
        Fact(
            f"{', '.join(WEIGHT_AVERAGES[:-1])} or {WEIGHT_AVERAGES[-1]}: the average of weights that is evaluated",
            partial(one_of, names=WEIGHT_AVERAGES),
        ),
    ]
    weight_decay: Annotated[
        Number, Fact("weight decay of the optimizer, 0 for none", partial(number, least=0, example="0.1"))
    ]
    aspect_ratio: Annotated[
        Number,
        Fact(
            f"width of the model over its number of layers; outside {USUAL_ASPECT_RATIOS[0]} to {USUAL_ASPECT_RATIOS[1]} "
            "no answer is confident",
            partial(number, least=MIN_ASPECT_RATIO, most=MAX_ASPECT_RATIO, example="64"),
        ),
    ]
    objective: Annotated[
        str | None,
        Fact(
            "next-token if left out; there is no forecast for another one, such as masked",
            partial(text_of, example="next-token"),
        ),
    ]


FACTS: dict[str, Fact] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(StatedFacts, include_extras=True).items()
}
"""Every fact by its name."""

StatedFacts.__doc__ = "\n".join(
    [f"{StatedFacts.__doc__}", "", "Parameters", "----------"]
    + [f"{name} : optional\n    {fact.help[:1].upper()}{fact.help[1:]}." for name, fact in FACTS.items()]
)

SHAPE_FIELDS = {
    "decay_start": Fact("wsd: the step at which the decay begins", partial(_steps, least=0), FactKind.SCHEDULE),
    "peak": Fact(
        "highest learning rate",
        partial(number, least=0, example="3e-4"),
        FactKind.SCHEDULE,
        elsewhere=("--lr", "--learning-rate", "--max-lr"),
    ),
    "final": Fact(
        "minimum learning rate, 0 if left out; without --peak its ratio to the peak",
        partial(number, least=0, example="0.1"),
        FactKind.SCHEDULE,
        elsewhere=("--min-lr", "--end-lr"),
    ),
}
"""Numbers of a schedule of a shape: options of the commands, and keys of the mapping `schedule`."""


def refuse_unknown(function: str, arguments: Iterable[str], names: Sequence[str]) -> None:
    """Raise TypeError for an argument that a function does not have."""
    if unknown := [argument for argument in arguments if argument not in names]:
        raise TypeError(f"{function}: no argument {unknown[0]}{did_you_mean(unknown[0], names)}")


def option(name: str) -> str:
    """Return the option of an argument."""
    return f"--{name.replace('_', '-')}"


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
    weight_average : str
        Average of the weights that is evaluated at the end, such as "ema"; "none" if it is stated that there is none.
    weight_decay : float
        Weight decay of the optimizer, 0 if there is none; NaN where unknown.
    aspect_ratio : float
        Width of the model over its number of layers; NaN where unknown.
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
    weight_average: str = ""
    weight_decay: float = np.nan
    aspect_ratio: float = np.nan
    objective: str = ""
    unique_tokens: float = np.nan
    epochs: float = np.nan
    adapter_of: str = ""
    provenances: Mapping[str, Provenance] = field(default_factory=dict)

    @property
    def cost(self) -> StepCost:
        """Tokens and compute of its steps."""
        return StepCost(self.n_parameters, self.tokens_per_step)

    def is_known(self, name: str) -> bool:
        """Return whether a fact is known."""
        value = getattr(self, name)
        return bool(value not in (None, "") and value == value)

    def provenance(self, name: str) -> Provenance | None:
        """Return the source of a fact; None where it is unknown."""
        return self.provenances.get(name, Provenance.STATED) if self.is_known(name) else None

    def recipe_differences(self, other: Self) -> list[str]:
        """Return the facts of `RECIPE` in which two runs differ; one that is known of one run differs."""
        either_known = [name for name in RECIPE if self.is_known(name) or other.is_known(name)]
        return [name for name in either_known if getattr(self, name) != getattr(other, name)]

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
                        f"{self.model}: {name} ({option(name)}) is {own_value:,.0f}, but {provenance} has "
                        f"{other_value:,.0f}; leave the wrong one out"
                    )
        return merged

    def with_unique_tokens(self) -> Self:
        """Return the facts with the unique tokens that follow from the epochs, where they are not known.

        Raise UserError where the user states both, and they contradict each other.
        """
        if (source := self.provenance("epochs")) is None:
            return self
        tokens = self.cost.tokens(self.final_step or np.nan)
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
        for name in LARGEST_RATIO:
            if (provenance := self.provenance(name)) in READ:
                yield f"{getattr(self, name):,.0f} {FACTS[name].label}, as {provenance} states"


UNKNOWN = RunFacts("")
