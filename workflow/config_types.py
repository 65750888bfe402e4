"""Types of the configuration: a section, which refuses unknown keys, and the values that several sections share.

The meaning of a key is the text below it, or that of its type; see config.py.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    MISSING,
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from toposcale.forecasting.runs.schedules import MAX_STEPS
from toposcale.io.errors import UserError, message_of

CONTRADICTION = "contradiction"
"""Type of the error of a key that is right in itself and does not go with others."""


def contradiction(key: str, problem: str, value: Any = None, names: tuple[str, ...] = ()) -> InitErrorDetails:
    """Return the error of a key of a section: the value, if the line says it, and names of which one may be meant."""
    return InitErrorDetails(type=_error(problem, names), loc=tuple(filter(None, key.split("."))), input=value)


def _error(problem: str, names: tuple[str, ...] = ()) -> PydanticCustomError:
    return PydanticCustomError(CONTRADICTION, "{problem}", {"problem": problem, "names": names})


def _only(right: Callable[[Any], bool]) -> AfterValidator:
    """Return a validator that refuses values of which `right` is false; the schema of the key describes right ones."""

    def validate(value: Any) -> Any:
        if not right(value):
            raise ValueError
        return value

    return AfterValidator(validate)


def _exists(path: str, info: ValidationInfo[dict[str, bool]]) -> str:
    """Refuse a path that does not exist, or the root of the file system, where files are validated too."""
    if info.context["files_exist"]:
        try:
            exists = Path(path).exists()
        except OSError as error:  # too long
            raise _error(f"which is not a path ({os.strerror(error.errno or 0).lower()})") from None
        if not exists:
            raise _error("which does not exist; a path is relative to the configuration file that names it")
        if Path(path).resolve() == Path(path).resolve().parent:
            raise _error("which is the root of the file system; name a file or a folder in it")
    return path


def _has_losses(path: str, info: ValidationInfo[dict[str, bool]]) -> str:
    """Refuse a file that is not a log with losses, where files are validated too."""
    from toposcale.forecasting.logs import loss_curves  # takes half a second, and few runs need it

    try:
        if info.context["files_exist"]:
            pattern = info.data.get("losses_pattern", MISSING)
            loss_curves.read(path, pattern=None if pattern is MISSING else pattern)
    except (UserError, OSError) as error:
        must = "a table with a step and a loss in each row, a trainer_state.json or TensorBoard files"
        raise _error(f"but must be {must}: {message_of(error)}") from None
    return path


def _is_pattern(pattern: str) -> str:
    """Refuse what is not the pattern of the lines of a log."""
    from toposcale.forecasting.logs import patterns  # as above

    try:
        patterns.compiled(pattern)
    except UserError as error:
        raise _error(f"but {error}") from None
    return pattern


def _has_metrics(path: str, info: ValidationInfo[dict[str, bool]]) -> str:
    """Refuse a table without the columns of the metrics, where files are validated too."""
    from toposcale.analysis.user_tables import read_user_table  # as above
    from toposcale.io.schemas import TABLES

    try:
        if info.context["files_exist"]:
            read_user_table(TABLES["metrics"], path)
    except (UserError, OSError) as error:
        raise _error(f"but must be a table of metrics: {message_of(error)}") from None
    return path


def _has_tokenizer(path: str, info: ValidationInfo[dict[str, bool]]) -> str:
    """Refuse a folder without the files of a tokenizer, where files are validated too."""
    from toposcale.checkpoints.sources import TOKENIZERS  # as above

    if info.context["files_exist"] and not any((Path(path) / name).is_file() for name in TOKENIZERS):
        raise _error(f"but must be a folder with a tokenizer: {' or '.join(TOKENIZERS)}")
    return path


Existing = AfterValidator(_exists)


class Section(BaseModel):
    """A section, which refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """Raise `ValidationError` where keys do not go together."""
        if contradictions := list(self.contradictions()):
            raise ValidationError.from_exception_data(type(self).__name__, contradictions)
        return self

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield the keys that do not go together."""
        return iter(())


# Types. `allowed` says in words what a key may hold, where bounds do not; `format: path` marks a path that is relative to
# the file that names it. No path may contain a NUL character.

T = TypeVar("T")
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_SAFE = (
    "a text that is safe in a path: up to 64 letters, digits, dots, underscores and hyphens, starting with a letter or "
    "digit"
)
_STEP = {"allowed": "a text that contains {step}"}
_BRACELESS = "a path without braces, which Snakemake reads as wildcards"

Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
SomeText = Annotated[str, Field(pattern=r"^[^\x00]+$", min_length=1)]
PathText = Annotated[Text, Field(json_schema_extra={"format": "path"})]
SomePath = Annotated[SomeText, Field(json_schema_extra={"format": "path"})]
FilePath = Annotated[
    str,
    Field(pattern=r"^[^{}\x00]+$", min_length=1, json_schema_extra={"format": "path", "allowed": _BRACELESS}),
    Existing,
]
TokenizerFolder = Annotated[SomePath, Existing, AfterValidator(_has_tokenizer)]
LossFile = Annotated[FilePath, AfterValidator(_has_losses)]
LossesPattern = Annotated[
    SomeText,
    Field(json_schema_extra={"allowed": "a regular expression with groups such as (?P<step>...) and (?P<loss>...)"}),
    AfterValidator(_is_pattern),
]
MetricsFile = Annotated[FilePath, AfterValidator(_has_metrics)]
Distinct = Annotated[
    list[T], _only(lambda values: len(set(values)) == len(values)), Field(json_schema_extra={"uniqueItems": True})
]

Kind = Annotated[T, Field(description="Origin of the checkpoints.")]
Name = Annotated[str, Field(pattern=f"^{NAME}$", json_schema_extra={"allowed": _SAFE})]
ModelName = Annotated[
    Name,
    Field(
        json_schema_extra={
            "pattern": rf"^(?!.*\.seed){NAME}$",
            "allowed": f"{_SAFE}, without .seed, which marks the copies with other seeds",
        }
    ),
    _only(lambda name: ".seed" not in name),
]
Revisions = Annotated[str, Field(pattern=r"^[^\x00]*\{step\}[^\x00]*$", json_schema_extra=_STEP)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
# A checkpoint's step has eight digits in the name of its file.
Checkpoints = Annotated[Distinct[Annotated[int, Field(ge=0, le=99_999_999)]], Field(min_length=1)]
Length = Annotated[int, Field(ge=1, le=MAX_STEPS)]
StepsBefore = Annotated[int, Field(ge=0, le=MAX_STEPS)]
Draws = Annotated[
    int,
    Field(
        ge=0,
        le=1000,
        json_schema_extra={"not": {"const": 1}, "allowed": "0, or an integer from 2 to 1000: one draw has no spread"},
    ),
    _only(lambda draws: draws != 1),
]
OddPoints = Annotated[
    int,
    Field(
        ge=3,
        le=1001,
        json_schema_extra={
            "not": {"multipleOf": 2},
            "allowed": "an odd integer from 3 to 1001: the checkpoint is the middle point",
        },
    ),
    _only(lambda points: points % 2),
]
Extents = Annotated[Distinct[Annotated[float, Field(gt=0, le=1_000_000)]], Field(min_length=1)]
Jobs = Annotated[
    Literal["checkpoint", "model"],
    Field(
        description="checkpoint starts a job for each checkpoint; model starts one for all checkpoints of a folder or of a "
        "model that is trained here, which is cheaper if a checkpoint takes seconds. The tables have the same bytes."
    ),
]
MeasuringJobs = Annotated[
    Literal["auto", "checkpoint", "model"],
    Field(
        description="checkpoint starts a job for each checkpoint, which spreads best over a cluster. auto does too, but "
        "for the checkpoints of a folder: a job measures as many as fit into some 30 s by their size, and its file is "
        "named after the first. model starts one job for all checkpoints of a folder or of a model that is trained "
        "here. The tables have the same bytes."
    ),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], Field(description="Device that computes; auto is CUDA if there is a CUDA device.")
]
Threads = Annotated[int, Field(ge=1, le=1024)]
Every = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000,
        description="Checkpoints from one that is measured to the next; the first and the last are measured, too.",
    ),
]
LearningRate = Annotated[
    float, Field(gt=0, le=1000, description="Peak learning rate of AdamW, reached after the warm-up.")
]
WeightDecay = Annotated[float, Field(ge=0, le=1000, description="Decoupled weight decay of AdamW.")]
BatchSize = Annotated[int, Field(ge=1, le=65_536, description="Sequences in a batch.")]
Steps = Annotated[Length, Field(description="Optimiser steps, the length of the learning-rate schedule.")]
WarmupSteps = Annotated[StepsBefore, Field(description="Steps of linear warm-up.")]
DataFraction = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="Share of the training text that is read, from its beginning; a small one widens the "
        "generalisation gap.",
    ),
]
CheckpointEvery = Annotated[
    Length, Field(description="Steps between checkpoints; there is one at step 0 and one at the last step too.")
]
NParameters = Annotated[int, Field(ge=1, le=10**15, description="Number of parameters of the model.")]
Shape = Annotated[
    Literal["constant", "linear", "cosine", "wsd"],
    Field(description="Shape of the schedule after the linear warm-up; wsd stands for warm-up, stable, decay."),
]
Peak = Annotated[float, Field(gt=0, le=1000, description="Peak learning rate, at the end of the warm-up.")]
End = Annotated[Length, Field(description="Step at which the training ends.")]
OrFile = Annotated[
    Annotated[T, Tag("object")] | Annotated[FilePath, Tag("string")],
    Discriminator(lambda value: "string" if isinstance(value, str) else "object"),
    Field(
        description="The learning-rate schedule, or a file with the columns step and learning_rate.",
        json_schema_extra={"allowed": "a section of keys, or the path of a table, without braces"},
    ),
]
