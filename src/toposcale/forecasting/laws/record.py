"""Record of an answer: errors and coverage of the forecasts of published runs like this one."""

import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.amounts import amount
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.files import finite_or_none

RECORD = Path(__file__).with_name("record.csv")
"""Table that `python -m studies.decisions published` writes."""

RECORD_KEY = ("decade", "optimizer", "share")
"""Columns of the table by which runs are alike."""

MIN_FORECASTS = 20
"""Forecasts of runs like this one without which no answer is confident."""


def size_decade(n_parameters: float) -> int:
    """Return the power of ten below a number of parameters."""
    return int(np.floor(np.log10(n_parameters)))


class Record(NamedTuple):
    """Forecasts of published runs with the size, optimizer and progress of a run, made with their source left out.

    decade: power of ten below the number of parameters. share: of the steps that the forecasts had seen. n: forecasts.
    mean_error: in nats. coverage: share of the ends inside the 95% intervals.
    """

    decade: int
    optimizer: str
    share: float
    n: int
    mean_error: float
    coverage: float

    @property
    def suffices(self) -> bool:
        """Return whether there are enough forecasts for a confident answer."""
        return self.n >= MIN_FORECASTS

    def as_dict(self) -> dict[str, str | float | None]:
        """Return the value of `record` in the JSON; None for what no forecast tells."""
        values = self._asdict()
        return values | {name: finite_or_none(values[name]) for name in ("mean_error", "coverage")}

    def __str__(self) -> str:
        sizes = f"{amount(10.0**self.decade)} to {amount(10.0 ** (self.decade + 1))} parameters"
        alike = f"of published runs of {sizes} under {self.optimizer} at {self.share:.0%} of their steps"
        if not self.n:
            return f"no forecasts {alike}"
        return (
            f"{self.n} forecasts {alike}, with their source left out: mean error {self.mean_error:.3f} nats, "
            f"{self.coverage:.0%} inside"
        )


def record_of(run: TrainingRun) -> Record:
    """Return the record of the forecasts of runs like this one; an unknown optimizer is taken for AdamW."""
    rows = _records()
    shares = sorted({row.share for row in rows})
    done = run.progress.step / run.final_step
    share = min(shares, key=lambda share: abs(np.log(share / max(done, 1e-9))))
    key = size_decade(run.n_parameters), run.facts.optimizer or "adamw", share
    alike = [row for row in rows if (row.decade, row.optimizer, row.share) == key]
    return alike[0] if alike else Record(*key, 0, np.nan, np.nan)


@lru_cache
def _records() -> Sequence[Record]:
    """Return the rows of the table."""
    return [
        Record(
            int(row["decade"]),
            row["optimizer"],
            float(row["share"]),
            int(row["n"]),
            float(row["mean_error"]),
            float(row["coverage"]),
        )
        for row in csv.DictReader(RECORD.read_text(encoding="utf-8").splitlines())
    ]
