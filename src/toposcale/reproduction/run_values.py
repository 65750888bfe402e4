"""Values of a run that the claims of the sources are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import MIN_FOR_CORRELATION, whole_model
from toposcale.features.registry import lookup
from toposcale.landscape.plane_names import PLANES, most_informative
from toposcale.statistics.coefficients import spearman

LOSSES = ("training_loss", "validation_loss")
PERPLEXITIES = ("perplexity", "validation_loss", "training_loss")


@dataclass(frozen=True)
class RunValues:
    """Tables of a run by name. Values by model are Series of finite values, in ascending order of size."""

    tables: Mapping[str, pd.DataFrame]

    def rows(self, table: str, **conditions: Any) -> pd.DataFrame:
        """Return the rows of whole models that meet the conditions, values by column."""
        rows = self.tables[table]
        rows = whole_model(rows) if "layer" in rows else rows
        for name, value in conditions.items():
            rows = rows[rows[name] == value]
        return rows

    @property
    def sizes(self) -> pd.Series:
        """Numbers of parameters by model, ascending."""
        return self.tables["models"].sort_values(["n_parameters", "model"]).set_index("model")["n_parameters"]

    def by_size(self, values: Any) -> pd.Series:
        """Return finite values by model, in ascending order of size."""
        values = pd.Series(values, dtype=float)
        return values.reindex([model for model in self.sizes.index if model in values.index]).dropna()

    def correlations(self, feature: str, source: str = "weights") -> pd.Series:
        """Return Spearman's correlation with the first metric available: a loss, or the perplexity for embeddings."""
        plain = self.rows("correlations", control=NOTHING, source=source, feature=feature)
        metrics = LOSSES if source == "weights" else PERPLEXITIES
        metric = next((name for name in metrics if (plain["metric"] == name).any()), "")
        return self.by_size(plain[plain["metric"] == metric].set_index("model")["spearman"])

    def final_losses(self) -> pd.Series:
        """Return the last validation losses."""
        losses = self.rows("metrics", metric=LOSSES[1]).dropna(subset=["value"]).sort_values("step")
        return self.by_size(losses.groupby("model")["value"].last())

    def series(self, feature: str, source: str = "weights", least: int = 1) -> dict[str, pd.Series]:
        """Return the series (finite values by step) of each model that has at least `least` of them."""
        rows = self.rows("features", source=source, feature=feature).sort_values("step")
        by_model = rows[np.isfinite(rows["value"])].groupby("model")
        return {str(model): part.set_index("step")["value"] for model, part in by_model if len(part) >= least}

    def with_step(self, feature: str) -> pd.Series:
        """Return Spearman's correlation of a feature of the weights with the step."""
        by_model = self.series(feature, least=MIN_FOR_CORRELATION).items()
        return self.by_size({model: spearman(values.index, values).item() for model, values in by_model})

    def surfaces(self, statistic: str, least: int) -> dict[str, pd.Series]:
        """Return the series by model of a statistic of the loss surface, on the plane that best separates checkpoints."""
        names = self.rows("features", source="landscape")["feature"].unique()
        features = [lookup(name, "landscape") for name in sorted(names, reverse=True)]
        planes = {
            feature.plane: feature.name
            for feature in features
            if feature.statistic == statistic and feature.plane_kind in PLANES and not feature.suffix
        }
        return self.series(planes[most_informative(planes)], "landscape", least) if planes else {}

    def transitions(self, feature: str, column: str, source: str = "weights") -> pd.Series:
        """Return a column of the table transitions."""
        return self.by_size(self.rows("transitions", source=source, feature=feature).set_index("model")[column])

    def law(self, feature: str, source: str = "weights") -> pd.Series | None:
        """Return the power law of a feature in size; None if its exponent has no interval."""
        laws = self.rows("scaling", law="power_law", source=source, feature=feature).dropna(subset=["exponent_low"])
        return None if laws.empty else laws.iloc[0]
