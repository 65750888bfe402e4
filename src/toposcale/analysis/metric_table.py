"""The table of `test_metric`: files and data frames as rows of runs, and what each column is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import MIN_FOR_CORRELATION
from toposcale.features.feature import WEIGHT_NORM
from toposcale.forecasting.logs import loss_curves, names
from toposcale.forecasting.logs.table_files import columns_of, read_any
from toposcale.forecasting.runs.learning_rate_schedule import longest_warmup
from toposcale.forecasting.runs.metrics import PERPLEXITY, TRAINING_LOSS, VALIDATION_LOSS
from toposcale.io.errors import UserError, as_user_error, counted, did_you_mean, listed
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import pearson, spearman

_AXIS = re.compile(r"(?:.*(?<!batch)[_/])?(tokens|samples|sequences|examples|epoch|batch)(?:_seen|_idx|_\(\w+\))?")
"""Names of columns that count something else than steps."""

STEP = "step"
LEARNING_RATE = "learning_rate"
NORM = "weight_norm"
GIVEN = (STEP, LEARNING_RATE, NORM)
"""Covariates by default, where the table has them."""
ALIASES = {LEARNING_RATE: names.RATES, NORM: (NORM, WEIGHT_NORM.feature, "param_norm", "params_norm", "norm")}
ASSUMED_WARMUP = 0.05
"""Share of a run that is taken for its warm-up where the table has no learning rate; the tests begin at twice of it."""
EARLIER = 2 / 3
"""Share of the time until the metric is read, between runs, at which the loss is held fixed, too."""
COPY = 1.0 - 1e-9
"""Correlation from which on a metric is a copy of the loss, or of a covariate."""
COPY_LAGS = range(-3, 4)
"""Rows by which a copy may be shifted."""
MAX_ROWS = 5000
"""Rows that are tested at most: they take 15 s, and a correlation of .05 is found in them."""
_TABLES = {".csv", ".tsv", ".parquet", ".feather"}
_JSON = {".json", ".jsonl", ".ndjson"}
_OF_A_RUN = re.compile(r"(.+) - ([^-]+)$")  # a column of a W&B export

Source = str | Path | pd.DataFrame | Mapping[str, Any]


@dataclass(frozen=True)
class MetricTable:
    """Table of a test: its rows, and the roles of its columns."""

    rows: pd.DataFrame  # run, step and numbers, by run and step
    metrics: tuple[str, ...]
    target: str  # the loss
    given: tuple[str, ...]  # covariates besides the step
    settings: Mapping[str, str]  # of each run; empty if they are unknown
    warmups: Mapping[str, float]  # steps of warm-up of each run
    notes: tuple[str, ...]  # clauses on what was left out or assumed

    @property
    def given_words(self) -> str:
        """Names of what is held fixed."""
        return ", ".join([STEP, *self.given])

    def untestable(self, metric: str, *, by_run: bool = True) -> str:
        """Return why a metric says nothing by what it is: constant, a covariate, the loss, or a copy of it; "" if it may.

        by_run: a metric has to vary within runs.
        """
        if metric == self.target:
            return "it is the loss itself"
        if metric in self.given:
            return "it is among the covariates"
        rows = self.rows.dropna(subset=[metric, self.target])
        if rows.empty:
            return f"no step has both a number of it and of {self.target}"
        if not (rows.groupby("run" if by_run else np.zeros(len(rows)))[metric].nunique() > 1).any():
            return "it is constant"
        for other in (self.target, *self.given):
            lags = {lag for lag in COPY_LAGS if _is_copy(self.rows, metric, other, lag)}
            if lags:
                lag = min(lags, key=abs)
                shifted = f", shifted by {counted(abs(lag), 'row')}" if lag else ""
                return f"it is a copy of {other}{shifted}, up to its scale"
        return ""

    def leading(self, lead: int) -> pd.DataFrame:
        """Return the rows with the loss of `lead` checkpoints later, by the commonest distance of checkpoints of a run."""
        if lead == 0:
            return self.rows
        parts = []
        for _, of_run in self.rows.dropna(subset=[self.target]).groupby("run"):
            loss = of_run.set_index(STEP)[self.target]
            distances = np.diff(loss.index.to_numpy(np.float64))
            distance = pd.Series(distances).mode().iloc[0] if len(distances) else 1.0
            parts.append(of_run.assign(**{self.target: loss.reindex(loss.index + lead * distance).to_numpy()}))
        return pd.concat(parts) if parts else self.rows.iloc[:0]

    def values_of_runs(self, share: float) -> pd.DataFrame:
        """Return a row per run: loss at its end, `now` and `earlier`, covariates and metrics at a share; without a gap."""
        columns, rows = [*self.given, *self.metrics], {}
        for run, of_run in self.rows.groupby("run"):
            values = of_run.set_index(STEP)[list(dict.fromkeys([self.target, *columns]))].ffill()
            earlier, now = (values[values.index <= part * share * values.index[-1] + 1e-6] for part in (EARLIER, 1))
            if len(earlier):
                losses = {"end": values, "now": now, "earlier": earlier}
                row = {name: table[self.target].iloc[-1] for name, table in losses.items()}
                rows[str(run)] = row | {f"at {name}": now[name].iloc[-1] for name in columns}
        return pd.DataFrame.from_dict(rows, orient="index")


def long_rows(rows: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Return columns of the table as rows of model, step, name and value."""
    chosen = rows.rename(columns={"run": "model"})[["model", STEP, *dict.fromkeys(columns)]]
    return chosen.melt(["model", STEP], var_name=name, value_name="value").dropna(subset=["value"])


