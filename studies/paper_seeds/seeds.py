"""What eight seeds of the paper's five sizes tell: findings of a seed, whether they come back, and false-positive rates.

The plan, written before the seeds were trained (two of them, 42 and 43, were looked at before, by other code). Tested are
the features of the weights of the whole model that vary in every run, on the validation loss, given the norm, and given
norm and spectrum; one test over the five sizes of a seed.

1. A finding of a seed has q of at most 0.05 among the features (Benjamini and Hochberg). It comes back in another seed if
   its p there, corrected by Holm over the findings of the first seed, is at most 0.05, with the same sign. Told is the
   share over all ordered pairs of seeds.
2. The false-positive rate: features and norms of one seed against the losses of another one, 8 x 7 = 56 pairs, where
nothing is to be
   found. Five sizes of one seed see the same batches in the same order, in features and losses alike. Told are the share
   of tests with p of at most 0.05 and of pairs with any q of at most 0.05, over single runs and over five sizes together.
   The tests keep it if the share of tests is not above 7%, and that of pairs not above 10%, by more than two
   standard errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from studies.nulls.configurations import Configuration
from studies.nulls.crossed import CrossedResiduals, rates
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.series import whole_model
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.errors import UserError
from toposcale.statistics.coefficients import Floats, is_constant
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm
from toposcale.statistics.prewhitening import sign_flip_p_value

LEVEL = 0.05
GIVEN = ("weight_norm", "weight_norm_and_spectrum")
FACTS = ["model", "configuration", "seed", "n_parameters", "warmup_steps", "final_step"]


def seed_table(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What is committed of a seed: a row for each checkpoint of its models, with facts, validation loss and features.

    UserError: a model of the seed has no loss at its end.
    """
    chosen = models[models["seed"] == seed][FACTS]
    losses = metrics[(metrics["metric"] == VALIDATION_LOSS) & metrics["model"].isin(chosen["model"])]
    losses = losses.rename(columns={"value": VALIDATION_LOSS})[["model", "step", VALIDATION_LOSS]]
    ends = losses.groupby("model")["step"].max().reindex(chosen["model"])
    if not np.array_equal(ends.to_numpy(float), chosen["final_step"].to_numpy(float)):
        raise UserError(f"seed {seed}: not all of its models are finished")
    whole = whole_model(features)
    whole = whole[(whole["source"] == "weights") & whole["model"].isin(chosen["model"])]
    wide = whole.pivot(index=["model", "step"], columns="feature", values="value").reset_index()
    return chosen.merge(losses, on="model").merge(wide, on=["model", "step"], validate="one_to_one")


def configurations_of_seeds(tables: Sequence[pd.DataFrame]) -> list[Configuration]:
    """A configuration for each size, with the same seeds in the same order, from the tables of seeds."""
    rows = pd.concat(tables, ignore_index=True)
    rows["model"] = rows["configuration"] + ".seed" + rows["seed"].astype(str)
    names = [name for name in rows if name not in (*FACTS, "step", VALIDATION_LOSS)]
    configurations = []
    for size, runs in rows.sort_values(["seed", "step"]).groupby("configuration"):
        features = runs.melt(["model", "step"], names, "feature", "value").dropna(subset=["value"])
        features = features.assign(source="weights", layer="all")
        metrics = runs[["model", "step"]].assign(metric=VALIDATION_LOSS, value=runs[VALIDATION_LOSS])
        models = runs[FACTS].drop_duplicates("model")
        of_features, of_metrics = (
            {str(run): part for run, part in table.groupby("model", sort=False)} for table in (features, metrics)
        )
        configurations.append(
            Configuration(str(size), of_features, of_metrics, (features, metrics, models), VALIDATION_LOSS)
        )
    return configurations


