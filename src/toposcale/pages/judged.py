"""What the charts of the power of the tests and of the decision draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.feature_answers import BEYOND
from toposcale.analysis.series import headline_metric
from toposcale.analysis.verdicts import YES, family_of
from toposcale.features.names import metric_name, series_name
from toposcale.figures.decisions import MOST_PANELS, usable_candidates


def power_charts(
    power: pd.DataFrame, sensitivity: pd.DataFrame, verdicts: pd.DataFrame, tasks: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A chart for each question that was tested: the share of simulated features that the test finds, by the strength of
    their relation, with the features that were tested and the positive control."""
    metric = headline_metric(verdicts["metric"], tasks)
    family = family_of(verdicts, metric)
    charts = []
    for row in sensitivity[sensitivity["found"] != "not tested"].to_dict("records"):
        question = row["question"]
        curve = power[power["question"] == question].sort_values("measured")
        tested = family[family[f"{question}_p"].notna()]
        features = [
            {
                "name": series_name(one["source"], one["feature"]),
                "at": abs(one[f"{question}_innovation"]),
                "found": one[question] == YES,
            }
            for one in tested.to_dict("records")
        ]
        charts.append(
            {
                "title": f"Beyond {BEYOND[question]}: {int(row['n_tested'])} features, {int(row['n_runs'])} runs",
                "metric": metric_name(str(metric)),
                "strength": curve["measured"].tolist(),
                "found": (100 * curve["found"]).tolist(),
                "features": sorted(features, key=lambda one: one["at"]),
                "control": row["control_correlation"],
                "detectable": row["detectable"] if np.isfinite(row["detectable"]) else None,
            }
        )
    return charts


def decision_charts(candidates: pd.DataFrame) -> list[dict[str, Any]]:
    """A chart for each run with something to decide, live runs alone where there are any: the loss of each candidate.

    One candidate alone is no choice, and no chart.
    """
    usable, when = usable_candidates(candidates)
    names = ["candidate", "compute", "loss", "loss_low", "loss_high", "probability", "at_stake"]
    charts = []
    for (model, fraction), rows in usable.groupby(["model", "fraction"], sort=True):
        if len(rows) < 2:
            continue
        known = rows.sort_values("loss", ascending=False)[names].astype(object)
        charts.append(
            {
                "title": f"{model} at {fraction:.0%}{when}",
                "candidates": known.where(known.notna(), None).to_dict("records"),
            }
        )
    return charts[:MOST_PANELS]