def _is_copy(rows: pd.DataFrame, metric: str, other: str, lag: int) -> bool:
    """Return whether in every run a metric is a linear function of a column, or of one that does not drift a monotonic."""
    for _, of_run in rows.groupby("run"):
        x, y = of_run[metric].to_numpy(np.float64), of_run[other].shift(lag).to_numpy(np.float64)
        x, y = x[np.isfinite(x + y)], y[np.isfinite(x + y)]
        if len(x) < MIN_FOR_CORRELATION:
            return False
        is_drift = len({*np.sign(np.diff(y))}) == 1
        correlations = [pearson(x, y)[0, 0], 0.0 if lag or is_drift else spearman(x, y)[0, 0]]
        if not np.nanmax(np.abs([0.0, *correlations])) > COPY:
            return False
    return True


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
    if warmup_steps is not None and not 0 <= warmup_steps < np.inf:
        raise UserError(f"--warmup-steps {warmup_steps:g}: not a number of steps, 0 or more")
    rows = _joined([table] if isinstance(table, str | Path | pd.DataFrame | Mapping) else list(table), run)
    numeric = [name for name in rows.columns.drop(["run", STEP]) if pd.api.types.is_numeric_dtype(rows[name])]
    loss = _target(target, rows, numeric)
    covariates = _covariates(given, rows, [name for name in numeric if name != loss])
    for name in metrics:
        _require_numbers(name, rows, "--metric")
    if given is not None and loss in given:
        raise UserError(f"--given {loss}: it is the loss whose residuals are followed; hold others fixed")
    if settings is not None:
        _require(settings, rows.columns, "--settings")
    roles = (loss, *covariates, settings)
    chosen = tuple(dict.fromkeys(metrics)) or tuple(
        name for name in numeric if name not in roles and not _is_context(name)
    )
    if not chosen:
        raise UserError(f"no metric but {listed([STEP, loss, *covariates], 6)}; the table has {listed(numeric, 10)}")
    used = list(dict.fromkeys([*chosen, loss, *covariates]))
    rate = next((name for name in ALIASES[LEARNING_RATE] if name in numeric), None)
    kept = rows[["run", STEP, *dict.fromkeys(used + [name for name in (rate, settings) if name])]].copy()
    kept[used] = kept[used].replace([np.inf, -np.inf], np.nan)
    broken = {name: int((kept[name].isna() & rows[name].notna()).sum()) for name in used}
    notes = [f"{name}: {counted(count, 'value')} not finite, left out" for name, count in broken.items() if count]
    merged, repeated = _one_row_a_step(kept)
    merged, thinned = _thinned(merged, loss, chosen)
    by_run = {str(name): of_run for name, of_run in merged.groupby("run")}
    labels = (
        {} if settings is None else {name: str(of_run[settings].bfill().iloc[0]) for name, of_run in by_run.items()}
    )
    if warmup_steps is None:
        logged = {name: _warmup(of_run[STEP], of_run[rate] if rate else None) for name, of_run in by_run.items()}
    else:
        logged = dict.fromkeys(by_run, warmup_steps)
    assumed = {name: ASSUMED_WARMUP * of_run[STEP].max() for name, of_run in by_run.items() if logged[name] is None}
    if assumed:
        repeated.append(f"the warm-up is not known: {ASSUMED_WARMUP:.0%} of the steps is assumed (--warmup-steps)")
    warmups = {name: steps for name, steps in logged.items() if steps is not None} | assumed
    return MetricTable(merged, chosen, loss, covariates, labels, warmups, (*notes, *repeated, *thinned))


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


