"""Entries of `models:`, one pydantic model a kind; see config.py."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import MISSING, BeforeValidator, Field
from pydantic_core import InitErrorDetails

import config_types as types
from toposcale.forecasting.runs.facts import Optimizer, WeightAverage
from toposcale.forecasting.runs.schedules import schedule_of
from toposcale.io.errors import UserError


class Schedule(types.Section):
    """A learning-rate schedule; what is left out comes from the section training."""

    shape: types.Shape | MISSING = MISSING
    peak: types.Peak | MISSING = MISSING
    warmup_steps: types.StepsBefore | MISSING = MISSING
    """Steps of linear warm-up, 0 if left out."""
    decay_start: types.StepsBefore | MISSING = MISSING
    """wsd; step at which the decay begins."""
    decay_shape: Literal["linear", "cosine", "exponential", "1-sqrt"] | MISSING = MISSING
    """wsd; shape of the decay from the peak to the minimum learning rate, linear if left out."""
    final: Annotated[float, Field(ge=0, le=1000)] | MISSING = MISSING
    """Minimum learning rate, reached at the end; 0 if left out."""
    steps: types.End | MISSING = MISSING


class WholeSchedule(Schedule):
    """The learning-rate schedule of a training that is not made here."""

    shape: types.Shape
    peak: types.Peak
    steps: types.End


class ReplacedTraining(types.Section):
    """Settings of this model that replace those of the section training."""

    learning_rate: types.LearningRate | MISSING = MISSING
    weight_decay: types.WeightDecay | MISSING = MISSING
    batch_size: types.BatchSize | MISSING = MISSING
    steps: types.Steps | MISSING = MISSING
    warmup_steps: types.WarmupSteps | MISSING = MISSING
    data_fraction: types.DataFraction | MISSING = MISSING
    checkpoint_every: types.CheckpointEvery | MISSING = MISSING


class AnyModel(types.Section):
    """Keys that every kind of model has."""

    family: types.SomeText | MISSING = MISSING
    """Name of the family. Models of one family differ in the number of parameters and share architecture, tokenizer and
    data. If it is left out, the family is derived from what is known: the kind, the name of the repository without the
    number of parameters, the architecture of a folder. A planned model joins the family of the other models, if they have
    only one."""


class ModelWithEmbeddings(AnyModel):
    """A model whose checkpoints read texts."""

    embeddings: bool | MISSING = MISSING
    """Embeddings of this model; true if left out."""


class GptModel(ModelWithEmbeddings):
    """A model that is trained here."""

    kind: types.Kind[Literal["gpt"]] = "gpt"
    d_model: int = Field(ge=1, le=16_384)
    """Width of the residual stream, a multiple of n_heads."""
    n_layers: int = Field(ge=1, le=1024)
    """Number of transformer blocks."""
    n_heads: int = Field(ge=1, le=1024)
    """Attention heads in each block."""
    training: ReplacedTraining | MISSING = MISSING
    schedule: types.OrFile[Schedule] | MISSING = MISSING
    """Learning-rate schedule, or a file with the columns step and learning_rate. Parts that are left out come from the
    section training."""

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield the number of heads, where it does not divide the width."""
        if self.d_model % self.n_heads:
            yield types.contradiction("n_heads", f"but must divide d_model, {self.d_model}", self.n_heads)


