"""The questions of the third study: six primary tests, what must be found, and what is secondary.

docs/study-3.md says what is asked, and said so before a run was trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from studies import small_tables
from studies.norms import NORMS
from studies.over_seeds import STUDY_DRAWS, between_rows, later_loss, partial_correlations
from studies.study3.measures import CENTRED_RANK, NEAREST, NUCLEAR, PLAIN_RANK, SPECTRAL_NORM
from studies.study3.prediction import prediction_row
from toposcale.analysis.over_seeds import EarlyValues, early_values
from toposcale.io.errors import UserError
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm

GAP, GAP_VALIDATION, GAP_TRAINING = "gap_of_many_sequences", "validation_loss_of_many", "training_loss_of_many"
"""The generalisation gap on the many sequences of the table `gaps`, and its two losses."""
SPECTRUM = (NUCLEAR, PLAIN_RANK, CENTRED_RANK, "stable_rank", SPECTRAL_NORM, NEAREST)
"""What the sixth primary test holds fixed beside what the fifth does."""
SHAPE, SHAPE_L2 = "h0_total_scaled", "h0_total_l2_scaled"
SECONDARY_DRAWS = 10_000
STRICTEST = 0.05 / 6
"""The strictest level that Holm asks for among the primary tests."""
SEED = 42

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""Features, metrics and models."""


class Question(NamedTuple):
    """Does the feature at 30% tell how the outcome of the runs of a configuration will end, given some features at 30%?

    Given are also the outcome at 20 and at 30%, and the square of the latter.
    """

    name: str
    feature: str
    outcome: str
    given: tuple[str, ...]


PRIMARY = (
    Question("1", NUCLEAR, VALIDATION_LOSS, NORMS),
    Question("2", "h0_total", VALIDATION_LOSS, (*NORMS, NUCLEAR)),
    Question("3", "h0_mean", VALIDATION_LOSS, (*NORMS, NUCLEAR)),
    Question("4", NUCLEAR, VALIDATION_LOSS, (*NORMS, "h0_total", "h0_mean")),
    Question("5", SHAPE, GAP, NORMS),
    Question("6", SHAPE, GAP, (*NORMS, *SPECTRUM)),
)


def study_tables(tables: Tables, *, seed: int = SEED) -> dict[str, pd.DataFrame]:
    """`primary`, the six tests with Holm's correction; `control`, what must be found; `configurations`, the partial
    correlation of each primary question in each configuration; `secondary`, corrected after Benjamini and Hochberg; and
    `prediction`, the error out of sample with and without each feature.

    Columns: question, feature, outcome, n_models, n_configurations, estimate (a correlation), its 95% interval, p and q.
    """
    return {
        "primary": primary_table(tables, STUDY_DRAWS, seed),
        "control": control_table(tables, SECONDARY_DRAWS, seed),
        "configurations": by_configuration(tables),
        "secondary": secondary_table(tables, SECONDARY_DRAWS, seed),
        "prediction": pd.DataFrame([prediction(question, tables, seed) for question in PRIMARY]),
    }


def primary_table(tables: Tables, draws: int, seed: int) -> pd.DataFrame:
    """The six tests; one that could not be made counts as p = 1 in Holm's correction."""
    rows = pd.DataFrame([answer(question, tables, draws, seed) for question in PRIMARY])
    return rows.assign(q=holm(rows["p"].fillna(1.0).to_numpy()))


def secondary_table(tables: Tables, draws: int, seed: int) -> pd.DataFrame:
    """The secondary questions, corrected together."""
    rows = [answer(question, part, draws, seed) for question, part in secondary_questions(tables)]
    table = pd.DataFrame(rows).drop(columns="detectable")
    return table.assign(q=benjamini_hochberg(table["p"].to_numpy()))


def control_table(tables: Tables, draws: int, seed: int) -> pd.DataFrame:
    """What must be found: loss and gap at half of the training in the place of a feature."""
    features, metrics, models = tables
    parts = []
    for metric, name in ((VALIDATION_LOSS, "loss"), (GAP, "gap")):
        later = later_loss(features, metrics, models, NORMS, metric=metric, name=name)
        rows = between_rows("control", later, metrics, models, seed=seed, draws=draws, metric=metric)
        parts.append(rows[~rows["feature"].isin(NORMS)])
    return pd.concat(parts, ignore_index=True)


def prediction(question: Question, tables: Tables, seed: int, **settings: int) -> dict[str, object]:
    """The error out of sample with and without the feature of a question, as `prediction_row` has it."""
    key = {"question": question.name, "feature": question.feature, "outcome": question.outcome}
    return {**key, **prediction_row(read_of(question, tables), question.feature, seed, **settings)}


