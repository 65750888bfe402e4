"""The tables that are computed from the published runs, each with a digest of the runs that it was computed from.

A test compares it with that of the committed runs: a table that is older than its inputs is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from studies import small_tables
from toposcale.forecasting.runs.published_run import PublishedRun

LEDGER = "computed_from.csv"
DIGITS = 6
RATES = 100
"""Learning rates of a run that its digest reads."""


def write(rows: pd.DataFrame, folder: Path, name: str, runs: Sequence[PublishedRun], path: Path | None = None) -> None:
    """Write a table as `name`.csv, or elsewhere, and the digest of the runs that it was computed from to the ledger of the
    folder."""
    path = path or folder / f"{name}.csv"
    small_tables.write(rows, path, DIGITS)
    row = pd.DataFrame([{"table": name, "digest": digest(runs)}])
    others = pd.read_csv(folder / LEDGER).query("table != @name") if (folder / LEDGER).exists() else row.iloc[:0]
    pd.concat([others, row]).sort_values("table").to_csv(folder / LEDGER, index=False)
    print(path)


def digest(runs: Sequence[PublishedRun]) -> str:
    """Return a digest of the curves, schedules and facts of runs in the order of their names."""
    total = hashlib.sha256()
    for run in sorted(runs, key=lambda run: run.model):
        total.update(repr((run.model, run.source, run.family, run.kind, run.final_step)).encode())
        numbers = (run.n_parameters, run.tokens_per_step, run.facts.unique_tokens)
        rates = run.schedule.rates[:: max(run.final_step // RATES, 1)]
        for values in (numbers, run.steps, run.losses, np.round(rates, 6)):
            total.update(np.asarray(values, np.float64).tobytes())
    return total.hexdigest()[:16]


def outdated(folder: Path, runs: Sequence[PublishedRun]) -> list[str]:
    """Return the tables of the ledger that were computed from other runs than these."""
    ledger, now = pd.read_csv(folder / LEDGER), digest(runs)
    return ledger.loc[ledger["digest"] != now, "table"].tolist()
