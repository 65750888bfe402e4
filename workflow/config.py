"""The configuration: one pydantic model a section, with the meaning, the bounds and the default of each key.

The meaning of a key is the text below it, or that of its type. After a change here or in config_*.py, `make reference`
writes the JSON Schema, which is read where a value by itself does not tell what it is meant as, and config/README.md.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import MISSING, Discriminator, Field, Tag
from pydantic_core import InitErrorDetails

import config_types as types
import sweep
from config_models import GptModel, Model, Schedule, schedule_contradictions

MAX_CHECKPOINTS = 100_000
"""Ten times what a run of a week would have; planning more would fill the memory before anything was said."""

SweptSeeds = Annotated[
    Annotated[int, Field(ge=1, le=sweep.MAX_SEEDS), Tag("integer")]
    | Annotated[types.Distinct[types.Seed], Field(min_length=1), Tag("array")],
    Discriminator(lambda value: "array" if isinstance(value, list) else "integer"),
]


class Sweep(types.Section):
    """Trains models with every combination of the values of these keys. Each combination is a configuration, and is
    trained with every seed. The name of a run holds its values and its seed. A key that is left out has the value
    of models.{name}.training or training."""

    models: types.Distinct[types.Text] = Field([])
    """Entries of models, of kind gpt, that are swept instead of trained once. With an empty list there is no
    sweep."""
    learning_rate: types.Distinct[types.LearningRate] = Field([])
    """Peak learning rates."""
    weight_decay: types.Distinct[types.WeightDecay] = Field([])
    """Weight decays."""
    batch_size: types.Distinct[types.BatchSize] = Field([])
    """Sequences in a batch."""
    steps: types.Distinct[types.Length] = Field([])
    """Lengths of the training."""
    warmup_steps: types.Distinct[types.StepsBefore] = Field([])
    """Lengths of the warm-up."""
    schedule: types.Distinct[Literal["cosine", "linear", "constant", "wsd"]] = Field([])
    """Shapes of the learning-rate schedule; they replace the shape of training.schedule."""
    data_fraction: types.Distinct[types.DataFraction] = Field([])
    """Shares of the training text."""
    seeds: SweptSeeds = 1
    """Runs of each configuration. With a number, every run of the sweep has a different seed; with a list, every
    configuration has these seeds."""
    first_seed: int = Field(0, ge=0, le=sweep.MAX_SEEDS - 1)
    """Number of the first seed of a configuration, where seeds is a number. Fresh runs of the same configurations
    begin where the old ones end."""

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield what is swept although no model is, and seeds that are too many."""
        for key in sweep.NAMES if not self.models else ():
            if values := getattr(self, key):
                yield types.contradiction(
                    key, "but must be empty, because sweep.models names no model to sweep", values
                )
        if isinstance(self.seeds, int) and self.first_seed + self.seeds > sweep.MAX_SEEDS:
            problem = f"but with sweep.seeds, {self.seeds}, it must be at most {sweep.MAX_SEEDS}"
            yield types.contradiction("first_seed", problem, self.first_seed)


