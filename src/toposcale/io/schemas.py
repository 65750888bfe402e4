"""Every table of a run: what a row is, its key and other columns; and docs/tables.md (`make reference`).

A table's name is the name of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

ALL_LAYERS = "all"  # the `layer` of a row that describes the whole model
METRIC_SOURCE = "metric"  # the `source` where a table of analyses holds metrics beside features


class Column(NamedTuple):
    """Column of a table: Arrow type, name and meaning."""

    type: pa.DataType
    name: str
    meaning: str


# Columns of texts, integers, Booleans and floating-point numbers, by name and meaning.
text = partial(Column, pa.string())
count = partial(Column, pa.int64())
flag = partial(Column, pa.bool_())
number = partial(Column, pa.float64())


class Table(NamedTuple):
    """Schema of a table: meaning of a row, columns in order, key columns (unique, and the sort order), and name."""

    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    name: str = ""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return [column.name for column in self.columns]

    def frame(self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Return rows as a data frame of exactly these columns, sorted by the key; absent columns hold missing values.

        Raise ValueError for a column that the table does not have.
        """
        import pandas as pd

        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        if unknown := sorted(set(frame.columns) - set(self.names)):
            raise ValueError(f"{self.name}: unknown columns {', '.join(unknown)}")
        frame = frame.reindex(columns=self.names)
        for column in self.columns:
            values = frame[column.name]
            if pa.types.is_string(column.type):
                # Each distinct text is held in memory once: a table may name one task half a million times.
                codes, texts = pd.factorize(values)
                shared = np.append(np.asarray(texts, dtype=object), "")[codes]
                frame[column.name] = pd.Series(shared, frame.index, dtype=object)
            elif pa.types.is_floating(column.type):
                frame[column.name] = values.astype("float64")
            else:  # the first two dtypes can hold a missing value
                kinds: Any = ("Int64", "boolean") if values.isna().any() else ("int64", "bool")
                frame[column.name] = values.astype(kinds[pa.types.is_boolean(column.type)])
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


def table(about: str, key: tuple[Column, ...], *columns: Column) -> Table:
    """Return a table without a name; key columns that `columns` does not list come first."""
    leading = tuple(column for column in key if column not in columns)
    return Table(about, leading + columns, tuple(column.name for column in key))


def bounds(name: str, of: str = "its 95% interval") -> tuple[Column, Column]:
    """Return the columns of an interval, `{name}_low` and `{name}_high`."""
    return number(f"{name}_low", f"lower end of {of}"), number(f"{name}_high", f"upper end of {of}")


def interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    """Return three columns: a number and its 95% interval."""
    return number(name, meaning), *bounds(name)


# Columns that mean the same in every table that has them.
MODEL = text("model", "name of the model")
STEP = count("step", "training steps that were done")
SOURCE = text("source", "where the feature comes from: weights, embeddings, landscape, gradients, trajectory")
LAYER = text("layer", f'weight matrix or hidden state; "{ALL_LAYERS}" is the whole model')
FEATURE = text("feature", "name of the feature (docs/method.md)")
METRIC = text("metric", "name of the metric, for example validation_loss")
QUESTION = text("question", "question of the verdicts (docs/statistics.md)")
N_MODELS = count("n_models", "models that entered")
N_PARAMETERS = count("n_parameters", "trained parameters")
FRACTION = number("fraction", "share of the training that was read, 0 to 1")
REASON = text("reason", "why a number is missing; empty where none is")
BAR = (
    count("dimension", "homology dimension"),
    number("birth", "filtration value at which the class is born"),
    number("death", "filtration value at which the class dies"),
)
ENTRY = text("vector", "persistence_image or persistence_landscape"), count("index", "index of the entry in the vector")
CONTROL = text(
    "control", "what is held fixed: nothing, step, weight_norm, weight_norm_and_spectrum, weight_norm_and_variance"
)
CONTROL_OF_QUESTION = text("control", "what is held fixed")
PATIENCE = count("patience", "checkpoints without a new record before the rule stops")
METHOD = text("method", "forecasting method")
SCORE_METHOD = text("method", "two_stages: from the forecast of the loss; power_law: from the score's own curve")
POLICY = text("policy", "advice, always_continue, next_size or random_stop")
SCORE = text("metric", "the score")
STEPS = text("steps", "checkpoints that are affected; empty for the whole model")
CONCERNS = text("concerns", "feature, metric or file that is affected")
WARNING = text("warning", "what is wrong with it")