class ModelNotTrainedHere(AnyModel):
    """Facts of a training that is not made here."""

    tokens_per_step: Annotated[int, Field(ge=1, le=10**12)] | MISSING = MISSING
    """Training tokens in one step, for compute and decisions. If it is left out, the number that a Trainer or a monitor
    recorded is used; otherwise it is unknown."""
    schedule: types.OrFile[WholeSchedule] | MISSING = MISSING

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield what is wrong with the schedule."""
        if isinstance(self.schedule, WholeSchedule):
            final_step = getattr(self, "final_step", MISSING)
            yield from schedule_contradictions("schedule", self.schedule.model_dump(), final_step)


class ModelFromElsewhere(ModelNotTrainedHere):
    """Facts of a training that was made elsewhere."""

    unique_tokens: Annotated[int, Field(ge=1)] | MISSING = MISSING
    """Tokens of the training text, where it is read more than once. If it is left out, nothing is repeated."""
    optimizer: Optimizer | MISSING = MISSING
    """Optimizer. How much a decay lowers the loss is less well known under others than adamw."""
    weight_decay: Annotated[float, Field(ge=0, le=1000)] | MISSING = MISSING
    """Weight decay of the optimizer, 0 for none."""
    weight_average: WeightAverage | MISSING = MISSING
    """Average of the weights that is evaluated at the end. It acts as a decay."""
    final_step: types.Length | MISSING = MISSING
    """The last step of the training. If it is left out, it is the first known of these: the step that a Trainer or a
    monitor recorded, the end of the schedule, the last step that is there."""
    warmup_steps: types.StepsBefore | MISSING = MISSING
    """Steps of the learning-rate warm-up, if no schedule gives it. The tests use the checkpoints after twice the
    warm-up; without it, after the rates of the log or of the checkpoints (scheduler.pt) show that it was over, and if
    they do not, nothing is tested. Forecasts need it if the log of the learning rate begins
    after the warm-up. For Pythia it is 1430."""
    configuration: types.Name | MISSING = MISSING
    """Name that this training shares with those that differ from it only by their seeds, such as pythia-14m. If it is
    left out, the training is a configuration of its own."""
    seed: types.Seed | MISSING = MISSING
    """The seed of this training, for the tables."""


class ModelWithLossFile(ModelFromElsewhere):
    """Facts of a training whose losses may be in a file; its keys come first, since the file is read with them."""

    losses_pattern: types.LossesPattern | MISSING = MISSING
    """Regular expression of the lines of a text log, whose groups name the columns, as --pattern of the command check.
    A log that is refused offers one."""


class PublishedModel(ModelFromElsewhere, ModelWithEmbeddings):
    """A model whose checkpoints were published, or saved by a training of the user's."""

    tokenizer: types.TokenizerFolder | MISSING = MISSING
    """A folder with the tokenizer, for checkpoints without one."""


class HubModel(PublishedModel):
    """A repository of the Hugging Face Hub, whose branches or tags are the checkpoints."""

    kind: types.Kind[Literal["hub"]]
    repo: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        json_schema_extra={"allowed": "the name of a repository, such as EleutherAI/pythia-70m"},
    )
    """Name of the repository."""
    revisions: types.Revisions
    """Pattern of the branches and tags that are checkpoints. {step} stands for the number of the step, any other
    {group} for another part that varies, as in step{step} or stage1-step{step}-tokens{tokens}B."""
    steps: types.Checkpoints
    """The steps of the checkpoints to use."""


class FolderModel(PublishedModel, ModelWithLossFile):
    """A folder on this machine that holds a file or a directory for each checkpoint."""

    kind: types.Kind[Literal["folder"]]
    path: types.FilePath
    """The folder."""
    pattern: types.Revisions | MISSING = MISSING
    """Pattern of the names in the folder. If it is left out, it is guessed where one whole number of the names varies, as
    in checkpoint-{step} and model_{step}.pt; where several vary, the step is the one behind the word step or epoch. Where
    no name has one, or an epoch, the steps are those that the checkpoints hold."""
    steps: types.Checkpoints | MISSING = MISSING
    """The steps of the checkpoints to use; all if left out."""
    losses: types.LossFile | MISSING = MISSING
    """A file with the losses of the training, as the command check reads it. If it is left out, they are those of the
    last trainer_state.json, or those that the checkpoints themselves hold (loss, val_loss)."""


class MonitorModel(ModelFromElsewhere):
    """A training that toposcale.monitor watches, under the name of the entry."""

    kind: types.Kind[Literal["monitor"]]
    path: types.FilePath
    """The folder that the monitor writes to."""


class TableModel(ModelWithLossFile):
    """A loss curve without weights, for the forecasts and the decision."""

    kind: types.Kind[Literal["table"]]
    path: types.LossFile
    """The losses: a CSV or Parquet file as exported by a tracker, a trainer_state.json, or TensorBoard event files."""
    n_parameters: types.NParameters


class PlannedModel(ModelNotTrainedHere):
    """A model that has not started, for the decision."""

    kind: types.Kind[Literal["planned"]]
    n_parameters: types.NParameters
    schedule: types.OrFile[WholeSchedule]


def schedule_contradictions(key: str, schedule: Any, final_step: Any = MISSING) -> Iterator[InitErrorDetails]:
    """Yield what is wrong with a whole schedule; nothing where there is none, or where it is a file."""
    if not isinstance(schedule, Mapping):
        return
    if final_step not in (MISSING, schedule["steps"]):
        yield types.contradiction(f"{key}.steps", f"but final_step is {final_step}; leave one out", schedule["steps"])
    try:
        schedule_of(schedule)
    except UserError as error:
        yield types.contradiction(key, str(error).partition(": ")[2])


def _with_kind(entry: Any) -> Any:
    """Return an entry of `models:` with its kind."""
    return {**entry, "kind": "gpt"} if isinstance(entry, Mapping) and entry.get("kind") is None else entry


Model = Annotated[
    GptModel | HubModel | FolderModel | MonitorModel | TableModel | PlannedModel,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]