def _joined(sources: list[Source], run: str | None) -> pd.DataFrame:
    """Return all sources in one table with the columns run and step; one without a loss joins the one that has it."""
    tables = [
        _of_one_source(_read(Path(source)) if isinstance(source, str | Path) else pd.DataFrame(source), run, name)
        for source, name in zip(sources, _names(sources), strict=True)
    ]
    has_loss = [any(names.loss_name(str(name)) for name in table.columns) for table in tables]
    if len(tables) != 2 or has_loss.count(True) != 1:
        return pd.concat(tables, ignore_index=True)
    # Features of checkpoints, and the log of their training.
    log, features = tables if has_loss[0] else tables[::-1]
    if features["run"].nunique() == 1 == log["run"].nunique():
        features = features.assign(run=log["run"].iloc[0])
    shared = [name for name in features.columns if name in log and name not in ("run", STEP)]
    return features.drop(columns=shared).merge(log, on=["run", STEP], how="outer")


def _names(sources: list[Source]) -> list[str]:
    """Return a name for each source: the stem of its file, with its folder where two have the same."""
    paths = [Path(source) if isinstance(source, str | Path) else Path(f"table{i}") for i, source in enumerate(sources)]
    stems = [path.name.split(".")[0] for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _of_one_source(table: pd.DataFrame, run: str | None, name: str) -> pd.DataFrame:
    """Return a table with the columns run and step: of a W&B export, of values in long form, or of one row a step."""
    table = table.rename(columns=lambda column: str(column).strip())
    quantity = "feature" if "feature" in table else "metric"
    if {quantity, "value"} <= set(table.columns):
        whole = table[table["layer"] == ALL_LAYERS] if "layer" in table else table
        index = [key for key in ("run", "model", STEP) if key in table]
        table = whole.pivot_table(index=index, columns=quantity, values="value", aggfunc="last").reset_index()
    step = max(
        (column for column in table.columns if names.plain_name(column) in names.COUNTERS and " - " not in column),
        key=lambda column: names.COUNTERS[names.plain_name(column)],
        default=None,
    )
    if step is None or step == run:
        raise UserError(
            f"{name}: no column of the step; it has {listed([column for column in table.columns if column != run], 10)}"
        )
    if not table.columns.is_unique:
        raise UserError(
            f"{name}: two columns are called {table.columns[table.columns.duplicated()][0]}; rename or remove one"
        )
    if table.empty:
        raise UserError(f"{name}: no rows")
    _check_numbers(step, table[step], f"{name}:")
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
            "name the column that tells them apart (--run), if it is of one, sort it by step"
        )
    return table


def _target(target: str | None, rows: pd.DataFrame, numeric: list[str]) -> str:
    """Return the column of the loss: the one that is named, else a validation loss, else a training loss."""
    if target is not None:
        _require_numbers(target, rows, "--target")
        return target
    losses = {name: kind for name in numeric if (kind := names.loss_name(name)) and not kind.is_part}
    for split in (names.VALIDATION, names.TEST, names.TRAINING):
        if columns := [name for name, kind in losses.items() if kind.split is split]:
            usual = [name for name in (VALIDATION_LOSS, "val_loss", "loss", TRAINING_LOSS) if name in columns]
            if len(columns) > 1 and not usual:
                raise UserError(f"which loss is meant, {' or '.join(columns)}? Name one (--target)")
            return (usual or columns)[0]
    for name in rows.columns:
        if names.loss_name(name):
            _require_numbers(name, rows, "--target")
    raise UserError(f"no column of a loss; name it (--target): the table has {listed(numeric, 10) or 'no numbers'}")


