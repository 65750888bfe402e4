"""Every table of a run: its columns with type and meaning, and the columns that identify and sort its rows.

docs/tables.md is generated from this module (`make reference`). A table's name is the name of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

ALL_LAYERS = "all"
"""Value of the `layer` column in a row that describes the whole model."""

METRIC_SOURCE = "metric"
"""Value of the `source` column where a table of analyses holds metrics beside features."""

_TYPES = {"text": pa.string(), "count": pa.int64(), "flag": pa.bool_(), "number": pa.float64()}

_COMMON = {
    "model": ("text", "name of the model"),
    "step": ("count", "training steps that were done"),
    "source": ("text", "where the feature comes from: weights, embeddings, landscape, gradients, trajectory"),
    "layer": ("text", f'weight matrix or hidden state; "{ALL_LAYERS}" is the whole model'),
    "feature": ("text", "name of the feature (docs/method.md)"),
    "metric": ("text", "name of the metric, for example validation_loss"),
    "n_models": ("count", "models that entered"),
    "n_parameters": ("count", "trained parameters"),
    "fraction": ("number", "share of the training that was read, 0 to 1"),
    "reason": ("text", "why a number is missing; empty where none is"),
}
"""Columns that mean the same in every table."""


@dataclass(frozen=True)
class Column:
    """Name, Arrow type and meaning of a column."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """A named table: what a row is, its columns in order, and the leading columns that identify and sort a row."""

    name: str
    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    def frame(self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Rows as a data frame of exactly these columns, sorted by the key; a column without values is missing.

        ValueError: a column that the table does not have.
        """
        import pandas as pd

        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        unknown = sorted(set(frame.columns) - set(self.names))
        if unknown:
            raise ValueError(f"{self.name}: unknown columns {', '.join(unknown)}")
        frame = frame.reindex(columns=self.names)
        for column in self.columns:
            values = frame[column.name]
            if pa.types.is_string(column.type):
                frame[column.name] = values.astype(object).fillna("")
            elif pa.types.is_floating(column.type):
                frame[column.name] = values.astype("float64")
            elif values.isna().any():  # the kinds of pandas that know a missing value
                frame[column.name] = values.astype("Int64" if pa.types.is_integer(column.type) else "boolean")
            else:
                frame[column.name] = values.astype("int64" if pa.types.is_integer(column.type) else "bool")
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


BY_NAME: dict[str, Table] = {}


def _table(name: str, key: str, about: str, text: str) -> Table:
    """A table from a line a column: `name type meaning`, or names of `_COMMON` alone.

    Types: text, count, flag, number; `interval` stands for three numbers, the name and its 95% bounds `_low`, `_high`.
    """
    columns = []
    for line in filter(None, map(str.strip, text.strip().splitlines())):
        words = line.split()
        if all(word in _COMMON for word in words):
            columns += [Column(word, _TYPES[_COMMON[word][0]], _COMMON[word][1]) for word in words]
            continue
        column, kind, meaning = line.split(maxsplit=2)
        if kind == "interval":
            columns.append(Column(column, _TYPES["number"], meaning))
            columns += [
                Column(f"{column}_{end}", _TYPES["number"], f"{which} end of its 95% interval")
                for end, which in (("low", "lower"), ("high", "upper"))
            ]
        else:
            columns.append(Column(column, _TYPES[kind], meaning))
    table = Table(name, about, tuple(columns), tuple(key.split()))
    BY_NAME[name] = table
    return table


# What producers write, and the tables that every analysis reads.

