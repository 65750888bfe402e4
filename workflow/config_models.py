"""Entries of `models:`, one pydantic model a kind, and the types of keys that they share with the sections.

The meaning of a key is the text below it, or that of its type; see config.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    MISSING,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from toposcale.forecasting.runs.schedules import MOST_STEPS, schedule_of
from toposcale.io.errors import UserError


class Contradiction(NamedTuple):
    """A key of a section that is right in itself and does not go with others.

    value: what the key holds, if the line says so. names: those of which one may be meant.
    """

    key: str
    problem: str
    value: Any = None
    names: tuple[str, ...] = ()


class ContradictionError(ValueError):
    """The contradictions in a section."""

    def __init__(self, contradictions: list[Contradiction]) -> None:
        super().__init__()
        self.contradictions = contradictions


def _only(right: Callable[[Any], bool]) -> AfterValidator:
    """Return a validator that refuses what is not right; a key with it says in its schema what would be."""

    def validate(value: Any) -> Any:
        if not right(value):
            raise ValueError
        return value

    return AfterValidator(validate)


class Section(BaseModel):
    """A section, which refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """Raise `ContradictionError` where keys do not go together."""
        if contradictions := list(self.contradictions()):
            raise ContradictionError(contradictions)
        return self

    def contradictions(self) -> Iterator[Contradiction]:
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
    str, Field(pattern=r"^[^{}\x00]+$", min_length=1, json_schema_extra={"format": "path", "allowed": _BRACELESS})
]
Distinct = Annotated[
    list[T], _only(lambda values: len(set(values)) == len(values)), Field(json_schema_extra={"uniqueItems": True})
]

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
Length = Annotated[int, Field(ge=1, le=MOST_STEPS)]
StepsBefore = Annotated[int, Field(ge=0, le=MOST_STEPS)]
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
TokensPerStep = Annotated[
    int,
    Field(
        ge=1,
        le=10**12,
        description="Training tokens in one step, for compute and decisions. If it is left out, the number that a "
        "Trainer or a monitor recorded is used; otherwise it is unknown.",
    ),
]
Family = Annotated[
    SomeText,
    Field(
        description="Name of the family. Models of one family differ in the number of parameters and share "
        "architecture, tokenizer and data. If it is left out, the family is derived from what is known: the kind, the "
        "name of the repository without the number of parameters, the architecture of a folder. A planned model joins "
        "the family of the other models, if they have only one."
    ),
]
Embedded = Annotated[bool, Field(description="Embeddings of this model; true if left out.")]
Tokenizer = Annotated[SomePath, Field(description="A folder with the tokenizer, for checkpoints without one.")]


Shape = Annotated[
    Literal["constant", "linear", "cosine", "wsd"],
    Field(description="Shape of the schedule after the linear warm-up; wsd stands for warm-up, stable, decay."),
]
Peak = Annotated[float, Field(gt=0, le=1000, description="Peak learning rate, at the end of the warm-up.")]
End = Annotated[Length, Field(description="Step at which the training ends.")]


class Schedule(Section):
    """A learning-rate schedule; what is left out comes from the section training."""

    shape: Shape | MISSING = MISSING
    peak: Peak | MISSING = MISSING
    warmup_steps: StepsBefore | MISSING = MISSING
    """Steps of linear warm-up, 0 if left out."""
    decay_start: StepsBefore | MISSING = MISSING
    """wsd; step at which the decay begins."""
    decay_shape: Literal["linear", "cosine", "exponential", "1-sqrt"] | MISSING = MISSING
    """wsd; shape of the decay from the peak to the minimum learning rate, linear if left out."""
    final: Annotated[float, Field(ge=0, le=1000)] | MISSING = MISSING
    """Minimum learning rate, reached at the end; 0 if left out."""
    steps: End | MISSING = MISSING


class WholeSchedule(Schedule):
    """The learning-rate schedule of a training that is not made here."""

    shape: Shape
    peak: Peak
    steps: End


OrFile = Annotated[
    Annotated[T, Tag("object")] | Annotated[FilePath, Tag("string")],
    Discriminator(lambda value: "string" if isinstance(value, str) else "object"),
    Field(
        description="The learning-rate schedule, or a file with the columns step and learning_rate.",
        json_schema_extra={"allowed": "a section of keys, or the path of a table, without braces"},
    ),
]


class ReplacedTraining(Section):
    """Settings of this model that replace those of the section training."""

    learning_rate: LearningRate | MISSING = MISSING
    weight_decay: WeightDecay | MISSING = MISSING
    batch_size: BatchSize | MISSING = MISSING
    steps: Steps | MISSING = MISSING
    warmup_steps: WarmupSteps | MISSING = MISSING
    data_fraction: DataFraction | MISSING = MISSING
    checkpoint_every: CheckpointEvery | MISSING = MISSING


