"""Findings of the search among features, and their confirmation on runs with fresh seeds.

On fresh runs the findings alone are tested, and corrected by Holm (1979).
"""

import numpy as np
import pandas as pd

from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.questions import LEVEL, NOT_TESTED, YES
from toposcale.analysis.series import PAIR_KEY, SERIES_KEY, configurations_of, headline_metric, whole_model
from toposcale.analysis.verdicts import pooled_verdicts, verdicts_on_features
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io import schemas
from toposcale.statistics.multiple_testing import holm

CONFIRMED, NOT_CONFIRMED = "confirmed", "not confirmed"
HOW = "make confirm CONFIG=..."
"""The command that trains the fresh runs."""
FRESH_RESAMPLES = 20
"""Resamples of the fresh correlations, whose intervals nobody reads."""
_KEY = ["question", *PAIR_KEY]


def findings_tables(
    verdicts: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, tasks: list[str]
) -> dict[str, pd.DataFrame]:
    """Make the table findings: tested questions that a whole-model feature passed over all runs, on the headline metric."""
    pooled = pooled_verdicts(verdicts, headline_metric(metrics["metric"], tasks))
    tested = pooled[pooled["p"].notna()]
    rows = tested.assign(
        n_searched=tested.groupby("question")["p"].transform("size"),
        n_seeds=int(pd.Series(configurations_of(models)).value_counts().max()) if len(models) else 0,
    )[tested["answer"] == YES]
    rows["direction"] = np.where(rows["estimate"] > 0, "positive", "negative")
    table = schemas.TABLES["findings"]
    return {"findings": table.frame(rows.reindex(columns=table.names))}


def confirmation_tables(
    findings: pd.DataFrame,
    fresh_features: pd.DataFrame,
    fresh_metrics: pd.DataFrame,
    fresh_models: pd.DataFrame,
    *,
    seed: int,
    confirm: dict[str, str],
) -> dict[str, pd.DataFrame]:
    """Make the table confirmation: each finding with its estimate and p on fresh runs (empty if there are none yet).

    Confirmed: p after Holm is at most `LEVEL`, and the sign is that of the finding. confirm: `run`, the name of the
    fresh run; `obstacle`, why the models cannot be trained again, else "".
    """
    rows = findings.rename(columns={"estimate": "searched_estimate", "q": "searched_q"}).drop(columns="p")
    rows["fresh_run"] = confirm["run"]
    if findings.empty or fresh_features.empty:
        why = confirm["obstacle"] or f"confirm it: {HOW}"
        rows = rows.assign(estimate=np.nan, p=np.nan, p_holm=np.nan, answer=NOT_TESTED, reason=why)
        return {"confirmation": schemas.TABLES["confirmation"].frame(rows)}
    [metric] = set(findings["metric"])
    controls = {name for control in CONTROLS.values() for name in (*control.of_model, *control.of_layer)}
    is_control = (fresh_features["source"] == WEIGHT_NORM.source) & fresh_features["feature"].isin(controls)
    finding_keys = pd.MultiIndex.from_frame(findings[SERIES_KEY])
    is_found = pd.MultiIndex.from_frame(fresh_features[SERIES_KEY]).isin(finding_keys)
    # The features that were found and nothing else: p is corrected for these alone.
    chosen_features = whole_model(fresh_features[is_found | is_control])
    losses = fresh_metrics[fresh_metrics["metric"] == metric]
    tables = verdicts_on_features(chosen_features, losses, fresh_models, metric, seed=seed, resamples=FRESH_RESAMPLES)
    fresh = pooled_verdicts(tables["verdicts"], metric)
    rows = rows.merge(fresh[[*_KEY, "estimate", "p", "reason"]], on=_KEY, how="left", validate="one_to_one")
    rows["p_holm"] = holm(rows["p"])
    same = np.sign(rows["estimate"]) == np.sign(rows["searched_estimate"])
    answers = np.where((rows["p_holm"] <= LEVEL) & same, CONFIRMED, NOT_CONFIRMED)
    rows["answer"] = np.where(rows["p"].notna(), answers, NOT_TESTED)
    untested = rows["reason"].fillna("this feature and metric were not measured")
    rows["reason"] = np.where(rows["p"].notna(), "", f"not tested in the run {confirm['run']}: " + untested)
    return {"confirmation": schemas.TABLES["confirmation"].frame(rows)}
