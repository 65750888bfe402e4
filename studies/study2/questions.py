"""The questions of the second study: six primary tests, what must be found, and what is exploratory.

docs/study-2.md says what is asked, and said so before a run was trained.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from studies.norms import MEAN_ROW_NORM, NORMS
from studies.over_seeds import STUDY_DRAWS, between_rows, later_loss, partial_correlations, within_rows
from toposcale.analysis.controls import Control
from toposcale.analysis.over_seeds import early_values
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io.errors import UserError
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm
from toposcale.statistics.prewhitening import prewhiten

PRIMARY = ("h0_total", "h0_mean", "neural_persistence")
"""The features that the study is made for; every other one is exploratory."""
QUESTIONS = ("between", "within")
WITHIN = Control("whole and mean layer norm", NORMS[:2], missing="no norms at these checkpoints")
"""What the test within runs holds fixed; the squares too."""
FOLLOWED = (*PRIMARY, *NORMS[:2], "h0_total_scaled", "weight_variance")
"""The features of every checkpoint; of the others, the study reads the value at 30% of the training alone."""
CONFIGURATIONS, SEEDS = 15, 40
PLANTED = 0.1
"""Correlation of the prewhitened residuals of the noisy loss that the test within runs must find."""
SEED = 42


def study_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, draws: int = STUDY_DRAWS, seed: int = SEED
) -> dict[str, pd.DataFrame]:
    """`primary`, the six tests with Holm's correction; `control`, what must be found; `configurations`, the partial
    correlation of each primary feature in each configuration; and `exploratory`, everything else, corrected after
    Benjamini and Hochberg.

    Columns: question, feature, n_models, n_configurations, estimate (a correlation), its 95% interval, p and q. A
    primary test that could not be made counts as p = 1.
    """
    tables = (features, metrics, models)
    between = between_rows("between", *tables, draws=draws, seed=seed)
    own = _only(features, *PRIMARY)
    within = within_rows("within", own, metrics, models, seed, control=WITHIN, draws=draws)
    rows = pd.concat([between, within], ignore_index=True)
    index = pd.MultiIndex.from_product([QUESTIONS, PRIMARY], names=["question", "feature"])
    primary = rows.set_index(["question", "feature"]).reindex(index)
    primary["q"] = holm(primary["p"].fillna(1.0).to_numpy())
    others = [rows[~rows["feature"].isin([*PRIMARY, *NORMS])], *_exploratory(*tables, seed)]
    exploratory = pd.concat(others, ignore_index=True)
    exploratory["q"] = benjamini_hochberg(exploratory["p"].to_numpy(np.float64))
    return {
        "primary": primary.reset_index(),
        "control": _must_be_found(*tables, seed),
        "configurations": by_configuration(*tables),
        "exploratory": exploratory.sort_values(["question", "p", "feature"], ignore_index=True),
    }


def check_plan(models: pd.DataFrame) -> None:
    """UserError: the runs are not those of the plan. A study is analysed once, when all of it is there."""
    sizes = models["configuration"].value_counts()
    if len(sizes) != CONFIGURATIONS or (sizes != SEEDS).any():
        raise UserError(
            f"{len(models)} runs in {len(sizes)} configurations; the plan has {CONFIGURATIONS} configurations of {SEEDS}, "
            "and is analysed once, after all runs are finished"
        )


def by_configuration(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """The partial correlation of each primary feature in each configuration, which the test between runs takes the mean
    of."""
    read = early_values(features, metrics, models, VALIDATION_LOSS, NORMS)
    assert read is not None
    rows = [
        {"configuration": configuration, **values}
        for configuration, values in partial_correlations(read, PRIMARY).items()
    ]
    return pd.DataFrame(rows)


def _exploratory(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
    """Rows of the first study's questions and controls, of each text and size alone, and of the generalisation gap."""
    tables, norm = (features, metrics, models), [WEIGHT_NORM.feature]
    asked = _only(features, *PRIMARY, "h0_total_scaled", MEAN_ROW_NORM)
    variance = _only(features, "weight_variance")
    parts = [
        between_rows("between, given the norm alone", asked, metrics, models, seed=seed, norms=norm),
        between_rows("gap", *tables, seed=seed, metric="generalisation_gap"),
        within_rows("within, given the norm alone", asked, metrics, models, seed),
        within_rows("within", variance, metrics, models, seed, control=WITHIN),
    ]
    text = models["configuration"].str.contains("wikitext").map({True: "WikiText-2", False: "python-docs"})
    size = models["entry"].str.extract(r"^([a-z]+-\d+k)", expand=False)
    for groups in (text, size):
        for name, own in models.groupby(groups):
            inside = asked[asked["model"].isin(own["model"])]
            losses = metrics[metrics["model"].isin(own["model"])]
            parts.append(between_rows(f"between, {name}", inside, losses, own, seed=seed))
            parts.append(within_rows(f"within, {name}", inside, losses, own, seed, control=WITHIN))
    return [part[~part["feature"].isin(NORMS)] for part in parts]


def _only(features: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Some features, with the norms that the test within runs holds fixed."""
    return features[features["feature"].isin([*names, *WITHIN.of_model])]


def _must_be_found(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The loss at half of the training between runs, and within runs the loss with noise that leaves `PLANTED`."""
    later = between_rows("between", later_loss(features, metrics, models, NORMS), metrics, models, seed=seed)
    noisy = pd.concat([_only(features), noisy_loss(metrics, PLANTED, seed)])
    within = within_rows("within", noisy, metrics, models, seed, control=WITHIN)
    rows = pd.concat([later, within], ignore_index=True)
    return rows[~rows["feature"].isin(NORMS)].reset_index(drop=True)


def noisy_loss(metrics: pd.DataFrame, correlation: float, seed: int) -> pd.DataFrame:
    """A feature that is the validation loss with noise: its prewhitened residuals correlate so with those of the loss,
    nearly."""
    rows, losses = [], metrics[metrics["metric"] == VALIDATION_LOSS]
    for index, (model, own) in enumerate(losses.groupby("model")):
        values = own.sort_values("step")["value"].to_numpy()
        new = prewhiten(values)
        size = np.std(values) * np.sqrt((new.values**2).sum() / (new.values.shape[1] - new.n_fitted[0]))
        noise = np.random.default_rng([seed, index]).standard_normal(len(values))
        planted = values + size * np.sqrt(1 / correlation**2 - 1) * noise
        where = {"model": model, "step": np.sort(own["step"]), "source": "weights", "layer": "all"}
        rows.append(pd.DataFrame({**where, "feature": "loss_with_noise", "value": planted}))
    return pd.concat(rows)