FEATURES = _table(
    "features",
    "model step source layer feature",
    "every number that was computed of a checkpoint",
    """
    model step source layer feature
    value number value of the feature, in the unit that docs/method.md gives
    """,
)
DIAGRAMS = _table(
    "diagrams",
    "model step source layer dimension birth death",
    "the bars of the persistence diagrams",
    """
    model step source layer
    dimension count homology dimension
    birth number filtration value at which the class is born
    death number filtration value at which the class dies
    """,
)
VECTORS = _table(
    "vectors",
    "model step source vector index",
    "persistence diagrams as vectors of one length",
    """
    model step source
    vector text persistence_image or persistence_landscape
    index count place in the vector
    value number entry of the vector
    """,
)
METRICS = _table(
    "metrics",
    "model step metric",
    "every number that says how good a checkpoint is",
    """
    model step metric
    value number value of the metric; losses in nats per token
    """,
)
MODELS = _table(
    "models",
    "n_parameters model",
    "the models of the run",
    """
    model
    family text models of one family are sizes of one another
    entry text entry of `models:` in the configuration
    seed count seed of the training; of the run's random choices for models that were trained elsewhere
    n_parameters
    d_model count width, where it is known
    n_layers count blocks, where they are known
    n_heads count attention heads of a block, where they are known
    tokens_per_step count tokens that a training step reads
    final_step count step at which the training ends
    """,
)
TRAINING = _table(
    "training",
    "step",
    "training log of one model, a row a logged step (training/{model}.parquet)",
    """
    step
    loss number training loss of the step's batch, nats per token
    gradient_norm number norm of the gradient before clipping
    learning_rate number learning rate of the update that followed
    """,
)
SURFACES = _table(
    "surfaces",
    "model step x y",
    "loss surfaces around checkpoints",
    """
    model step
    x number distance along the first direction, weight units
    y number distance along the second direction, weight units
    loss number loss at the point
    """,
)
PATH_SURFACES = _table(
    "path_surfaces",
    "model step x y",
    "loss in the principal plane of the training trajectory, around the last checkpoint",
    """
    model step
    x number distance along the first principal direction, weight units
    y number distance along the second principal direction, weight units
    loss number loss at the point
    """,
)
TRAJECTORIES = _table(
    "trajectories",
    "model step",
    "the checkpoints in the principal plane of their training trajectory",
    """
    model step
    x number coordinate along the first principal direction, weight units
    y number coordinate along the second principal direction, weight units
    distance number distance of the checkpoint from the plane, weight units
    """,
)
DENSITIES = _table(
    "densities",
    "model step eigenvalue",
    "spectral density of the Hessian",
    """
    model step
    eigenvalue number eigenvalue, loss per squared weight
    density number smoothed density there
    standard_error number standard error over the random probes
    """,
)
PROFILES = _table(
    "profiles",
    "model step direction component level",
    "landscape profiles: the mass of each sublevel component, level by level",
    """
    model step
    direction text the line along which the loss was sampled
    component count grid point of the minimum that names the component
    level number loss
    mass number share of all grid points in the component at that level
    """,
)

# Analyses.

