"""The table of `test_metric`: files and data frames as rows of runs, and what each column is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from toposcale.features.feature import WEIGHT_NORM
from toposcale.forecasting.logs import loss_curves, names
from toposcale.forecasting.logs.table_files import columns_of, read_any
from toposcale.forecasting.runs.metrics import PERPLEXITY, TRAINING_LOSS, VALIDATION_LOSS
from toposcale.forecasting.runs.warmup import longest_warmup
from toposcale.io.errors import UserError, as_user_error, counted, listed
from toposcale.io.schemas import ALL_LAYERS

STEP, LEARNING_RATE, NORM = "step", "learning_rate", "weight_norm"
GIVEN = (STEP, LEARNING_RATE, NORM)
"""Covariates by default, where the table has them."""
ALIASES = {LEARNING_RATE: names.RATES, NORM: (NORM, WEIGHT_NORM.feature, "param_norm", "params_norm", "norm")}
ASSUMED_WARMUP = 0.05
"""Share of a run that is taken for its warm-up where the table has no learning rate; the tests begin at twice of it."""
_TABLES, _JSON = {".csv", ".tsv", ".parquet", ".feather"}, {".json", ".jsonl", ".ndjson"}
_OF_A_RUN = re.compile(r"(.+) - ([^-]+)$")  # a column of a W&B export

Source = str | Path | pd.DataFrame | Mapping[str, Any]


@dataclass(frozen=True)
class MetricTable:
    """Rows (run, step, numbers) by run and step, and the roles of the columns; given: covariates besides the step.

    settings: of each run, empty if they are unknown. warmups: steps of each run. notes: what was left out or assumed.
    """

    rows: pd.DataFrame
    metrics: tuple[str, ...]
    target: str
    given: tuple[str, ...]
    settings: Mapping[str, str]
    warmups: Mapping[str, float]
    notes: tuple[str, ...]


def metric_table(
    table: Source | Sequence[Source],
    *,
    metrics: Sequence[str],
    target: str | None,
    given: Sequence[str] | None,
    run: str | None,
    settings: str | None,
    warmup_steps: float | None,
) -> MetricTable:
    """Return the table of one or more sources, with its columns in their roles; UserError where one is not there."""
    rows, notes = _joined([table] if isinstance(table, str | Path | pd.DataFrame | Mapping) else list(table), run)
    numeric = [name for name in rows.columns.drop(["run", STEP]) if pd.api.types.is_numeric_dtype(rows[name])]
    loss = _target(target, numeric)
    covariates = _covariates(given, numeric)
    for name in metrics:
        _require(name, numeric, "--metric")
    if settings is not None:
        _require(settings, list(rows.columns), "--settings")
    chosen = tuple(metrics) or tuple(
        name for name in numeric if name not in (loss, *covariates, settings) and not _is_context(name)
    )
    if not chosen:
        raise UserError(f"no metric beside {listed([STEP, loss, *covariates], 6)}; the table has {listed(numeric, 10)}")
    used = list(dict.fromkeys([*chosen, loss, *covariates]))
    rates = next((name for name in ALIASES[LEARNING_RATE] if name in numeric), None)
    kept = rows[["run", STEP, *dict.fromkeys(used + [name for name in (rates, settings) if name])]].copy()
    finite = kept[used].replace([np.inf, -np.inf], np.nan)
    for name in used:
        broken = int((finite[name].isna() & rows[name].notna()).sum())
        if broken:
            notes.append(f"{name}: {counted(broken, 'value')} not finite, left out")
    kept[used] = finite
    merged, merge_notes = _one_row_a_step(kept)
    settings_of_runs: Any = {} if settings is None else merged.groupby("run")[settings].first()
    labels = {str(name): str(label) for name, label in settings_of_runs.items()}
    warmups, warmup_notes = _warmups(merged, rates, warmup_steps)
    return MetricTable(
        merged, chosen, loss, covariates, labels, warmups, (*dict.fromkeys([*notes, *merge_notes, *warmup_notes]),)
    )


def _read(path: Path) -> pd.DataFrame:
    """Read the columns of a file; a log that is no table has those that the loss curve reads."""
    suffixes = set(path.suffixes[-2:])
    if suffixes & _TABLES:
        return pd.DataFrame(columns_of(read_any(path)[0], path))
    if suffixes & _JSON:
        with as_user_error(path, "not readable as JSON", (ValueError, TypeError)):
            text = path.read_text()
            lines = [json.loads(line) for line in text.splitlines() if line.strip()] if ".json" not in suffixes else []
            rows = lines or json.loads(text)
            return pd.DataFrame(rows.get("log_history", rows) if isinstance(rows, dict) else rows)
    return pd.DataFrame(dict(loss_curves.read(path).columns))


def _joined(sources: list[Source], run: str | None) -> tuple[pd.DataFrame, list[str]]:
    """Return all sources in one table with the columns run and step; one without a loss joins the one that has it."""
    tables = [
        _of_one_source(pd.DataFrame(source) if not isinstance(source, str | Path) else _read(Path(source)), run, name)
        for source, name in zip(sources, _names(sources), strict=True)
    ]
    losses = [any(names.loss_name(str(name)) for name in table.columns) for table in tables]
    if len(tables) == 2 and losses.count(True) == 1:  # features of checkpoints beside the log of their training
        log, features = sorted(tables, key=lambda table: losses[[table is one for one in tables].index(True)])[::-1]
        shared = [name for name in features.columns if name in log and name not in ("run", STEP)]
        if features["run"].nunique() == 1 == log["run"].nunique():
            features = features.assign(run=log["run"].iloc[0])
        return features.drop(columns=shared).merge(log, on=["run", STEP], how="outer"), []
    return pd.concat(tables, ignore_index=True), []


def _names(sources: list[Source]) -> list[str]:
    """Return a name for each source: the stem of its file, with its folder where two have the same."""
    paths = [Path(source) if isinstance(source, str | Path) else Path(f"table{i}") for i, source in enumerate(sources)]
    stems = [path.name.split(".")[0] for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _of_one_source(table: pd.DataFrame, run: str | None, name: str) -> pd.DataFrame:
    """Return a table with the columns run and step: of a W&B export, of features in long form, or of one row a step."""
    table = table.rename(columns=str)
    if {"feature", "value"} <= set(table.columns):
        whole = table[table["layer"] == ALL_LAYERS] if "layer" in table else table
        index = [key for key in ("run", "model", STEP) if key in table]
        table = whole.pivot_table(index=index, columns="feature", values="value", aggfunc="last").reset_index()
    step = max(
        (column for column in table.columns if names.plain_name(column) in names.COUNTERS and " - " not in column),
        key=lambda column: names.COUNTERS[names.plain_name(column)],
        default=None,
    )
    if step is None:
        raise UserError(f"{name}: no column of the step; it has {listed(table.columns, 10)}")
    of_runs = {column: match for column in table.columns if (match := _OF_A_RUN.match(column))}
    kept = {column: match for column, match in of_runs.items() if not match[2].endswith(("__MIN", "__MAX", "_step"))}
    if kept and run is None:
        parts = []
        for label in dict.fromkeys(match[1] for match in kept.values()):
            columns = {column: match[2] for column, match in kept.items() if match[1] == label}
            part = table[[step, *columns]].dropna(subset=list(columns), how="all")
            parts.append(part.rename(columns={**columns, step: STEP}).assign(run=label))
        return pd.concat(parts, ignore_index=True)
    if run is not None:
        _require(run, list(table.columns), "--run")
    label = run or next((column for column in ("run", "model") if column in table), None)
    runs = table[label].astype(str) if label else pd.Series(name, index=table.index)
    table = table.drop(columns=[label] if label else []).rename(columns={step: STEP}).assign(run=runs)
    table = table.dropna(subset=[STEP])
    back = table.groupby("run")[STEP].diff() < 0
    if back.any() and label is None:
        raise UserError(
            f"{name}: the step goes back at row {int(np.flatnonzero(back)[0]) + 1:,}; if the table holds several runs, "
            "name the column that tells them apart (--run)"
        )
    return table


def _target(target: str | None, numeric: list[str]) -> str:
    """Return the column of the loss: the one that is named, else a validation loss, else a training loss."""
    if target is not None:
        _require(target, numeric, "--target")
        return target
    losses = {name: kind for name in numeric if (kind := names.loss_name(name)) and not kind.is_part}
    for split in (names.VALIDATION, names.TEST, names.TRAINING):
        if columns := [name for name, kind in losses.items() if kind.split is split]:
            usual = [name for name in (VALIDATION_LOSS, "val_loss", "loss", TRAINING_LOSS) if name in columns]
            if len(columns) > 1 and not usual:
                raise UserError(f"which loss is meant, {' or '.join(columns)}? Name one (--target)")
            return (usual or columns)[0]
    raise UserError(f"no column of a loss; name it (--target): the table has {listed(numeric, 10)}")


def _covariates(given: Sequence[str] | None, numeric: list[str]) -> tuple[str, ...]:
    """Return the columns that are held fixed besides the step, which the trend always holds fixed."""
    columns = []
    for name in GIVEN if given is None else given:
        column = name if name in numeric else next((alias for alias in ALIASES.get(name, ()) if alias in numeric), None)
        if column is None and given is not None and name != STEP:
            _require(name, numeric, "--given")
        columns += [column] if column else []
    return tuple(dict.fromkeys(columns))


def _require(name: str, columns: Iterable[str], option: str) -> None:
    """Raise UserError if a column is not there."""
    columns = list(columns)
    if name not in columns:
        near = get_close_matches(name, columns, 1)
        raise UserError(
            f"{option} {name}: no such column of numbers"
            + (f"; did you mean {near[0]}?" if near else f"; the table has {listed(columns, 10)}")
        )


def _is_context(name: str) -> bool:
    """Return whether a column is no metric by its name: a loss, a step, tokens, a rate, an epoch, a seed, a size."""
    plain = names.plain_name(name)
    context = (*names.RATES, *names.LAST_STEP, *names.OF_THE_BATCH, names.PARAMETERS, PERPLEXITY, "seed", "_runtime")
    return (
        names.is_step_or_loss(name)
        or plain in (*context, "_timestamp", "final_step")
        or bool(names.AXIS.fullmatch(plain) or names.PERPLEXITY.search(plain) or names.BITS.search(plain))
    )


def _one_row_a_step(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows by run and step, the last value of each column where a step has several rows."""
    merged = rows.groupby(["run", STEP], sort=True, as_index=False).last()
    values = rows.drop(columns=["run", STEP]).notna().groupby([rows["run"], rows[STEP]]).sum()
    repeated = int((values > 1).any(axis=1).sum())
    return merged, [f"{counted(repeated, 'step')} logged again: the last value counts"] if repeated else []


def _warmups(rows: pd.DataFrame, rates: str | None, steps: float | None) -> tuple[dict[str, float], list[str]]:
    """Return the warm-up of each run: as stated, as its learning rate shows it, else an assumed share of its steps."""
    if steps is not None:
        return dict.fromkeys(rows["run"], steps), []
    warmups, assumed = {}, False
    for run, of_run in rows.groupby("run"):
        shown = None if rates is None else longest_warmup(of_run[STEP], of_run[rates])
        first = float(of_run[STEP].iloc[0])
        is_start = shown is not None and shown == first  # the rate only falls: no warm-up in the table
        warmups[str(run)] = 0.0 if is_start else ASSUMED_WARMUP * of_run[STEP].max() if shown is None else float(shown)
        assumed |= shown is None
    return warmups, [
        f"the warm-up is not known: {ASSUMED_WARMUP:.0%} of the steps is assumed (--warmup-steps)"
    ] * assumed