class Corpus(types.Section):
    """The text that models are trained and validated on."""

    source: Literal["python-docs", "wikitext-2", "files"] = "python-docs"
    """python-docs is English text that comes with Python (no download); wikitext-2 is downloaded from the Hugging
    Face Hub; files are your own UTF-8 text files."""
    train: list[types.SomePath] = Field([])
    """Paths or globs of the training text, for source files."""
    validation: list[types.SomePath] = Field([])
    """Paths or globs of the validation text, for source files."""
    tokenizer: Literal["characters", "bpe"] = "characters"
    """characters are the 128 ASCII characters (others are dropped and counted); bpe is byte-pair encoding, trained
    on the training text."""
    vocab_size: int = Field(512, ge=2, le=65_536)
    """Size of the bpe vocabulary; that of characters is always 128."""

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield texts that are named and not read, or read and not named."""
        for key in ("train", "validation"):
            if (self.source == "files") is not bool(texts := getattr(self, key)):
                need = "name a path or glob" if self.source == "files" else "be empty, because it is read only"
                yield types.contradiction(key, f"but must {need} with corpus.source: files", texts)


class Sketch(types.Section):
    """Random projections of the weights during training, for the topology of the training trajectory."""

    every: types.Length = 5
    """Steps between sketches. A sketch has 64 numbers; distances between sketches have a relative spread of 18%."""


class Training(types.Section):
    """Training of the models of kind gpt."""

    steps: types.Steps = 5000
    checkpoint_every: types.CheckpointEvery = 100
    batch_size: types.BatchSize = 64
    context: int = Field(128, ge=2, le=65_536)
    """Tokens in a sequence."""
    learning_rate: types.LearningRate = 0.003
    warmup_steps: types.WarmupSteps = 200
    weight_decay: types.WeightDecay = 0.01
    data_fraction: types.DataFraction = 1.0
    gradient_clip: float = Field(1.0, gt=0, le=1_000_000)
    """Largest norm of the gradient; a longer gradient is scaled down to it."""
    validation_sequences: int = Field(256, ge=1, le=1_000_000)
    """Sequences in the fixed sample of the validation text on which the validation loss is measured."""
    schedule: types.OrFile[Schedule] | MISSING = MISSING
    """Learning-rate schedule instead of a cosine to 0, or a file with the columns step and learning_rate. Parts
    that are left out come from learning_rate, warmup_steps and steps above."""
    sketch: Sketch = Sketch()
    jobs: types.Jobs = "checkpoint"
    device: types.Device = "auto"


class Layers(types.Section):
    """Choice of matrices, by globs on their names."""

    include: list[types.SomeText] = Field(["*"], min_length=1)
    """Globs of the matrices to use: at least one must match the name."""
    exclude: list[types.SomeText] = Field([])
    """Globs of the matrices to leave out, for instance "*embedding*"."""


class Weights(types.Section):
    """Topology, norms and spectra of every weight matrix at every checkpoint."""

    layers: Layers = Layers()
    features: types.Distinct[Literal["topology", "norms", "spectra"]] = Field(
        ["topology", "norms", "spectra"], min_length=1
    )
    """Groups of features of each matrix: topology (neural persistence, Vietoris-Rips homology, deep graph
    persistence), norms (and the variance and concentration of the weights), spectra (stable rank and power law;
    they need all eigenvalues and take most of the time for a large model)."""
    max_points: int = Field(200, ge=2, le=5000)
    """Largest number of rows of a matrix in its Vietoris-Rips complex. Larger matrices are subsampled, with the
    same rows at every step."""
    max_dimension: int = Field(1, ge=0, le=2)
    """Highest homology dimension."""
    whole_layers: bool = False
    """H0 features of all rows of every matrix too, without a subsample, as h0_*_whole. They are exact; the time grows
    with the square of the number of rows (seconds for 10,000 x 512)."""
    distances: bool = True
    """Distances between the diagrams of consecutive checkpoints, which take as long as the features."""
    null_draws: types.Draws = 0
    """Number of random matrices of each kind (permuted entries, Gaussian entries) that each matrix is compared
    with. 0 turns this off; k multiplies the cost of the features by 1 + 2k."""
    surrogate_draws: types.Draws = 0
    """Number of surrogates of each matrix, with its singular values and right singular vectors and random left
    ones, that its H0 is compared with as h0_surrogate_z. 0 turns this off."""
    jobs: types.MeasuringJobs = "auto"
    threads: types.Threads = 1
    """Number of cores of a job. More than one make the spectra of large matrices faster. The values then agree to
    about 10 digits, because sums are taken in another order; topology does not change."""
    seed: types.Seed = 42
    """Seed of the row subsampling and of the null matrices."""


class Hub(types.Section):
    """Download of published checkpoints."""

    cache: types.PathText = ""
    """Folder of the download cache; if empty, that of the Hugging Face client."""
    keep: bool = True
    """Weights stay in the cache. With false, a checkpoint is removed when it was measured, so that there are at most as
    many on the disk as jobs at work; what the cache had before stays."""


class Embeddings(types.Section):
    """Topology and spectra of embedded texts, and their perplexity."""

    enabled: bool = True
    """Measurement of the embeddings."""
    every: types.Every = 1
    texts: int = Field(200, ge=5, le=1000)
    """Number of probe texts: the first validation paragraphs of at least 100 characters."""
    max_tokens: int = Field(128, ge=2, le=65_536)
    """Largest number of tokens of a text, by the tokenizer of the model."""
    layers: Literal["last", "all"] = "last"
    """last is the last hidden state after the final norm; all adds the hidden states of every layer."""
    components: int = Field(50, ge=1, le=10_000)
    """Number of principal components that are kept."""
    repeats: int = Field(5, ge=0, le=1000)
    """Number of random subsets, of four fifths of the texts, from which the spread of each feature is computed; 0
    turns it off."""
    divergence: bool = True
    """Representation topology divergence between the embeddings of consecutive checkpoints."""
    jobs: types.MeasuringJobs = "auto"
    threads: types.Threads = 1
    """Number of cores of a job. More than one make the forward pass of a large model faster. The values then agree
    to about 5 digits (the precision of float32), because sums are taken in another order."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward pass. bfloat16 halves the memory; use it, or a GPU, from a billion parameters on."""
    device: types.Device = "auto"