def _covariates(given: Sequence[str] | None, rows: pd.DataFrame, numeric: list[str]) -> tuple[str, ...]:
    """Return the columns that are held fixed besides the step, which the trend always holds fixed."""
    columns = []
    for name in GIVEN if given is None else given:
        column = name if name in numeric else next((alias for alias in ALIASES.get(name, ()) if alias in numeric), None)
        if column is None and given is not None and name != STEP:
            _require_numbers(name, rows, "--given")
        columns += [column] if column else []
    return tuple(dict.fromkeys(columns))


def _require(name: str, columns: Iterable[str], option: str) -> None:
    """Raise UserError if a column is not there."""
    columns = list(columns)
    if name not in columns:
        near = did_you_mean(name, columns) or f"; the table has {listed(columns, 10)}"
        raise UserError(f"{option} {name}: no such column{near}")


def _require_numbers(name: str, rows: pd.DataFrame, option: str) -> None:
    """Raise UserError if a column is not there, holds no numbers, or is the step, which has its own role."""
    if name == STEP:
        raise UserError(f"{option} {name}: the step is held fixed in every test, so it is neither a metric nor a loss")
    _require(name, rows.columns.drop("run"), option)
    _check_numbers(name, rows[name], option)


def _check_numbers(name: str, values: pd.Series, option: str) -> None:
    """Raise UserError with the first value that is not a number, if a column holds one."""
    if not pd.api.types.is_numeric_dtype(values):
        values = values.dropna()
        others = values[pd.to_numeric(values, errors="coerce").isna()]
        holds = repr((others if len(others) else values).iloc[0]) if len(values) else "nothing"
        raise UserError(f"{option} {name}: the column holds {holds}, where numbers are needed")


def _is_context(name: str) -> bool:
    """Return whether a column is no metric by its name: a loss, a step, tokens, a rate, an epoch, a seed, a size."""
    plain = names.plain_name(name)
    context = (*names.RATES, *names.LAST_STEP, *names.OF_THE_BATCH, names.PARAMETERS, PERPLEXITY, "seed", "_runtime")
    return (
        names.is_step_or_loss(name)
        or plain in (*context, "_timestamp", "final_step")
        or bool(_AXIS.fullmatch(plain) or names.PERPLEXITY.search(plain) or names.BITS.search(plain))
    )


def _one_row_a_step(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows by run and step, the last value of each column where a step has several rows, and a note on these."""
    merged = rows.groupby(["run", STEP], sort=True, as_index=False).last()
    values = rows.drop(columns=["run", STEP]).notna().groupby([rows["run"], rows[STEP]]).sum()
    repeated = int((values > 1).any(axis=1).sum())
    return merged, [f"{counted(repeated, 'step')} logged again: the last value counts"] if repeated else []


def _thinned(rows: pd.DataFrame, loss: str, metrics: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return at most `MAX_ROWS` rows with the loss and a metric, every k-th of each run, and a note on that."""
    testable = rows[rows[loss].notna() & rows[[*metrics]].notna().any(axis=1)]
    every = -(-len(testable) // MAX_ROWS)
    if every <= 1:
        return rows, []
    thinned = testable[testable.groupby("run").cumcount() % every == 0]
    return thinned, [f"one row in {every:,} is tested, of {len(testable):,} with the loss and a metric"]


def _warmup(steps: pd.Series, rates: pd.Series | None) -> float | None:
    """Return the warm-up of a run as its learning rates show it; None: they do not."""
    end = None if rates is None else longest_warmup(steps, rates)
    # Where the rate only falls, the table shows no warm-up.
    return None if end is None else 0.0 if end == steps.iloc[0] else float(end)
