"""report.html: what was run, the results, and the data behind them, in one page that needs no network."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from toposcale.analysis.answers import POWERLESS, UNTESTED, WHICH_ADD
from toposcale.analysis.controls import NOTHING, questions
from toposcale.analysis.own_run import RunAnswer, run_answers
from toposcale.analysis.series import all_in_nats, whole_model, with_metrics
from toposcale.analysis.verdicts import POOLED
from toposcale.features.feature import GROUPS
from toposcale.features.names import sentence
from toposcale.features.registry import group_of
from toposcale.figures.configurations import by_configuration
from toposcale.figures.gallery import FigureEntry
from toposcale.figures.style import Appearance, model_appearances
from toposcale.io import schemas
from toposcale.pages import templates
from toposcale.pages.cards import cards, layer_table
from toposcale.pages.chart_data import columns, described, keys_of
from toposcale.reproduction.claims import ClaimAnswer

LARGEST_SVG = 500_000
"""Characters; a larger drawing is put in as its PNG."""
ROWS_IN_PAGE = 100
"""Rows of a table that are there without JavaScript; the others are packed: all of the default run's would be 3 MB."""

LISTED = (
    *("verdicts", "tested_features", "sensitivity"),
    *("pooled_correlations", "correlations", "scaling", "transitions", "early_stopping_summary"),
    *("forecasts", "forecast_evaluation", "score_forecasts", "score_evaluation"),
    *("decisions", "decision_evaluation"),
)
"""Tables of the page in their order."""
COLUMNS = {
    "pooled_correlations": (
        *("source", "feature", "metric", "control", "n_runs", "n_configurations"),
        *("spearman", "spearman_lowest", "spearman_highest"),
        *("residual_correlation", "residual_correlation_lowest", "residual_correlation_highest"),
    ),
    "correlations": (
        *("model", "source", "feature", "metric", "n", "n_left_out", "spearman"),
        *("spearman_low", "spearman_high", "spearman_block_low", "spearman_block_high", "reason"),
    ),
}
"""Columns that are shown of the widest tables."""


OVER_RUNS = (
    "pooled_correlations",
    "early_stopping_summary",
    "forecast_evaluation",
    "score_evaluation",
    "decision_evaluation",
    "forecast_comparison",
)
"""Tables and figures of means over runs, which repeat others where there is one."""
USER_SOURCE = "your tables"
"""Source of a metric of `metrics.tables` in the verdicts."""
OF_METRICS = (schemas.METRIC_SOURCE, USER_SOURCE)
LAYERS_CAPTION = "From the first checkpoint to the last; the layers whose norm changed most come first."
ONE_CHECKPOINT_CAPTION = "At the only checkpoint; the largest norms come first."
FACTS_CAPTION = "Nothing is wrong with these."


class Picture(NamedTuple):
    """A figure of the run."""

    name: str
    entry: FigureEntry  # of the registry
    svg: str
    png: bytes
    missing: str = ""  # why it has no data; "" if it has


class Listing(NamedTuple):
    """A table of the run for the page."""

    name: str
    rows: pd.DataFrame
    caption: str = ""
    total: int | None = None  # number of rows in its file, by default that of `rows`


def listing(name: str, rows: pd.DataFrame) -> Listing:
    """Select the rows of a table for the page: whole models, pooled verdicts, and correlations without a control."""
    total = len(rows)
    if "layer" in rows:
        rows = rows[rows["layer"] == schemas.ALL_LAYERS].drop(columns="layer")
    if name == "verdicts":
        rows = one_row_per_feature(rows[rows["model"] == POOLED])
        rows["source"] = rows["source"].replace(schemas.METRIC_SOURCE, USER_SOURCE)
    if name == "correlations":
        rows = rows[rows["control"] == NOTHING]
    caption = f"{sentence(schemas.TABLES[name].row_meaning)}."
    return Listing(name, rows[list(COLUMNS.get(name, rows.columns))], caption, total)


