"""The prior of the joint law without each source: a run is judged with a prior that was not learnt from its source."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.priors import Gaussian, Prior
from toposcale.forecasting.runs.training_run import TrainingRun

PRIORS = Path(__file__).parent / "priors.csv"
"""Table of the priors, which `python -m studies.decisions priors` writes: a row for each source that is left out."""

NONE = "none"
"""Row of the prior that is learnt from all sources."""


def as_row(prior: Prior) -> dict[str, float]:
    """Return every number of a prior by name: of a distribution its mean, and its standard deviation as NAME_sd."""
    row: dict[str, float] = {}
    for name, value in prior._asdict().items():
        row |= {name: value.mean, f"{name}_sd": value.sd} if isinstance(value, Gaussian) else {name: value}
    return row


def priors(rows: Iterable[Mapping[str, str | float]] | None = None) -> dict[str, Prior]:
    """Return the prior for each source, learnt without it, and for `NONE`; by default those of `PRIORS`."""
    if rows is None:
        rows = list(csv.DictReader(PRIORS.read_text(encoding="utf-8").splitlines()))
    return {
        str(row["left_out"]): _of_row({name: float(row[name]) for name in row if name != "left_out"}) for row in rows
    }


def _of_row(row: Mapping[str, float]) -> Prior:
    """Return the prior of a row."""
    numbers = {
        name: Gaussian(row[name], row[f"{name}_sd"]) if f"{name}_sd" in row else row[name] for name in Prior._fields
    }
    return Prior(**numbers)  # type: ignore[arg-type]  # distributions have a standard deviation


class LearntJoint(Joint):
    """Joint law whose prior was learnt without the source that is left out.

    Parameters
    ----------
    by_source : mapping of str to Prior, optional
        Prior without each source; that of `NONE` serves sources from which nothing was learnt.
    """

    def __init__(self, by_source: Mapping[str, Prior] | None = None) -> None:
        self.by_source = priors() if by_source is None else by_source
        super().__init__(self.by_source[NONE])

    def learn(self, runs: Sequence[TrainingRun], left_out: str) -> Self:
        """Take the prior that was learnt without a source."""
        self.prior = self.by_source.get(left_out, self.by_source[NONE])
        return self