class CrossedSeeds:
    """The tests given a control, of the features of each seed against the losses of each seed, size by size and together.

    p, correlation (R, R, F): five sizes together, and the mean over sizes; p_alone (K, R, R, F): each size; products
    (R, R, F, m) and statistics (R, R, F): sums over the K sizes.
    """

    def __init__(self, configurations: Sequence[Configuration], control: str) -> None:
        covariates = CONTROLS[control]
        names = sorted(
            set.intersection(*(set(configuration.series) for configuration in configurations)) - {*covariates.of_model}
        )
        varying = [
            name
            for name in names
            if not any(is_constant(configuration.series[name]).any() for configuration in configurations)
        ]
        tests = [CrossedResiduals(configuration, varying, covariates) for configuration in configurations]
        products = np.nan_to_num(np.array([test.products for test in tests]))
        statistics = np.nan_to_num(np.array([test.statistics for test in tests]))
        self.features, self.seeds = varying, list(configurations[0].models["seed"])
        self.p_alone: Floats = sign_flip_p_value(statistics, products)
        self.products: Floats = products.sum(axis=0)
        self.statistics: Floats = statistics.sum(axis=0)
        self.p: Floats = sign_flip_p_value(self.statistics, self.products)
        self.correlation: Floats = products.sum(axis=-1).mean(axis=0)

    def findings(self) -> pd.DataFrame:
        """A row for each seed and feature with q of at most `LEVEL`: seed, feature, estimate, p, q."""
        rows = []
        for index, seed in enumerate(self.seeds):
            p, estimate = self.p[index, index], self.correlation[index, index]
            q = benjamini_hochberg(p)
            rows += [
                {"seed": seed, "feature": self.features[k], "estimate": estimate[k], "p": p[k], "q": q[k]}
                for k in np.flatnonzero(q <= LEVEL)
            ]
        return pd.DataFrame(rows, columns=["seed", "feature", "estimate", "p", "q"])

    def coming_back(self) -> pd.DataFrame:
        """A row for each finding and other seed: the finding, the other seed, its estimate, p, p_holm, and whether it is
        confirmed there."""
        rows = []
        for seed, findings in self.findings().groupby("seed"):
            indices = [self.features.index(name) for name in findings["feature"]]
            for index, other in enumerate(self.seeds):
                if other == seed:
                    continue
                p, estimate = self.p[index, index][indices], self.correlation[index, index][indices]
                again = findings.assign(other=other, other_estimate=estimate, other_p=p, other_p_holm=holm(p))
                same = np.sign(estimate) == np.sign(findings["estimate"])
                rows.append(again.assign(confirmed=(again["other_p_holm"] <= LEVEL) & same))
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()

    def false_positive_rates(self) -> pd.DataFrame:
        """A row for single runs and one for all sizes together: shares of tests and of pairs of seeds in which something
        was found that cannot be there, with their standard errors over seeds."""
        pairs = np.array(np.nonzero(~np.eye(len(self.seeds), dtype=bool))).T
        rows = []
        for test, p in (("one run", self.p_alone), ("all sizes together", self.p[None])):
            crossed = p[:, pairs[:, 0], pairs[:, 1]]
            any_q = np.array([[(benjamini_hochberg(one) <= LEVEL).any() for one in size] for size in crossed])
            shares = {"tests": (crossed <= LEVEL).mean(axis=(0, 2)), "pairs": any_q.mean(axis=0)}
            row: dict[str, object] = {"test": test, "pairs": len(pairs), "features": len(self.features)}
            for name, share in shares.items():
                mean, error = rates(share[:, None], pairs, len(self.seeds))
                row |= {f"found_in_{name}": mean[0], f"error_of_{name}": error[0]}
            rows.append(row)
        return pd.DataFrame(rows)


def seed_tables(tables: Sequence[pd.DataFrame]) -> Mapping[str, pd.DataFrame]:
    """`false_positive_rates`, `findings` and `coming_back` of all seeds, a column `control` first.

    UserError: fewer than three seeds, which leave no seed to leave out.
    """
    if len(tables) < 3:
        raise UserError(f"{len(tables)} seeds are there; the analysis needs three")
    configurations = configurations_of_seeds(tables)
    parts: dict[str, list[pd.DataFrame]] = {"false_positive_rates": [], "findings": [], "coming_back": []}
    for control in GIVEN:
        if not all({*CONTROLS[control].of_model} <= set(configuration.series) for configuration in configurations):
            continue
        crossed = CrossedSeeds(configurations, control)
        for name, part in parts.items():
            table = getattr(crossed, name)()
            table.insert(0, "control", control)
            part.append(table)
    return {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