def one_row_per_feature(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each feature and metric, with the answer to every question that was tested, and its numbers."""
    key = ["source", "feature", "metric"]
    wide = verdicts[key].drop_duplicates()
    for control in questions():
        question, numbers = control.question, ["estimate", *(["p", "q"] if control.is_tested else []), "reason"]
        answers = verdicts[verdicts["question"] == question]
        names = {"answer": question} | {name: f"{question}_{name}" for name in numbers}
        if len(answers):
            wide = wide.merge(answers[[*key, *names]].rename(columns=names), on=key, how="left")
            wide[question] = wide[question].fillna("not asked")
    return wide


def report(
    *,
    config_text: str,
    models: pd.DataFrame,
    summary: pd.DataFrame,
    claims: pd.DataFrame | None,
    warnings: Listing,
    advice: pd.DataFrame,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    pictures: Sequence[Picture],
    listings: Sequence[Listing],
    comparison: Listing | None,
    runtimes: pd.DataFrame,
    **words: Any,
) -> str:
    """Return the page as text, from tables of the run; `words` are its name and the results of `pages.provenance`.

    claims, comparison: None if the run reproduces no source. training: the rows of the training logs, with their model.
    """
    # A run that repeats the studies of others, or has no weights, leads with its answers; one's own with its layers.
    is_own = claims is None and bool((features["source"] == "weights").any())
    answers = _answers(summary, is_own=is_own, has_metrics=len(metrics) > 0)
    could_find = any(answer["question"].startswith(WHICH_ADD) for answer in answers)
    of_several = OVER_RUNS if len(models) == 1 else ()
    hidden = (*of_several, *(["verdict"] if is_own and not could_find else []))
    figures = [
        _figure(picture, len(models)) for picture in pictures if not picture.missing and picture.name not in hidden
    ]
    first = next((figure for figure in figures if figure["name"] == ("layer_heat_map" if is_own else "overview")), None)
    others = [figure for figure in figures if figure != first]
    by_setting = by_configuration({"models": models, "features": features, "metrics": metrics})
    appearances = model_appearances(by_setting["models"])
    layers, several = layer_table(models, features), features["step"].nunique() > 1
    layers_caption = LAYERS_CAPTION if several else ONE_CHECKPOINT_CAPTION
    is_warning = warnings.rows["remedy"] != ""  # a fact without a remedy is none
    facts_left_out = warnings.rows[~is_warning & (not is_own)].drop(columns="remedy")
    tables = [table(one) for one in listings if has_numbers(one.rows) and one.name not in of_several]
    groups = {row["group"] for one in tables for row in one["rows"]}
    return templates.render(
        "report.html",
        is_own=is_own,
        several=several,
        layers=table(Listing("layers", layers, layers_caption)),
        cards=cards(models, metrics, features, warnings.rows, advice),
        first_answers=first_answers(models, metrics, features, training) if is_own else {},
        figure_names={figure["name"] for figure in figures},
        answers=answers,
        claims=None if claims is None else table(claim_listing(claims)),
        counts="" if claims is None else ", ".join(f"{(claims['answer'] == one).sum()} {one}" for one in ClaimAnswer),
        needs=[control for control in questions() if control.needs],
        left_out={} if is_own else {picture.entry.title: picture.missing for picture in pictures if picture.missing},
        first=first,
        figures=others,
        categories=list(dict.fromkeys(figure["subject"] for figure in others)),
        listings=tables,
        in_page=ROWS_IN_PAGE,
        groups=[group for group in GROUPS if group in groups],
        comparison=None if comparison is None or comparison.rows["ours"].isna().all() else table(comparison),
        warnings=table(warnings._replace(rows=warnings.rows[is_warning], total=None)),
        facts_left_out=table(Listing("left_out", facts_left_out, FACTS_CAPTION)),
        runtimes=table(Listing("runtimes", runtimes)),
        models=[{"name": name, "color": appearance.color} for name, appearance in appearances.items()],
        columns=templates.embedded("columns", chart_data(appearances, by_setting)),
        config_text=config_text,
        config_link="data:text/yaml;base64," + base64.b64encode(config_text.encode()).decode(),
        **words,
    )


def first_answers(
    models: pd.DataFrame, metrics: pd.DataFrame, features: pd.DataFrame, training: pd.DataFrame
) -> dict[str, list[RunAnswer]]:
    """Return what one wants to know first of each model that has begun, the largest model first."""
    answers = {}
    for row in models.sort_values(["n_parameters", "model"], ascending=[False, True]).to_dict("records"):
        tables = (metrics, features, training)
        measured, described, log = (table[table["model"] == row["model"]] for table in tables)
        if len(measured) or len(described):
            answers[row["model"]] = run_answers(measured, described, log)
    return answers


def _answers(summary: pd.DataFrame, *, is_own: bool, has_metrics: bool) -> list[dict[Any, Any]]:
    """Return the answers in their order; of one's own run those that were tested, if it has metrics."""
    answers = summary.sort_values("position").to_dict("records")
    if not is_own:
        return answers
    return [answer for answer in answers if has_metrics and answer["verdict"] not in (UNTESTED, POWERLESS)]


def _figure(picture: Picture, n_models: int) -> dict[str, Any]:
    """Return a figure for the template."""
    return {
        **picture.entry._asdict(),
        "caption": picture.entry.full_caption(n_models),
        "name": picture.name,
        "drawing": drawing(picture),
        "ratio": ratio(picture.svg),
    }


def has_numbers(rows: pd.DataFrame) -> bool:
    """Return whether a table has a row with numbers, not only with the reason why there are none."""
    return len(rows) > 0 and not ("reason" in rows and bool(rows["reason"].fillna("").ne("").all()))


def claim_listing(claims: pd.DataFrame) -> Listing:
    """Return the claims as the report shows them: source with name, and test with the reason why it was not made."""
    names, untested = claims["source"] + ", " + claims["claim"], ". Not tested: " + claims["reason"]
    decides = claims["test"] + untested.where(claims["reason"] != "", "")
    rows = claims[["statement", "answer", "numbers"]].assign(decides=decides)
    rows.insert(0, "claim", names)
    return Listing("claims", rows)


def chart_data(appearances: Mapping[str, Appearance], tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the data of the charts over training: every whole-model feature and every metric, by model."""
    values = with_metrics(whole_model(tables["features"]), tables["metrics"])
    keys = keys_of(values)
    models = [
        {"name": name, "color": appearance.color, **columns(values[values["model"] == name], keys)}
        for name, appearance in appearances.items()
    ]
    return {"keys": described(keys, in_nats=all_in_nats(tables["models"])), "models": models}


def ratio(svg: str) -> str:
    """Return width / height of a drawing in CSS: the page reserves the space until it is loaded."""
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()  # type: ignore[union-attr]
    return f"{width} / {height}"


def drawing(picture: Picture) -> Markup:
    """Return the SVG as an element of the page, or the PNG if the SVG is too large."""
    if len(picture.svg) > LARGEST_SVG:
        data = base64.b64encode(picture.png).decode()
        return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, picture.entry.title)
    svg = picture.svg[picture.svg.index("<svg") :]
    # A line that is marked with its model can be hidden. Other names become the figure's own: one page holds them all.
    svg = re.sub(r'\bid="model=([^"]+)"', r'data-model="\1"', svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    start = Markup('<svg role="img" aria-label="{}" style="aspect-ratio:{}"').format(picture.entry.title, ratio(svg))
    for side in ("height", "width"):
        svg = re.sub(rf'(<svg\b[^>]*?) {side}="[^"]+"', r"\1", svg, count=1)
    return start + Markup(svg[len("<svg") :])


def table(listing: Listing) -> dict[str, Any]:
    """Return a table for the template: cells as (text, sort key), rows marked with their model."""
    rows = listing.rows
    # A long sentence that every row repeats is said once.
    constant = [name for name in rows.columns if len(rows) > 1 and rows[name].nunique(dropna=False) == 1]
    repeated = {name: rows[name].iloc[0] for name in constant if len(str(rows[name].iloc[0])) > 50}
    rows = rows.drop(columns=list(repeated))
    columns = [(name, pd.api.types.is_numeric_dtype(rows[name])) for name in rows.columns]
    return {
        "name": listing.name,
        "title": listing.name.replace("_", " "),
        "caption": listing.caption,
        "same": list(repeated.items()),
        "columns": [(str(name).replace("_", " "), numeric) for name, numeric in columns],
        "rows": [
            {
                "model": row.get("model") or None,
                "group": _group(row) or None,
                "cells": [cell(row[name]) for name, _ in columns],
            }
            for row in rows.to_dict("records")
        ],
        "total": len(rows) if listing.total is None else listing.total,
    }


def _group(row: Mapping[Any, Any]) -> str:
    """Return the group of the feature of a row; "" for a row of a metric, or without a feature."""
    feature = row.get("feature")
    return group_of(feature) if isinstance(feature, str) and feature and row.get("source") not in OF_METRICS else ""


def cell(value: Any) -> tuple[str, str]:
    """Return a value as text, and its sort key."""
    if isinstance(value, bool | np.bool_):
        return ("yes", "1") if value else ("no", "0")
    if isinstance(value, str):
        return value, value
    if pd.isna(value):
        return "", ""
    return number(float(value)), repr(float(value))


def number(value: float) -> str:
    """Format a number: integers in full, others to three significant digits."""
    if value.is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