def _forecast(of: str) -> tuple[Column, ...]:
    """Return the columns of a forecast of a number at the end of training."""
    return (
        number("forecast", f"forecast of the {of}"),
        number("low", "lower end of its 95% interval"),
        number("high", "upper end of its 95% interval"),
        number("calibrated_to", "coverage, calibrated on other finished runs; empty for an interval of the method"),
        number("own_low", "lower end of the method's own 95% interval, before calibration"),
        number("own_high", "upper end of that interval"),
        number("actual", f"{of}, where the training is finished"),
        number("error", "forecast less actual"),
        REASON,
    )


_DEFINITIONS = {
    "features": table(
        "every number that describes a checkpoint",
        (MODEL, STEP, SOURCE, LAYER, FEATURE),
        number("value", "value of the feature, in the unit that docs/method.md gives"),
    ),
    "diagrams": table("the bars of the persistence diagrams", (MODEL, STEP, SOURCE, LAYER, *BAR)),
    "vectors": table(
        "persistence diagrams as vectors of one length",
        (MODEL, STEP, SOURCE, *ENTRY),
        number("value", "entry of the vector"),
    ),
    "metrics": table(
        "every number that measures the quality of a checkpoint",
        (MODEL, STEP, METRIC),
        number("value", "value of the metric; losses in nats per token"),
    ),
    "models": table(
        "the models of the run",
        (N_PARAMETERS, MODEL),
        MODEL,
        text("family", "family; its models differ in size"),
        text("entry", "entry of `models:` in the configuration; of a sweep, the size"),
        text("configuration", "configuration of the model: runs that differ by their seed alone"),
        count("seed", "seed of the training; of the run's random choices for models that were trained elsewhere"),
        N_PARAMETERS,
        count("d_model", "width, where it is known"),
        count("n_layers", "blocks, where they are known"),
        count("n_heads", "attention heads of a block, where they are known"),
        count("tokens_per_step", "tokens that a training step reads, where it is known"),
        count("unique_tokens", "tokens of the training text, where they are stated"),
        text("optimizer", "optimizer, where it is stated"),
        flag("in_nats", "whether its losses are known to be those of a language model, in nats per token"),
        count("final_step", "step at which the training ends"),
        flag("is_end_known", "whether that is known, and not taken from the last row or checkpoint"),
        number("learning_rate", "peak learning rate, of models trained here"),
        number("weight_decay", "weight decay, of models trained here"),
        count("batch_size", "sequences of text in a batch, of models trained here"),
        count("warmup_steps", "steps over which the learning rate rises, where they are known"),
        count("warmup_at_most", "step by which the rise was over, where they are not known"),
        text("shape", "shape of the learning-rate schedule, of models trained here"),
        number("data_fraction", "share of the training text that is read, of models trained here"),
        text("schedule_provenance", "source of the learning rates up to the end: given, logged, recognised or unknown"),
        text("schedule_unknown_because", "why they are not known to the end"),
        text("left_out", "what of its checkpoints is not measured, and why, one per line"),
        text("log_notes", "what was left out of the user's log or changed in it, one per line"),
        text("log_low_confidence_reasons", "reasons for low confidence that were found in it, one per line"),
    ),
    "schedules": table(
        "learning-rate schedules to the end, in at most 2,000 rows for each model; linear in between",
        (MODEL, STEP),
        number("learning_rate", "learning rate of the update that follows the step"),
    ),
    "training": table(
        "training log of one model, one row for each logged step (training/{model}.parquet)",
        (STEP,),
        number("loss", "training loss of the step's batch, nats per token"),
        number("gradient_norm", "norm of the gradient before clipping"),
        number("learning_rate", "learning rate of the update that followed"),
    ),
    "surfaces": table(
        "loss surfaces around checkpoints",
        (
            MODEL,
            STEP,
            text("plane", "kind and extent of the plane: random_1, negative_0.3"),
            number("x", "distance along the first direction, weight units"),
            number("y", "distance along the second direction, weight units"),
        ),
        number("loss", "loss at the point"),
    ),
    "path_surfaces": table(
        "loss in the principal plane of the training trajectory, around the last checkpoint",
        (
            MODEL,
            STEP,
            number("x", "distance along the first principal direction, weight units"),
            number("y", "distance along the second principal direction, weight units"),
        ),
        number("loss", "loss at the point"),
    ),
    "trajectories": table(
        "the checkpoints in the principal plane of their training trajectory",
        (MODEL, STEP),
        number("x", "coordinate along the first principal direction, weight units"),
        number("y", "coordinate along the second principal direction, weight units"),
        number("distance", "distance of the checkpoint from the plane, weight units"),
    ),
    "densities": table(
        "spectral density of the Hessian",
        (MODEL, STEP, number("eigenvalue", "eigenvalue, loss per squared weight")),
        number("density", "smoothed density there"),
        number("standard_error", "standard error over the random probes"),
    ),
    "profiles": table(
        "landscape profiles: the mass of each sublevel component, level by level",
        (
            MODEL,
            STEP,
            text("direction", "where the loss was sampled: a plane, a line, or a ball and its bowl"),
            count("component", "sampled point of the minimum that names the component"),
            number("level", "loss"),
        ),
        number("mass", "share of all sampled points in the component at that level"),
    ),
    "correlations": table(
        "correlation of every feature with every metric, model by model: as it is, and given each control",
        (MODEL, SOURCE, LAYER, FEATURE, METRIC, CONTROL),
        count("n", "checkpoints that were used"),
        count("n_left_out", "checkpoints of the feature that could not be used"),
        *interval("spearman", "(partial) Spearman correlation; bootstrap of independent checkpoints, as published"),
        *bounds("spearman_block", "its moving-block interval"),
        number("spearman_p", "its p-value under independence, as published; exact up to 7 checkpoints"),
        *interval("pearson", "Pearson correlation; bootstrap of independent checkpoints, as published"),
        *bounds("pearson_block", "its moving-block interval"),
        number("pearson_p", "its p-value under independence, as published"),
        *interval("spearman_differences", "Spearman correlation of the first differences; moving blocks"),
        number("differences_p", "its p-value under independence"),
        number("n_effective", "effective number of independent checkpoints, after autocorrelation"),
        count("n_tested", "checkpoints of the testable segment; 0 if there is none, or no control"),
        number("residual_correlation", "correlation of prewhitened residuals given the control, on that segment"),
        number("residual_p", "its p-value given the control; the trend in the step is always removed"),
        REASON,
    ),
    "pooled_correlations": table(
        "correlations over runs: seeds are averaged within their configuration, then configurations are combined",
        (SOURCE, LAYER, FEATURE, METRIC, CONTROL),
        count("n_runs", "runs with a correlation"),
        count("n_configurations", "configurations (runs that differ by their seed alone) with a correlation"),
        number("spearman", "median over configurations of the (partial) Spearman correlation"),
        number("spearman_lowest", "lowest of a configuration"),
        number("spearman_highest", "highest of a configuration"),
        number("residual_correlation", "median over configurations of the correlation of prewhitened residuals"),
        number("residual_correlation_lowest", "lowest of a configuration"),
        number("residual_correlation_highest", "highest of a configuration"),
        count("n_tested", "runs that entered the test"),
        number("p", "p-value of the test of all runs together; its sign flips are shared by the runs"),
        REASON,
    ),
    "verdicts": table(
        'the answer to each question that is asked of a feature and a metric, of each model and of all together ("pooled")',
        (MODEL, SOURCE, LAYER, FEATURE, METRIC, QUESTION),
        CONTROL_OF_QUESTION,
        text("answer", "yes, no or not tested"),
        number("estimate", "the correlation that the answer is about (docs/statistics.md)"),
        number("low", "lower end of its 95% interval, where its coverage was measured; else empty"),
        number("high", "upper end of that interval"),
        number("p", "p-value; empty for follows_the_loss, which no test decides"),
        number("q", "the same after Benjamini-Hochberg over the tests that are corrected together"),
        text("reason", "why there is no answer"),
        text("corrected_with", "tests that q is corrected over: question, models or layers, metric, model or pooled"),
    ),
    "tested_features": table(
        "how many features of whole models were tested for each question",
        (QUESTION, SOURCE),
        count("measured", "features with values"),
        count("testable", "features with a testable segment in at least one run"),
        count("tested", "features with a p"),
        count("distinct", "groups of tested features; features with |rho| of at least 0.95 are one group"),
        count("found", "features with the answer yes"),
        REASON,
    ),
    "sensitivity": table(
        "which effects the tests over all runs could have found, for the headline metric",
        (QUESTION,),
        CONTROL_OF_QUESTION,
        count("n_runs", "runs that entered"),
        count("n_points", "checkpoints of the testable segment, median over runs"),
        count("n_tested", "features that are tested"),
        number("correlation", "residual correlation of the positive control (the metric with noise), mean over runs"),
        number("p", "its p-value"),
        number("q", "the same after Benjamini-Hochberg, as one more feature that is tested"),
        text("found", "yes, no or not tested: whether the positive control was found"),
        number("detectable", "correlation of prewhitened residuals found in 80% of simulations if no other is true"),
        text("outside", "what of the run lies outside of where the false-positive rate was measured; else empty"),
        REASON,
    ),
    "power": table(
        "share of simulated features that the tests over all runs find, for each strength of the relation",
        (QUESTION, number("planted", "correlation of prewhitened residuals that the noise was chosen for")),
        number("measured", "mean correlation of prewhitened residuals of the simulated features"),
        number("found", "share of them that is found"),
        count("simulations", "simulated features"),
    ),
    "scaling": table(
        "power laws in model size of every feature and metric at the last step",
        (SOURCE, LAYER, FEATURE, text("law", "power_law (a N^b) or power_law_with_offset (a N^b + c)")),
        N_MODELS,
        number("coefficient", "a"),
        *interval("exponent", "b; Student's t, or an F profile for the law with an offset"),
        *bounds("exponent_bootstrap", "the published bootstrap of b"),
        number("offset", "c"),
        number("r_squared", "share of the variance explained (of logarithms for the law without an offset)"),
        number("spearman", "Spearman correlation of value and size"),
        number("p", "its p-value"),
        REASON,
    ),
    "transitions": table(
        "the step at which each series changes most, and the step from which it changes little",
        (MODEL, SOURCE, LAYER, FEATURE),
        count("n", "checkpoints"),
        number("transition_step", "step that ends the largest change"),
        number("change", "that change, signed"),
        number("settled_step", "first later step with a change below a tenth of it"),
        count("n_change_points", "change points (PELT)"),
        REASON,
    ),
    "change_points": table("steps where the slope of a series changes (PELT)", (MODEL, SOURCE, LAYER, FEATURE, STEP)),
    "early_stopping": table(
        "early stopping on a feature, compared with early stopping on the validation loss",
        (MODEL, SOURCE, LAYER, FEATURE, PATIENCE),
        count("stop_step", "step at which the feature stops the training"),
        flag("triggered", "whether the rule stopped before the end"),
        count("metric_stop_step", "step at which the validation loss stops it"),
        flag("metric_triggered", "whether that rule stopped before the end"),
        count("steps_saved", "steps between the two"),
        number("regret", "least validation loss up to stop_step minus that up to metric_stop_step"),
    ),
    "early_stopping_summary": table(
        "steps saved and regret of early stopping, mean over models",
        (SOURCE, LAYER, FEATURE, PATIENCE),
        N_MODELS,
        *interval("steps_saved", "mean over models"),
        *interval("regret", "mean over models"),
    ),
    "forecasts": table("forecasts of the final loss", (MODEL, FRACTION, METHOD), *_forecast("final loss")),
    "forecast_evaluation": table(
        "the errors of each forecasting method",
        (FRACTION, METHOD),
        N_MODELS,
        count("n_forecasts", "forecasts that could be judged"),
        *interval("mae", "mean absolute error; bootstrap over models"),
        number("spearman", "Spearman correlation of forecast and actual"),
        number("interval_coverage", "share of intervals before calibration that contain the actual loss"),
        text("baseline", "the best method that reads the loss alone, or the number of parameters alone"),
        count("n_compared", "configurations that both the method and the baseline forecast"),
        number("improvement_percent", "error saved against the baseline"),
        *bounds("improvement"),
        number("improvement_p", "signed-rank test against the baseline"),
        number("over_power_law_percent", "error saved against the power law"),
        number("permutation_mae", "error with randomly permuted final losses (ridge)"),
        number("permutation_p", "share of permutations with an error at least as small"),
        text("note", "limits of the numbers"),
    ),
    "score_forecasts": table(
        "forecasts of the scores of tasks at the end of training",
        (MODEL, SCORE, FRACTION, SCORE_METHOD),
        *_forecast("score at the end"),
    ),
    "score_evaluation": table(
        "the errors of the forecasts of scores",
        (SCORE, FRACTION, SCORE_METHOD),
        N_MODELS,
        number("mae", "mean absolute error of the forecast score"),
        number("interval_coverage", "share of intervals before calibration that contain the actual score"),
    ),
    "advice": table(
        "what to do with each training; the columns are keys of the JSON of `advise`",
        (MODEL, FRACTION),
        flag(
            "is_live", "whether the training is not finished; else the advice is that at the decision point `fraction`"
        ),
        text("choice", "the candidate to take; empty where there is no advice"),
        flag("confident", "whether there is a choice and no reason for low confidence"),
        number("probability", "probability of being the best candidate"),
        number("scale_up_probability", "probability that a model from scratch is the best"),
        *interval("forecast", "forecast loss at the end of the schedule"),
        *interval("gain", "loss at the end of continuing less that of the choice, nats per token"),
        number("expected_regret", "expected regret of the choice, nats per token"),
        text("sentence", "the advice in a sentence"),
        text("on_track", "whether the loss agrees with finished runs of the family, and with published runs"),
        text("low_confidence_reasons", "reasons for low confidence"),
        text("no_advice_because", "why there is no advice"),
    ),
    "candidates": table(
        "candidates for the remaining compute, and the forecast loss at their end",
        (MODEL, FRACTION, text("candidate", "continue, extend, or scale up to NAME; empty where there is no advice")),
        text("kind", "continue, extend or scale_up"),
        N_PARAMETERS,
        count("steps", "steps to come"),
        number("compute", "compute of the candidate from now on, FLOP"),
        *interval("loss", "forecast loss at its end"),
        *interval("gain", "loss at the end of continuing less that of the candidate, nats per token"),
        number("probability", "probability of being the best candidate"),
        number(
            "expected_regret", "expected regret: mean difference of this loss to the best candidate's, nats per token"
        ),
        flag("is_confident", "whether it is the choice of the advice, and confident"),
        flag("is_live", "whether the training is not finished"),
        REASON,
    ),
    "decisions": table(
        "the choice of each policy at a share of a finished run, and its regret",
        (MODEL, FRACTION, POLICY),
        text("choice", "the candidate that is chosen; the advice continues where no forecast passes the checks"),
        number("probability", "probability of being the best candidate, by the advice"),
        flag("is_confident", "whether the advice was confident"),
        count("n_candidates", "candidates to choose from"),
        number("spent", "compute spent when the decision is made, FLOP"),
        number("remaining", "compute that will still be spent, FLOP"),
        number("loss", "loss at the end of the choice"),
        text("best", "the candidate with the least loss"),
        number("best_loss", "loss at the end of it"),
        number("regret", "loss of the choice less that of the best, at the same total compute"),
        text("truth", "observed; or modelled, if one of the losses comes from a law fitted to all finished runs"),
        REASON,
    ),
    "decision_evaluation": table(
        "the regret of each policy over models",
        (FRACTION, POLICY),
        count("n_decisions", "decisions"),
        count("n_confident", "decisions in which the advice was confident"),
        count("n_modelled", "decisions with a modelled loss"),
        number("share_best", "share of decisions for the best candidate"),
        *interval("regret", "mean over models"),
        *interval("regret_saved", "regret of always continuing less that of the policy, mean over models"),
    ),
    "comparison": table(
        "published values beside those of this run",
        (
            text("source", "publication"),
            text("table", "table or figure of the publication"),
            MODEL,
            STEP,
            text("quantity", "what was published"),
        ),
        number("published", "published value"),
        number("ours", "value of this run"),
        number("difference", "ours less published"),
        text("note", "remark of the publication"),
        text("setting", "how this run differs from the published one"),
    ),
    "claims": table(
        "claims of the sources, and what this run shows",
        (count("position", "order of the claims"),),
        text("source", "research plan, paper, embedding report or landscape review (docs/method.md)"),
        text("claim", "name of the claim in its source"),
        text("statement", "the claim, and the published values"),
        text("answer", "reproduced, not reproduced, opposite (the contrary passes the test) or not tested"),
        text("numbers", "the numbers of this run"),
        text("test", "the test that decides"),
        text("reason", "why it was not tested; empty where it was"),
    ),
    "warnings": table(
        "problems that affect numbers, and what can be done about them",
        (MODEL, CONCERNS, STEPS, WARNING),
        MODEL,
        STEPS,
        CONCERNS,
        WARNING,
        text("remedy", "what can be done about it; empty of a fact with which nothing is wrong"),
    ),
    "summary": table(
        "the questions of the project, answered by this run",
        (count("position", "order of the questions"),),
        text("question", "the question"),
        text("verdict", "the answer in a few words"),
        text("answer", "the answer in at most 40 words"),
        text("numbers", "the numbers of the answer"),
    ),
}

TABLES: dict[str, Table] = {name: unnamed._replace(name=name) for name, unnamed in _DEFINITIONS.items()}
"""Every table by its name, in the order of docs/tables.md."""


def reference() -> str:
    """Return docs/tables.md: every table, what a row is, its columns with type and meaning."""
    kinds = {pa.string(): "text", pa.int64(): "count", pa.bool_(): "flag", pa.float64(): "number"}
    lines = [
        "# Tables",
        "",
        "Written by `make reference` from `src/toposcale/io/schemas.py`; change that, not this page.",
        "Tables lie in `results/{run}/tables/` as Parquet, the analyses as CSV too, the others on request (`make csv`). "
        "Columns in **bold** identify a row.",
    ]
    for name, described in TABLES.items():
        lines += ["", f"## {name}", "", f"{described.about.capitalize()}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in described.columns:
            bold = "**" if column.name in described.key else ""
            lines.append(f"| {bold}`{column.name}`{bold} | {kinds[column.type]} | {column.meaning} |")
    return "\n".join(lines) + "\n"