CORRELATIONS = _table(
    "correlations",
    "model source layer feature metric",
    "correlation of every feature with every metric, model by model",
    """
    model source layer feature metric
    n count checkpoints that were used
    n_left_out count checkpoints of the feature that could not be used
    spearman interval Spearman correlation; bootstrap of independent checkpoints, as published
    spearman_block_low number lower end of its moving-block interval
    spearman_block_high number upper end of its moving-block interval
    p_spearman number its p-value under independence, as published
    p_spearman_bh number the same after Benjamini-Hochberg over the table
    p_spearman_bonferroni number the same after Bonferroni over the table
    pearson interval Pearson correlation; bootstrap of independent checkpoints, as published
    pearson_block_low number lower end of its moving-block interval
    pearson_block_high number upper end of its moving-block interval
    p_pearson number its p-value under independence, as published
    p_pearson_bh number the same after Benjamini-Hochberg over the table
    p_pearson_bonferroni number the same after Bonferroni over the table
    spearman_differences interval Spearman correlation of the first differences; moving blocks
    p_differences number its p-value under independence
    n_effective number independent points that the autocorrelated pair is worth
    innovation_correlation number correlation of the innovations of both series
    p_surrogate number p-value of the innovation test
    p_surrogate_bh number the same after Benjamini-Hochberg over the table
    p_surrogate_bonferroni number the same after Bonferroni over the table
    reason
    """,
)
PARTIAL_CORRELATIONS = _table(
    "partial_correlations",
    "model source layer feature metric given",
    "partial correlations given the weight norm, the step, or both",
    """
    model source layer feature metric
    given text what is held fixed: weight_norm, step, weight_norm_and_step
    n count checkpoints that were used
    n_left_out count checkpoints of the feature that could not be used
    partial_spearman interval partial Spearman correlation; moving blocks
    p_naive number its p-value under independence
    innovation_correlation number correlation of the innovations given the control
    p_surrogate number p-value of the innovation test given the control
    p_surrogate_bh number the same after Benjamini-Hochberg over the rows of one control
    n_effective number independent points that the autocorrelated pair is worth
    reason
    """,
)
POOLED_CORRELATIONS = _table(
    "pooled_correlations",
    "source layer feature metric given",
    "correlations pooled over models",
    """
    source layer feature metric
    given text what is held fixed: nothing, weight_norm, step, weight_norm_and_step
    n_models
    spearman interval random-effects mean of the (partial) Spearman correlation
    i_squared number share of the variance that lies between models
    innovation_correlation number random-effects mean of the innovation correlation
    innovation_low number lower end of its 95% interval
    innovation_high number upper end of its 95% interval
    innovation_i_squared number share of its variance that lies between models
    p_surrogate number p-value of the pooled innovation test
    p_surrogate_bh number the same after Benjamini-Hochberg over the rows of one control
    """,
)
VERDICTS = _table(
    "verdicts",
    "model source layer feature metric",
    "does a feature follow the metric, and does it tell more than the weight norm and the step do",
    """
    model source layer feature metric
    follows_the_loss flag the interval of the Spearman correlation excludes 0
    follows_the_loss_rho number Spearman correlation
    follows_the_loss_low number lower end of its interval
    follows_the_loss_high number upper end of its interval
    beyond_the_norm flag the innovation test given the weight norm has p of at most 0.05
    beyond_the_norm_rho number partial Spearman correlation given the norm
    beyond_the_norm_low number lower end of its interval
    beyond_the_norm_high number upper end of its interval
    beyond_the_norm_innovation number innovation correlation given the norm: what is tested
    beyond_the_norm_innovation_low number lower end of its interval over models
    beyond_the_norm_innovation_high number upper end of its interval over models
    beyond_the_norm_p number its p-value
    beyond_the_norm_reason text why it was not tested
    beyond_the_step flag the innovation test given the step has p of at most 0.05
    beyond_the_step_rho number partial Spearman correlation given the step
    beyond_the_step_low number lower end of its interval
    beyond_the_step_high number upper end of its interval
    beyond_the_step_innovation number innovation correlation given the step: what is tested
    beyond_the_step_innovation_low number lower end of its interval over models
    beyond_the_step_innovation_high number upper end of its interval over models
    beyond_the_step_p number its p-value
    beyond_the_step_reason text why it was not tested
    survives_correction flag the innovation test, corrected for the number of tests, has p of at most 0.05
    survives_correction_p number that corrected p-value
    reason
    """,
)
RANKING = _table(
    "ranking",
    "metric rank source layer feature",
    "features by how closely they follow a metric",
    """
    metric
    rank number 1 is the strongest
    source layer feature
    group text group of the feature: topology, spectrum, norm, curvature, other
    n_models
    strength interval mean over models of |Spearman|
    over_norm interval strength less that of the plain weight norm
    """,
)
FEATURE_GROUPS = _table(
    "feature_groups",
    "metric statistic first second",
    "groups of features compared by how closely they follow a metric",
    """
    metric
    statistic text mean of the group, or its best feature
    first text first group
    second text second group
    n_first count features of the first group
    n_second count features of the second group
    strength_first number strength of the first group
    strength_second number strength of the second group
    difference interval first less second; paired moving blocks
    """,
)
SCALING = _table(
    "scaling",
    "source layer feature law",
    "power laws in model size of every feature and metric at the last step",
    """
    source layer feature
    law text power_law (a N^b) or power_law_with_offset (a N^b + c)
    n_models
    coefficient number a
    exponent interval b; Student's t, or an F profile for the law with an offset
    exponent_bootstrap_low number lower end of the published bootstrap of b
    exponent_bootstrap_high number upper end of the published bootstrap of b
    offset number c
    r_squared number share of the variance explained (of logarithms for the law without an offset)
    spearman number Spearman correlation of value and size
    p_spearman number its p-value
    reason
    """,
)
SIZE_EXTRAPOLATION = _table(
    "size_extrapolation",
    "source layer feature law",
    "the largest size predicted from the smaller ones",
    """
    source layer feature
    law text power_law or power_law_with_offset
    n_parameters
    n_models
    actual number value of the largest size
    predicted interval prediction from the smaller sizes
    error number predicted less actual
    relative_error number error as a share of the actual value
    reason
    """,
)
TRANSITIONS = _table(
    "transitions",
    "model source layer feature",
    "when each series changes most, and when it settles",
    """
    model source layer feature
    n count checkpoints
    transition_step number step that ends the largest change
    change number that change, signed
    settled_step number first later step with a change below a tenth of it
    n_change_points count change points (PELT)
    reason
    """,
)
CHANGE_POINTS = _table(
    "change_points",
    "model source layer feature step",
    "steps at which a new straight piece of a series begins (PELT)",
    """
    model source layer feature step
    """,
)
CHANGE_POINT_COINCIDENCE = _table(
    "change_point_coincidence",
    "first_source first_feature second_source second_feature",
    "do the change points of two series fall together more often than by chance",
    """
    first_source text source of the first series
    first_feature text feature of the first series
    second_source text source of the second series
    second_feature text feature of the second series
    n_models
    n_first count change points of the first series
    n_second count change points of the second series
    observed number change points of the first within one checkpoint of the second
    expected number the same by chance
    p_value number p-value over circular shifts
    p_value_bh number the same after Benjamini-Hochberg
    """,
)
EARLY_STOPPING = _table(
    "early_stopping",
    "model source layer feature patience",
    "patience on a feature against patience on the validation loss",
    """
    model source layer feature
    patience count checkpoints without a new record before the rule stops
    stop_step count step at which the feature stops the training
    triggered flag whether the rule stopped before the end
    metric_stop_step count step at which the validation loss stops it
    metric_triggered flag whether that rule stopped before the end
    steps_saved count steps between the two
    loss_given_up number least validation loss up to the one less that up to the other
    """,
)
EARLY_STOPPING_SUMMARY = _table(
    "early_stopping_summary",
    "source layer feature patience",
    "mean over models of what early stopping saves and costs",
    """
    source layer feature
    patience count checkpoints without a new record before the rule stops
    n_models
    steps_saved interval mean over models
    loss_given_up interval mean over models
    """,
)
FORECASTS = _table(
    "forecasts",
    "model fraction method",
    "forecasts of the final loss",
    """
    model fraction
    method text forecasting method
    forecast number forecast of the final loss
    low number lower end of its 95% interval
    high number upper end of its 95% interval
    actual number final loss, where the training is finished
    error number forecast less actual
    reason
    """,
)
FORECAST_EVALUATION = _table(
    "forecast_evaluation",
    "fraction method",
    "how good each forecasting method was",
    """
    fraction
    method text forecasting method
    n_models
    n_forecasts count forecasts that could be judged
    mae interval mean absolute error; bootstrap over models
    spearman number Spearman correlation of forecast and actual
    interval_coverage number share of intervals that hold the actual loss
    improvement_percent number error saved against the power law
    improvement_low number lower end of its 95% interval
    improvement_high number upper end of its 95% interval
    wilcoxon_p number signed-rank test against the power law
    permutation_mae number error with the final losses dealt out at random (ridge)
    permutation_p number share of such deals that are at least as good
    note text how far the numbers can be read
    """,
)
DECISIONS = _table(
    "decisions",
    "model fraction policy",
    "what each policy advises, and what following it costs",
    """
    model
    next_model text the next larger size
    fraction
    policy text forecasting method, always_finish or plateau
    advice text train_on or scale_up; empty where there is none
    right flag whether the advice was the better one
    budget number compute at which losses are compared, FLOP
    spent number compute spent when the decision is made, FLOP
    forecast_switch number compute from which on the next size is forecast to be ahead, FLOP
    forecast_low number lower end of its interval
    forecast_high number upper end of its interval
    true_switch number the same of the true curves
    true_is_bound flag whether that is only an upper bound
    log10_error number |log10| of forecast over true switch point
    regret number loss of the advised size less that of the better one, at equal compute
    regret_sunk number the same with the compute already spent charged
    compute_saved number compute of the run that the advice leaves out, FLOP
    compute_saved_percent number the same as a percentage of the run
    reason
    """,
)
DECISION_EVALUATION = _table(
    "decision_evaluation",
    "fraction policy",
    "how good each policy was, over models",
    """
    fraction
    policy text forecasting method, always_finish or plateau
    n_advised count decisions with advice
    share_right number share of right advice
    log10_error interval mean over models
    regret interval mean over models
    regret_sunk interval mean over models
    compute_saved_percent interval mean over models
    """,
)
COMPARISON = _table(
    "comparison",
    "source table model step quantity",
    "published values beside those of this run",
    """
    source text publication
    table text table or figure of the publication
    model step
    quantity text what was published
    published number published value
    ours number value of this run
    difference number ours less published
    note text remark of the publication
    setting text how this run differs from the published one
    """,
)
GRAPH_DEPENDENCE = _table(
    "graph_dependence",
    "model feature",
    "how much the features of a loss surface depend on the choice of graph",
    """
    model feature
    n_checkpoints count checkpoints with a surface
    n_graphs count graphs compared
    lowest number smallest mean over the checkpoints
    lowest_graph text graph that has it
    highest number largest mean over the checkpoints
    highest_graph text graph that has it
    spread_over_graphs number standard deviation over graphs at one checkpoint
    spread_over_repeats number standard deviation over repeated measurements
    spread_over_training number standard deviation over checkpoints
    agreement number mean Spearman correlation between two graphs
    agreement_least number least of these correlations
    """,
)
WARNINGS = _table(
    "warnings",
    "model step warning",
    "what to know before trusting a number",
    """
    model step
    warning text the warning
    """,
)
SUMMARY = _table(
    "summary",
    "position",
    "the questions of the project, answered by this run",
    """
    position count order of the questions
    question text the question
    verdict text the answer in a few words
    answer text the answer in a sentence, with its numbers
    """,
)


def reference() -> str:
    """docs/tables.md: every table, what a row is, its columns with type and meaning."""
    lines = [
        "# Tables",
        "",
        "Written by `make reference` from `src/toposcale/io/schemas.py`; change that file, not this page.",
        "Tables lie in `results/{run}/tables/` as Parquet, the analyses as CSV too. Columns in **bold** identify a row.",
    ]
    for table in BY_NAME.values():
        lines += ["", f"## {table.name}", "", f"{table.about.capitalize()}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in table.columns:
            name = f"**`{column.name}`**" if column.name in table.key else f"`{column.name}`"
            kind = next(word for word, one in _TYPES.items() if one == column.type)
            lines.append(f"| {name} | {kind} | {column.meaning} |")
    return "\n".join(lines) + "\n"
