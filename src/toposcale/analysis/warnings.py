"""Warnings: what limits the trust in a number, and what to do about it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.features import weights  # noqa: F401  # registers features on import
from toposcale.features.feature import FROBENIUS_NORM
from toposcale.features.registry import lookup
from toposcale.homology.distances import KINDS
from toposcale.io import schemas

_DIVERGED = "check the training around these steps; it may have diverged"
_DEGENERATE = "its weights are finite, but zeros or equal rows; leave it out with weights.layers.exclude"


def warning_table(
    features: pd.DataFrame, metrics: pd.DataFrame, warning_rows: Iterable[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """Make the table warnings: values that are not finite, and what was noted while the tables were made.

    warning_rows: model, step (None for the whole model), concerns, warning, remedy; the same at several steps is one row,
    also where each of several missing checkpoints is named in front of the same cause.
    """
    names = ("model", "concerns", "remedy")
    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in [*warning_rows, *_undefined_features(features), *_undefined_metrics(metrics)]:
        grouped.setdefault((*(row[name] for name in names), _cause(row)), []).append(row)
    rows = []
    for (*key, cause), same in grouped.items():
        warning = same[0]["warning"] if len({row["warning"] for row in same}) == 1 else cause
        steps = {int(row["step"]) for row in same if row["step"] is not None}
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
    whole_before: dict[tuple[str, str], list[str]] = {}
    for (model, step, source), bad in features[undefined].groupby(["model", "step", "source"]):
        measured = features[(features["model"] == model) & (features["step"] == step) & (features["source"] == source)]
        total, lost = measured.groupby("layer").size(), bad.groupby("layer").size()
        norms = measured[measured["feature"] == FROBENIUS_NORM].set_index("layer")["value"]
        finite = set(norms.index[np.isfinite(norms.to_numpy(dtype=np.float64))])
        # Features that no NaN changes, such as counts of layers, may remain: most is all.
        whole = [
            layer
            for layer in lost.index
            if layer != schemas.ALL_LAYERS and layer not in finite and 2 * lost[layer] > total[layer]
        ]
        before = whole_before.get((model, source), [])
        whole_before[model, source] = whole
        where = {"model": str(model), "step": int(step)}
        for layer in whole:
            why = {"warning": "its features are NaN: it contains NaN or infinity", "remedy": _DIVERGED}
            yield where | {"concerns": f"{source}: {layer}"} | why
        rest = bad[~bad["layer"].isin([*whole, schemas.ALL_LAYERS] if whole else [])]
        if whole:  # the largest weight of the model, the unit of this feature in every layer, is NaN
            rest = rest[rest["feature"] != "neural_persistence_p2"]
        moved = rest["feature"].str.endswith(KINDS)
        rest = rest[~(moved & rest["layer"].isin([*before, schemas.ALL_LAYERS] if before else []))]
        for name, layers in rest.groupby("feature")["layer"]:
            feature = lookup(str(name), str(source))
            in_layers = "" if list(layers) == [schemas.ALL_LAYERS] else f" in {', '.join(layers)}"
            remedy = feature.when_nan or (_DEGENERATE if finite.issuperset(layers) else _DIVERGED)
            why = {"warning": f"NaN or infinite{in_layers}", "remedy": remedy}
            yield where | {"concerns": f"{source}: {feature.title}"} | why


def _undefined_metrics(metrics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    undefined = ~np.isfinite(metrics["value"].to_numpy(dtype=np.float64))
    for row in metrics[undefined].itertuples():
        why = {"warning": "NaN or infinite", "remedy": _DIVERGED}
        yield {"model": row.model, "step": row.step, "concerns": f"metric: {row.metric}"} | why


def _listed(steps: Iterable[int]) -> str:
    ordered = sorted(steps)
    if len(ordered) > 5:
        return f"{ordered[0]} to {ordered[-1]} ({len(ordered)} checkpoints)"
    return ", ".join(map(str, ordered))