class Landscape(types.Section):
    """The loss around a checkpoint, on a fixed probe batch of the validation text: surface, merge tree, curvature
    and gradients."""

    enabled: bool = False
    """Measurement of the landscape, which takes hundreds of forward passes for each checkpoint."""
    every: types.Every = 1
    dimensions: int = Field(2, ge=2, le=3)
    """Axes of the surface, 2 or 3. With 3, the figures and the table of surfaces show the middle slice of the third
    axis."""
    planes: dict[Literal["random", "top", "negative", "mixed"], types.Extents] = Field(
        {"random": [1.0], "negative": [0.3, 1.0]}, min_length=1
    )
    """The planes of the surfaces, each with its extents (half of the width). random: random directions, scaled row
    by row to the norms of the weights; extent 1 is the norm of the weight matrices. top: the leading eigenvectors
    of the Hessian. negative: the most negative ones. mixed: the most positive and the most negative one. The
    extents of these three are in units of 1 over the root of the absolute eigenvalue. docs/method.md tells how well
    each plane distinguished checkpoints."""
    resolution: types.OddPoints = 21
    """Points along an axis."""
    path_resolution: int = Field(41, ge=3, le=1001)
    """Points along an axis of the plane of the training trajectory."""
    graphs: types.Distinct[Literal["grid4", "grid8", "delaunay", "aknn8"]] = Field(
        ["grid8", "grid4", "delaunay", "aknn8"], min_length=1
    )
    """Graphs that define which points of the surface are neighbours. Each graph has its own features; the diagrams
    come from the first one."""
    threshold: float = Field(0.01, ge=0, le=1)
    """Minima, saddles and bars are not counted if their persistence is less than this share of the surface's range,
    or less than the rounding error of the losses."""
    ball_points: int = Field(0, ge=0, le=100_000)
    """Random points in a ball around the checkpoint that six random directions span, with the norm of the weights
    as radius. They are joined by aknn8 and compared with a quadratic bowl on the same points. 0 turns it off."""
    subspaces: types.Distinct[Annotated[int, Field(ge=2, le=10)]] = Field([])
    """Dimensions, from 2 to 10, of the subspaces of the leading eigenvectors of the Hessian in which minima and
    saddles are searched by descents, and compared with those of the quadratic model there. Nothing turns it off."""
    subspace_extent: float = Field(1.0, gt=0, le=1_000_000)
    """Half of the width of the cube that is searched, in units of 1 over the root of the absolute eigenvalue."""
    subspace_starts: int = Field(50, ge=1, le=100_000)
    """Descents in each subspace: from the checkpoint and from random points. A basin with the share p of the volume
    is missed with probability (1 - p) to this power."""
    batch_size: int = Field(16, ge=1, le=65_536)
    """Sequences of the validation text in the probe batch."""
    max_tokens: int = Field(128, ge=2, le=65_536)
    """Tokens in a probe sequence, or the model's context if that is less."""
    repeats: int = Field(2, ge=0, le=1000)
    """Additional draws, each with another probe batch and other random directions. A feature is the mean over all
    draws; its _spread is their standard deviation."""
    eigenvalues: int = Field(2, ge=1, le=100)
    """Leading eigenvalues of the Hessian."""
    trace_probes: int = Field(100, ge=2, le=100_000)
    """Largest number of random vectors for the trace of the Hessian. Fewer are used once its standard error is
    below the share trace_accuracy of the trace."""
    trace_accuracy: float = Field(0.1, ge=0, le=1)
    """Wanted standard error of the trace, as a share of the trace."""
    density_runs: int = Field(2, ge=0, le=1000)
    """Number of random vectors for the spectral density of the Hessian; 0 turns it off."""
    density_steps: int = Field(30, ge=2, le=1000)
    """Lanczos steps for each of these vectors."""
    jobs: types.Jobs = "checkpoint"
    gradients: bool = True
    """Topology of the gradient on the probe batch: its rows are points, layer by layer, at most 200 of a layer."""
    device: types.Device = "auto"


class Trajectory(types.Section):
    """Topology of the training trajectory, from the sketches of training.sketch; for models trained here."""

    enabled: bool = True
    """Measurement of the trajectory."""
    window: int = Field(60, ge=20, le=10_000)
    """Number of sketches before a checkpoint that are used; a checkpoint with fewer has no features. The
    persistent-homology dimension of fewer than 60 sketches is often undefined."""


class Metrics(types.Section):
    """Metrics of the checkpoints from other programs."""

    harness: types.PathText = ""
    """Folder of lm-evaluation-harness results, or a glob of such files (** for any depth), with one JSON file for
    each checkpoint. Old and new formats are read."""
    tasks: types.Distinct[types.SomeText] = Field(["*"], min_length=1)
    """Tasks of the harness to use, as globs. If there is neither a validation loss nor a perplexity, the answers of
    the report are about the first task in this list."""
    tables: list[types.MetricsFile] = Field([])
    """Parquet or CSV files with the columns model, step, metric, value; they are added to the metrics table."""