def with_gaps(gaps: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The metrics with the gap of many sequences and its two losses: the means over the parts, by their sequences."""
    weighed = gaps.assign(
        **{
            GAP_VALIDATION: gaps["validation_loss"] * gaps["sequences"],
            GAP_TRAINING: gaps["training_loss"] * gaps["sequences"],
        }
    )
    sums = weighed.groupby(["model", "step"])[[GAP_VALIDATION, GAP_TRAINING, "sequences"]].sum()
    losses = sums[[GAP_VALIDATION, GAP_TRAINING]].div(sums["sequences"], axis=0)
    losses[GAP] = losses[GAP_VALIDATION] - losses[GAP_TRAINING]
    rows = losses.reset_index().melt(["model", "step"], var_name="metric", value_name="value")
    return pd.concat([metrics, rows], ignore_index=True)


def tables_of(models: pd.DataFrame, series: pd.DataFrame, early: pd.DataFrame, gaps: pd.DataFrame) -> Tables:
    """Features, metrics and models that the small tables of all configurations hold; features of single layers are left
    out."""
    whole = early[[name for name in early.columns if "/" not in name]]
    features, metrics = small_tables.long_tables(series, whole)
    return features, with_gaps(gaps, metrics), models


def answer(question: Question, tables: Tables, draws: int, seed: int) -> dict[str, Any]:
    """The row of one question; its numbers are NaN where it could not be tested.

    detectable: see there.
    """
    features, metrics, models = tables
    rows = between_rows(
        question.name,
        features[features["feature"].isin([question.feature, *question.given])],
        metrics,
        models,
        seed=seed,
        draws=draws,
        norms=question.given,
        metric=question.outcome,
    )
    own = rows[rows["feature"] == question.feature].drop(columns=["question", "feature"])
    tested = own.to_dict("records")
    key: dict[str, Any] = {"question": question.name, "feature": question.feature, "outcome": question.outcome}
    if not tested:
        return key | {"p": np.nan}
    [values] = tested
    return (
        key
        | {str(name): value for name, value in values.items()}
        | {"detectable": detectable(values["low"], values["high"])}
    )


def detectable(low: float, high: float) -> float:
    """The smallest correlation that is found in 80% of studies at `STRICTEST`, of a test with this 95% interval."""
    half = (np.arctanh(high) - np.arctanh(low)) / 2
    return float(np.tanh(half * (ndtri(1 - STRICTEST / 2) + ndtri(0.8)) / ndtri(0.975)))


def read_of(question: Question, tables: Tables) -> EarlyValues:
    """What the test of a question compares. UserError: a control is not there."""
    features, metrics, models = tables
    own = features[features["feature"].isin([question.feature, *question.given])]
    read = early_values(own, metrics, models, question.outcome, question.given)
    if read is None:
        raise UserError(f"question {question.name}: its outcome or its controls are not there")
    return read


def secondary_questions(tables: Tables) -> Iterator[tuple[Question, Tables]]:
    """The secondary questions with the runs that they are asked of: all runs, or those of one size, rate or text."""
    for question in variants():
        yield question, tables
    for name, models in groups(tables[2]):
        features, metrics = (table[table["model"].isin(models["model"])] for table in tables[:2])
        for question in PRIMARY:
            yield question._replace(name=f"{question.name}, {name}"), (features, metrics, models)


def variants() -> Iterator[Question]:
    """The primary questions asked otherwise, of all runs."""
    for question in PRIMARY[:4]:
        feature, *given = (NEAREST if name == NUCLEAR else name for name in (question.feature, *question.given))
        yield Question(f"{question.name}, nearest distance for nuclear norm", feature, VALIDATION_LOSS, tuple(given))
    for question in PRIMARY[1:3]:
        yield question._replace(name=f"{question.name}, without the nuclear norm", given=NORMS)
    for question in PRIMARY[4:]:
        yield question._replace(name=f"{question.name}, L2", feature=SHAPE_L2)
        yield question._replace(name=f"{question.name}, training loss", outcome=GAP_TRAINING)
        yield question._replace(name=f"{question.name}, validation loss", outcome=GAP_VALIDATION)


def groups(models: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs of each size, rate and text, with its name."""
    text = models["configuration"].str.contains("wikitext").map({True: "WikiText-2", False: "python-docs"})
    size = models["entry"].str.extract(r"^([a-z]+-\d+k)", expand=False)
    rate = "rate " + models["learning_rate"].astype(str)
    for labels in (size, rate, text):
        yield from ((str(name), own) for name, own in models.groupby(labels))


def by_configuration(tables: Tables, questions: Sequence[Question] = PRIMARY) -> pd.DataFrame:
    """The partial correlation of each question in each configuration, which its test takes the weighted mean of."""
    columns = {}
    for question in questions:
        correlations = partial_correlations(read_of(question, tables), [question.feature])
        columns[question.name] = {
            configuration: values[question.feature] for configuration, values in correlations.items()
        }
    return pd.DataFrame(columns).rename_axis("configuration").reset_index()


def gap_noise(gaps: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """By configuration, at the end of the training: how far the gaps of its runs spread, and how much of that is noise,
    in nats.

    The parts of the sequences are the same for all runs. What the gaps of a run's parts differ by, beside what all runs of
    the configuration share, is the noise of a part; that of their mean is smaller by the root of their number.
    """
    ends = models.set_index("model")["final_step"]
    final = gaps[gaps["step"] == gaps["model"].map(ends)]
    values = final.assign(value=final["validation_loss"] - final["training_loss"])
    table = values.pivot(index="model", columns="part", values="value")
    rows = []
    for configuration, own in models.groupby("configuration"):
        inside = table.loc[own["model"]].to_numpy()
        runs, parts = inside.shape
        rest = inside - inside.mean(axis=0) - inside.mean(axis=1, keepdims=True) + inside.mean()
        noise = np.sqrt((rest**2).sum() / ((runs - 1) * (parts - 1)) / parts)
        spread = inside.mean(axis=1).std(ddof=1)
        rows.append(
            {
                "configuration": configuration,
                "sequences": int(final.loc[final["model"].isin(own["model"]), "sequences"].sum() / runs),
                "mean_gap": inside.mean(),
                "spread": spread,
                "noise": noise,
                "share_of_variance": noise**2 / spread**2,
            }
        )
    return pd.DataFrame(rows)
