"""Ends of small published runs by a power law through their losses: what is known where the joint law refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from toposcale.forecasting.evaluation import expected_end
from toposcale.forecasting.laws.one_run import OneRun
from toposcale.forecasting.laws.power_law import PowerLaw
from toposcale.forecasting.laws.priors import SIZES_KNOWN
from toposcale.forecasting.runs.published_run import PublishedRun
from toposcale.io.errors import NoForecast

SHARES = (0.2, 0.3, 0.5, 0.7)
"""Shares of the steps that are seen."""


def small_size_table(runs: Sequence[PublishedRun]) -> pd.DataFrame:
    """A row for each share: runs of text below the sizes of the joint law, and errors and coverage of the power law."""
    small = [run for run in runs if not run.kind and run.n_parameters < SIZES_KNOWN[0]]
    sizes = [int(run.n_parameters) for run in small]
    forecasts = pd.DataFrame(row for run in small for row in _rows(run))
    by_share = forecasts.groupby("share")
    table = by_share.agg(n_forecasts=("error", "size"), bias=("error", "mean"), coverage=("inside", "mean"))
    table["mean_error"] = forecasts["error"].abs().groupby(forecasts["share"]).mean()
    about = {"lowest_size": min(sizes), "highest_size": max(sizes), "n_runs": len(small)}
    return table.assign(**about, n_sources=len({run.source for run in small})).reset_index()


def _rows(run: PublishedRun) -> Iterator[dict[str, object]]:
    end = expected_end(run)
    for share in SHARES:
        now = run.first(share)
        try:
            [forecast] = OneRun(PowerLaw()).fit(now).predict([now.target()])
        except NoForecast:
            continue
        yield {"share": share, "error": forecast.value - end, "inside": forecast.low <= end <= forecast.high}