class GptModel(Section):
    """A model that is trained here."""

    kind: Literal["gpt"] = "gpt"
    """Origin of the checkpoints."""
    d_model: int = Field(ge=1, le=16_384)
    """Width of the residual stream, a multiple of n_heads."""
    n_layers: int = Field(ge=1, le=1024)
    """Number of transformer blocks."""
    n_heads: int = Field(ge=1, le=1024)
    """Attention heads in each block."""
    training: ReplacedTraining | MISSING = MISSING
    schedule: OrFile[Schedule] | MISSING = MISSING
    """Learning-rate schedule, or a file with the columns step and learning_rate. Parts that are left out come from the
    section training."""
    embeddings: Embedded | MISSING = MISSING
    family: Family | MISSING = MISSING

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield the number of heads, where it does not divide the width."""
        if self.d_model % self.n_heads:
            yield Contradiction("n_heads", f"but must divide d_model, {self.d_model}", self.n_heads)


class ModelFromElsewhere(Section):
    """Facts of a training that was made elsewhere."""

    tokens_per_step: TokensPerStep | MISSING = MISSING
    unique_tokens: Annotated[int, Field(ge=1)] | MISSING = MISSING
    """Tokens of the training text, where it is read more than once. If it is left out, nothing is repeated."""
    optimizer: Text | MISSING = MISSING
    """Optimizer, such as adamw. How much a decay lowers the loss is less well known under another one."""
    final_step: Length | MISSING = MISSING
    """The last step of the training. If it is left out, it is the first known of these: the step that a Trainer or a
    monitor recorded, the end of the schedule, the last step that is there."""
    warmup_steps: StepsBefore | MISSING = MISSING
    """Steps of the learning-rate warm-up, if no schedule gives it. The tests use the checkpoints after twice the
    warm-up; if the warm-up is not known, nothing is tested. Forecasts need it if the log of the learning rate begins
    after the warm-up. For Pythia it is 1430."""
    configuration: Name | MISSING = MISSING
    """Name that this training shares with those that differ from it by their seeds alone, such as pythia-14m. If it is
    left out, the training is a configuration of its own."""
    seed: Seed | MISSING = MISSING
    """The seed of this training, for the tables."""
    schedule: OrFile[WholeSchedule] | MISSING = MISSING
    family: Family | MISSING = MISSING

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield what is wrong with the schedule."""
        if isinstance(self.schedule, WholeSchedule):
            yield from schedule_contradictions("schedule", self.schedule.model_dump(), self.final_step)


class HubModel(ModelFromElsewhere):
    """A repository of the Hugging Face Hub, whose branches or tags are the checkpoints."""

    kind: Literal["hub"]
    """Origin of the checkpoints."""
    repo: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        json_schema_extra={"allowed": "the name of a repository, such as EleutherAI/pythia-70m"},
    )
    """Name of the repository."""
    revisions: Revisions
    """Pattern of the branches and tags that are checkpoints. {step} stands for the number of the step, any other
    {group} for another part that varies, as in step{step} or stage1-step{step}-tokens{tokens}B."""
    steps: Checkpoints
    """The steps of the checkpoints to use."""
    embeddings: Embedded | MISSING = MISSING
    tokenizer: Tokenizer | MISSING = MISSING


class FolderModel(ModelFromElsewhere):
    """A folder on this machine that holds a file or a directory for each checkpoint."""

    kind: Literal["folder"]
    """Origin of the checkpoints."""
    path: FilePath
    """The folder."""
    pattern: Revisions | MISSING = MISSING
    """Pattern of the names in the folder. If it is left out, it is guessed where one number of the names varies, as in
    checkpoint-{step} and model_{step}.pt; where several vary, the step is the one behind the word step or epoch."""
    steps: Checkpoints | MISSING = MISSING
    """The steps of the checkpoints to use; all if left out."""
    losses: FilePath | MISSING = MISSING
    """A file with the losses of the training, as the command check reads it. If it is left out, they are those of the
    last trainer_state.json, or those that the checkpoints themselves hold (loss, val_loss)."""
    embeddings: Embedded | MISSING = MISSING
    tokenizer: Tokenizer | MISSING = MISSING


class MonitorModel(ModelFromElsewhere):
    """A training that toposcale.monitor watches, under the name of the entry."""

    kind: Literal["monitor"]
    """Origin of the checkpoints."""
    path: FilePath
    """The folder that the monitor writes to."""


class TableModel(ModelFromElsewhere):
    """A loss curve without weights, for the forecasts and the decision."""

    kind: Literal["table"]
    """Origin of the checkpoints."""
    path: FilePath
    """The losses: a CSV or Parquet file as exported by a tracker, a trainer_state.json, or TensorBoard event files."""
    n_parameters: NParameters


class PlannedModel(Section):
    """A model that has not started, for the decision."""

    kind: Literal["planned"]
    """Origin of the checkpoints."""
    n_parameters: NParameters
    schedule: OrFile[WholeSchedule]
    tokens_per_step: TokensPerStep | MISSING = MISSING
    family: Family | MISSING = MISSING

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield what is wrong with the schedule."""
        if isinstance(self.schedule, WholeSchedule):
            yield from schedule_contradictions("schedule", self.schedule.model_dump())


def schedule_contradictions(key: str, schedule: Any, final_step: Any = MISSING) -> Iterator[Contradiction]:
    """Yield what is wrong with a whole schedule; nothing where there is none, or where it is a file."""
    if not isinstance(schedule, Mapping):
        return
    if final_step not in (MISSING, schedule["steps"]):
        yield Contradiction(f"{key}.steps", f"but final_step is {final_step}; leave one out", schedule["steps"])
    try:
        schedule_of(schedule)
    except UserError as error:
        yield Contradiction(key, str(error).partition(": ")[2])


def _with_kind(entry: Any) -> Any:
    """Return an entry of `models:` with its kind."""
    return {**entry, "kind": "gpt"} if isinstance(entry, Mapping) and entry.get("kind") is None else entry


Model = Annotated[
    GptModel | HubModel | FolderModel | MonitorModel | TableModel | PlannedModel,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]