class Figures(types.Section):
    """Files of the figures."""

    formats: types.Distinct[Literal["svg", "png", "pdf"]] = Field(["svg", "png"])
    """Formats of a figure. The report holds SVG and PNG, which are always written."""


class Statistics(types.Section):
    """Correlations, scaling fits and their uncertainty."""

    resamples: int = Field(1000, ge=10, le=100_000)
    """Bootstrap resamples for every interval."""
    seed: types.Seed = 42
    """Seed of all resampling."""


class Forecasts(types.Section):
    """Forecasts of the final loss from the first part of training."""

    fractions: types.Distinct[Annotated[float, Field(gt=0, lt=1)]] = Field([0.2, 0.3, 0.5], min_length=1)
    """Shares of training from which the forecasts are made."""
    metrics: types.Distinct[types.SomeText] = Field([])
    """Scores of tasks from 0 to 1 that are forecast in two stages, named as in the metrics table (arc_easy.acc):
    the loss is forecast, and a sigmoid that all models of a family share turns it into a score."""
    loss: types.SomeText | None = None
    """The metric that stands for the loss there; of a perplexity its logarithm counts. null: the validation loss,
    else the training loss."""


class Decision(types.Section):
    """The decision: continue a run, extend it, or train another size from scratch."""

    remaining: Annotated[float, Field(ge=0)] | None = None
    """Compute that will still be spent, in FLOP; null stands for what each run needs to reach its end."""
    target_loss: Annotated[float, Field(gt=0)] | None = None
    """Target loss in nats per token; the advice says when it will be reached."""
    multiples: types.Distinct[Annotated[float, Field(gt=0, le=1000)]] = Field([2, 4])
    """Multiples of the number of parameters of a run that are candidates; the sizes in models always are."""


Models = Annotated[
    dict[types.ModelName, Model],
    # Its schema for a name is `patternProperties`, with which any other name would be valid too.
    Field(min_length=1, json_schema_extra={"additionalProperties": False}),
]


class Config(types.Section):
    """Configuration of a toposcale run: every key, its meaning and its default."""

    run: types.Name = "default"
    """Name of the run; its results are in results/{run}/. A file without it is a run of the file's own name, without
    the ending."""
    reproduces: types.Distinct[Literal["research_plan", "paper", "embedding_report", "landscape_review"]] = Field([])
    """Sources that this run repeats. The tables claims and comparison, and a section of the report, hold their claims and
    published values with those of the run."""
    seeds: types.Distinct[types.Seed] = Field([42], min_length=1)
    """Seeds of the models that are trained here. A model trained with the first seed keeps its name; a model trained
    with another seed is named {model}.seed{seed}."""
    models: Models = Field({}, validate_default=True)
    """The models by name: `models: {name: {kind: hub, repo: ...}}`. An entry has the keys of its kind; without `kind`
    it is a gpt."""
    sweep: Sweep = Sweep()
    corpus: Corpus = Corpus()
    training: Training = Training()
    weights: Weights = Weights()
    hub: Hub = Hub()
    embeddings: Embeddings = Embeddings()
    landscape: Landscape = Landscape()
    trajectory: Trajectory = Trajectory()
    metrics: Metrics = Metrics()
    figures: Figures = Figures()
    statistics: Statistics = Statistics()
    forecasts: Forecasts = Forecasts()
    decision: Decision = Decision()

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield what does not go together in the sections, and too many checkpoints."""
        trained = tuple(name for name, model in self.models.items() if isinstance(model, GptModel))
        strange = [name for name in self.sweep.models if name not in trained]
        for name in strange:
            yield types.contradiction("sweep.models", "but must name models of kind gpt", name, trained)
        if not strange:
            yield from _of_training(self.model_dump())


def _of_training(config: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
    """Yield what is wrong with the training of a configuration or model, and too many checkpoints."""
    total, checkpoints = 0, dict[str, int]()  # of a run, by its configuration
    for run in sweep.runs(config):
        if run.configuration not in checkpoints:
            training = run.training
            key = f"models.{run.entry}.schedule" if "schedule" in config["models"][run.entry] else "training.schedule"
            yield from schedule_contradictions(key, training.get("schedule"), training["steps"])
            if training["warmup_steps"] >= training["steps"]:
                of_one = f" (of {run.configuration})" if training != config["training"] else ""
                problem = f"but must be less than training.steps, {training['steps']}{of_one}"
                yield types.contradiction("training.warmup_steps", problem, training["warmup_steps"])
            checkpoints[run.configuration] = 2 + training["steps"] // training["checkpoint_every"]
        total += checkpoints[run.configuration]
        if total > MAX_CHECKPOINTS:
            problem = f"which makes more than {MAX_CHECKPOINTS} checkpoints of all models; make it larger"
            yield types.contradiction("training.checkpoint_every", problem, config["training"]["checkpoint_every"])
            return
