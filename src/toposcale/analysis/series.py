"""Rows of the long tables: those of the whole model, of the last checkpoint, and the metric that answers are about."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import pandas as pd

from toposcale.forecasting.runs.metrics import METRICS
from toposcale.io.schemas import ALL_LAYERS, METRIC_SOURCE

SERIES_KEY = ["source", "layer", "feature"]
PAIR_KEY = [*SERIES_KEY, "metric"]
_NEEDED = {
    "features": ["model", "step", *SERIES_KEY, "value"],
    "metrics": ["model", "step", "metric", "value"],
    "models": ["model"],
}
NOT_IN_NATS = "not known to be a language model with a loss in nats per token (tokens_per_step says that it is)"
"""Reason why a model has no forecast."""
MIN_FOR_CORRELATION = 4
"""Fewer common checkpoints than this give no correlation."""


def headline_metric(present: Iterable[str], chosen: Sequence[str] = ()) -> str | None:
    """Return the metric of the answers: validation loss, perplexity, a chosen task (a glob), training loss; else None."""
    names = sorted(set(present))
    tasks = [name for glob in chosen if glob != "*" for name in names if fnmatchcase(name.split(".")[0], glob)]
    preferred = ["validation_loss", "perplexity", *tasks, "training_loss"]
    return next((name for name in preferred if name in names), None)


def configurations_of(models: pd.DataFrame) -> dict[str, str]:
    """Return the configuration of each model: its column `configuration`, else `entry`, else the model."""
    configurations = models["model"].astype(str)
    for column in ("entry", "configuration"):
        if column in models:
            facts = models[column].fillna("").astype(str)
            configurations = facts.where(facts != "", configurations)
    return dict(zip(models["model"], configurations, strict=True))


def largest_family(models: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the family with the most sizes, of several the first; all where no family is told."""
    if "family" not in models:
        return models
    sizes = models.groupby("family", sort=True)["n_parameters"].nunique()
    return models if sizes.empty else models[models["family"] == sizes.idxmax()]


def all_in_nats(models: pd.DataFrame) -> bool:
    """Return whether the losses of all models are known to be in nats per token; yes where nothing is said."""
    return "in_nats" not in models or bool(models["in_nats"].fillna(True).all())


def require(**tables: pd.DataFrame) -> None:
    """Raise a ValueError that names the first column that features, metrics or models lacks."""
    for name, table in tables.items():
        for column in _NEEDED[name]:
            if column not in table:
                raise ValueError(f"{name}: there is no column {column!r}; needed are {', '.join(_NEEDED[name])}")


def whole_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that describe the whole model."""
    return table[table["layer"] == ALL_LAYERS]


def with_metrics(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return features, with metrics appended as features of source "metric" and layer "all"."""
    as_features = metrics.rename(columns={"metric": "feature"}).assign(source=METRIC_SOURCE, layer=ALL_LAYERS)
    columns = ["model", *SERIES_KEY, "step", "value"]
    return pd.concat([features[columns], as_features[columns]], ignore_index=True)


def user_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of the user's tables as features: neither a loss, nor of a training, nor a score of a task."""
    names = [str(name) for name in metrics["metric"].unique()]
    chosen = [name for name in names if name not in METRICS and "loss" not in name and "." not in name]
    rows = metrics[metrics["metric"].isin(chosen)].rename(columns={"metric": "feature"})
    return rows.assign(source=METRIC_SOURCE, layer=ALL_LAYERS)


def final_values(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return every feature and metric (`with_metrics`) at the last step at which its model has it."""
    rows = with_metrics(features, metrics)
    last = rows.sort_values("step", kind="stable").groupby(["model", *SERIES_KEY], sort=True).tail(1)
    return last.sort_values(["model", *SERIES_KEY]).reset_index(drop=True)
