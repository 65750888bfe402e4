"""Features and metrics in the form that the charts read: a column of numbers for each key, with the steps stored once.

A key is (source, layer, feature). A value that is missing or not finite is None, a break in the line.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY
from toposcale.features.names import display_name, unit_of
from toposcale.io.schemas import METRIC_SOURCE

DIGITS = 5
"""Significant digits of a value in a page; the tables have all of them."""


def keys_of(values: pd.DataFrame) -> pd.DataFrame:
    """Return the keys of a table of values, sorted: metrics first, then weights, then the other sources."""
    keys = values[SERIES_KEY].drop_duplicates()
    order = keys["source"].map({METRIC_SOURCE: 0, "weights": 1}).fillna(2)
    return keys.assign(order=order).sort_values(["order", *SERIES_KEY], ignore_index=True)[SERIES_KEY]


def described(keys: pd.DataFrame, *, in_nats: bool = True) -> list[dict[str, str]]:
    """Return source, layer, feature, name and unit of each key; in_nats as of `unit_of`."""
    return [
        {"source": source, "layer": layer, "feature": name}
        | {"name": display_name(source, name), "unit": unit_of(source, name, in_nats=in_nats)}
        for source, layer, name in keys.astype(str).itertuples(index=False)
    ]


def columns(values: pd.DataFrame, keys: pd.DataFrame) -> dict[str, Any]:
    """Return one model's `steps` and `columns`: for the number of each key that it has, {"at", "values"}.

    `at`: indices in `steps`; None if the key has a value at every step.
    """
    step = values["step"].to_numpy()
    numbers = pd.MultiIndex.from_frame(keys).get_indexer(pd.MultiIndex.from_frame(values[SERIES_KEY]))
    order = np.lexsort([step, numbers])
    steps, indices = np.unique(step[order], return_inverse=True)
    kept, starts = rounded(values["value"].to_numpy()[order]), np.flatnonzero(np.diff(numbers[order], prepend=-1))
    packed = {}
    for start, stop in pairwise([*starts, len(order)]):
        whole = stop - start == len(steps)
        at = None if whole else indices[start:stop].tolist()
        packed[str(numbers[order[start]])] = {"at": at, "values": kept[start:stop]}
    return {"steps": steps.tolist(), "columns": packed}


def rounded(values: Iterable[float], digits: int = DIGITS) -> list[float | None]:
    """Round numbers to `digits` significant digits; None for a number that is not finite."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers).tolist()
    return [float(f"{n:.{digits}g}") if ok else None for n, ok in zip(numbers.tolist(), finite, strict=True)]
