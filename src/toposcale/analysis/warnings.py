"""Warnings: what limits the trust in a number, and what to do about it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.features import weights  # noqa: F401  # registers features on import
from toposcale.features.feature import FROBENIUS_NORM, RELATIVE_CHANGE
from toposcale.features.registry import lookup
from toposcale.homology.distances import KINDS
from toposcale.io import schemas

_DIVERGED = "check the training around these steps; it may have diverged"
_DEGENERATE = "its weights are finite, but zeros or equal rows; leave it out with weights.layers.exclude"


def warning_table(
    features: pd.DataFrame, metrics: pd.DataFrame, warning_rows: Iterable[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """Make the table warnings: values that are not finite, and the warnings that jobs noted.

    warning_rows: model, step (None for the whole model), concerns, warning, remedy; the same at several steps is one row,
    also where each of several missing checkpoints is named in front of the same cause.
    """
    names = ("model", "concerns", "remedy")
    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in [*warning_rows, *_undefined_features(features), *_undefined_metrics(metrics)]:
        grouped.setdefault((*(row[name] for name in names), _cause(row)), []).append(row)
    rows = []
    for (*key, cause), repeats in grouped.items():
        warning = repeats[0]["warning"] if len({row["warning"] for row in repeats}) == 1 else cause
        steps = {int(row["step"]) for row in repeats if row["step"] is not None}
        rows.append(dict(zip(names, key, strict=True)) | {"warning": warning, "steps": _listed(steps)})
    return schemas.TABLES["warnings"].frame(rows)


def _cause(row: Mapping[str, Any]) -> str:
    """Return a warning without the file of a missing checkpoint, which stands in front of the cause."""
    file, _, cause = str(row["warning"]).partition(": ")
    return cause if row.get("is_missing") and "/" in file else str(row["warning"])


def _undefined_features(features: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each matrix whose features are all NaN, and for each feature that is NaN in other layers."""
    undefined = ~np.isfinite(features["value"].to_numpy(dtype=np.float64))
    # A distance from a checkpoint that is NaN is NaN, too: that checkpoint has its own row.
    nan_layers_of: dict[tuple[str, str], list[str]] = {}
    for (model, step, source), bad in features[undefined].groupby(["model", "step", "source"]):
        checkpoint_rows = features[
            (features["model"] == model) & (features["step"] == step) & (features["source"] == source)
        ]
        total, nan_counts = checkpoint_rows.groupby("layer").size(), bad.groupby("layer").size()
        norms = checkpoint_rows[checkpoint_rows["feature"] == FROBENIUS_NORM].set_index("layer")["value"]
        finite = set(norms.index[np.isfinite(norms.to_numpy(dtype=np.float64))])
        # Features that no NaN changes, such as counts of layers, may remain: most is all.
        nan_layers = [
            layer
            for layer in nan_counts.index
            if layer != schemas.ALL_LAYERS and layer not in finite and 2 * nan_counts[layer] > total[layer]
        ]
        nan_layers_before = nan_layers_of.get((model, source), [])
        nan_layers_of[model, source] = nan_layers
        location = {"model": str(model), "step": int(step)}
        for layer in nan_layers:
            warning = {"warning": "its features are NaN: it contains NaN or infinity", "remedy": _DIVERGED}
            yield location | {"concerns": f"{source}: {layer}"} | warning
        other_rows = bad[~bad["layer"].isin([*nan_layers, schemas.ALL_LAYERS] if nan_layers else [])]
        if nan_layers:  # the largest weight of the model, the unit of this feature in every layer, is NaN
            other_rows = other_rows[other_rows["feature"] != "neural_persistence_p2"]
        is_distance = other_rows["feature"].str.endswith((*KINDS, RELATIVE_CHANGE))
        layers_before = [*nan_layers_before, schemas.ALL_LAYERS] if nan_layers_before else []
        other_rows = other_rows[~(is_distance & other_rows["layer"].isin(layers_before))]
        for name, layers in other_rows.groupby("feature")["layer"]:
            feature = lookup(str(name), str(source))
            in_layers = "" if list(layers) == [schemas.ALL_LAYERS] else f" in {', '.join(layers)}"
            remedy = feature.when_nan or (_DEGENERATE if finite.issuperset(layers) else _DIVERGED)
            warning = {"warning": f"NaN or infinite{in_layers}", "remedy": remedy}
            yield location | {"concerns": f"{source}: {feature.title}"} | warning


def _undefined_metrics(metrics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    undefined = ~np.isfinite(metrics["value"].to_numpy(dtype=np.float64))
    for row in metrics[undefined].itertuples():
        warning = {"warning": "NaN or infinite", "remedy": _DIVERGED}
        yield {"model": row.model, "step": row.step, "concerns": f"metric: {row.metric}"} | warning


def _listed(steps: Iterable[int]) -> str:
    ordered = sorted(steps)
    if len(ordered) > 5:
        return f"{ordered[0]} to {ordered[-1]} ({len(ordered)} checkpoints)"
    return ", ".join(map(str, ordered))
