"""The published runs as the studies read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from studies.decisions import PUBLISHED_RUNS
from toposcale.datasets import load_published_runs
from toposcale.forecasting.runs.published_run import PublishedRun

JUDGED_ONLY = ("cs336-zli12", "engram-wsl", "gpt3-digitised", "svg-chirantan")
"""Sources that came after the prior had been learnt. They judge, and teach nothing: the digitised curves leave a ramp of
the batch out, and their log alpha is 1.4 above that of the others."""


def read(folder: Path = PUBLISHED_RUNS) -> Sequence[PublishedRun]:
    """The runs that the law was made with in view, or every run of another folder."""
    return load_published_runs(tags="seen") if folder == PUBLISHED_RUNS else load_published_runs(folder=folder)


def is_learnt_from(run: PublishedRun) -> bool:
    """Whether the prior is learnt from it: pretraining of a language model of a usual shape, on few epochs."""
    return not run.kind and run.is_usual and run.source not in JUDGED_ONLY
