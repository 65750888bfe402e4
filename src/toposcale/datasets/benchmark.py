"""The benchmark: every law judged on the published runs, on all cores, with the results of earlier calls kept on disk."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from inspect import getsourcefile
from multiprocessing import get_context
from pathlib import Path
from pickle import PicklingError
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy

from toposcale import forecasting
from toposcale.datasets.published_runs import PublishedRuns
from toposcale.forecasting.decision.picture import finish, new_figure
from toposcale.forecasting.evaluation import (
    Judged,
    Known,
    Subjects,
    Task,
    by_source,
    decisions_of_point,
    forecasts_of_run,
    judged_of,
    learnt_laws,
    regret_by_source,
    subjects_of,
    summary,
    tasks_of,
)
from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.law import Estimator
from toposcale.forecasting.results import Result
from toposcale.io.errors import UserError
from toposcale.io.files import atomic_write, finite_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ["n", "refused", "mean_error", "bias", "coverage", "score"]
"""Columns of `by_source` that a comparison shows."""

HEADINGS = {"n": "forecasts", "mean_error": "error"}
"""Headings of the printed table that are not the name of the column."""

LOSS_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Ticks of a logarithmic axis of errors, nats per token."""

FORMATS = {"n": "{:,.0f}", "refused": "{:.0%}", "bias": "{:+.3f}", "coverage": "{:.0%}", "regret": "{:.4f}"}
"""Formats of the numbers; those of the other columns have three decimals."""

KEY = ["run", "share"]
"""Columns that name a forecast."""


class Setting(NamedTuple):
    """Setting of a benchmark, the same for all laws: runs, shares that are seen, and what is known of the family."""

    runs: PublishedRuns
    at: tuple[float, ...]
    known: Known


class Job(NamedTuple):
    """A task by its place among the subjects, which every process has, and the law."""

    law: Estimator
    place: int
    is_forecast: bool


def cache_folder() -> Path:
    """Return the folder of the results of earlier calls."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toposcale" / "benchmark"


def digest_of(name: str, law: Estimator, setting: Setting) -> str:
    """Return the digest of a law and of what it is judged on: its name, code and parameters, the data, the packages."""
    folder = Path(forecasting.__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".csv"))
    if source := getsourcefile(type(law)):
        files.append(Path(source))
    digest = sha256(f"{name} {setting.at} {setting.known} {np.__version__} {scipy.__version__}".encode())
    digest.update(setting.runs.digest.encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def constants_digest(constants: ModuleType = priors) -> str:
    """Return the digest of the constants of the joint law: those of a module by name and value."""
    values = {name: value for name, value in vars(constants).items() if name.isupper() and not callable(value)}
    return sha256(repr(sorted(values.items())).encode()).hexdigest()[:16]


def judge_all(
    laws: Mapping[str, Callable[[], Estimator]],
    setting: Setting,
    *,
    processes: int = 1,
    cache: Path | None = None,
    only_cached: Sequence[str] = (),
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> dict[str, Judged]:
    """Return what each law forecasts and decides; laws of `only_cached` are left out unless they are on disk.

    progress: is called with the name of a law, the tasks that are done, and all of its tasks.
    """
    judged: dict[str, Judged] = {}
    made = {name: make() for name, make in laws.items()}
    files = {name: cache / digest_of(name, law, setting) for name, law in made.items()} if cache else {}
    for name, file in files.items():
        if (kept := _read(file)) is not None:
            judged[name] = kept
    missing = [name for name in laws if name not in judged and name not in only_cached]
    if missing:
        subjects = subjects_of(setting.runs, setting.at, setting.known)
        with _pool(setting, subjects, processes) as mapped:
            for name in missing:
                judged[name] = _judge(name, made[name], setting, subjects, mapped, progress)
                if cache:
                    _write(judged[name], files[name])
    return {name: judged[name] for name in laws if name in judged}


Mapped = Callable[[list[Job]], Iterator[list[dict[str, Any]]]]


def _judge(
    name: str, law: Estimator, setting: Setting, subjects: Subjects, mapped: Mapped, progress: Callable[..., None]
) -> Judged:
    """Return what a law forecasts and decides."""
    forecasts, decisions = tasks_of(learnt_laws(law, setting.runs), subjects, setting.at)
    jobs = [Job(task.law, place, is_forecast) for tasks, is_forecast in ((forecasts, True), (decisions, False))
            for place, task in enumerate(tasks)]  # fmt: skip
    parts = []
    try:
        for rows in mapped(jobs):
            parts.append(rows)
            progress(name, len(parts), len(jobs))
    except (BrokenProcessPool, PicklingError) as error:
        raise UserError(
            f"{name}: a process failed ({error}); --processes 1 judges the law in one and shows why"
        ) from error
    return judged_of(parts[: len(forecasts)], parts[len(forecasts) :])


_STATE: dict[str, Any] = {}
"""Setting and subjects of a process of the pool."""


def _initialise(setting: Setting) -> None:
    """Prepare a process: what it is asked about is made once."""
    _STATE.update(setting=setting, subjects=subjects_of(setting.runs, setting.at, setting.known))


def _rows_of(job: Job) -> list[dict[str, Any]]:
    """Return the rows of a job."""
    subjects: Subjects = _STATE["subjects"]
    if job.is_forecast:
        return forecasts_of_run(Task(job.law, *subjects.runs[job.place], _STATE["setting"].at))
    return decisions_of_point(Task(job.law, *subjects.points[job.place], ()))


@contextmanager
def _pool(setting: Setting, subjects: Subjects, processes: int) -> Iterator[Mapped]:
    """Yield a function that does jobs, in this process or shared by several with one BLAS thread each."""
    if processes <= 1:
        _STATE.update(setting=setting, subjects=subjects)
        yield lambda jobs: map(_rows_of, jobs)
        return
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # processes that are spawned read it when they import numpy
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _initialise, (setting,)) as pool:
            yield lambda jobs: pool.map(_rows_of, jobs, chunksize=4)
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads


def _read(file: Path) -> Judged | None:
    """Return the tables of a law from disk; None: it has none."""
    paths = [file.with_suffix(f".{name}.csv") for name in Judged._fields]
    if not all(path.exists() for path in paths):
        return None
    tables = [pd.read_csv(path, float_precision="round_trip", dtype={"reason": str}) for path in paths]
    return Judged(tables[0].fillna({"reason": ""}), tables[1])


def _write(judged: Judged, file: Path) -> None:
    """Write the tables of a law to disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, table in judged._asdict().items():
        with atomic_write(file.with_suffix(f".{name}.csv")) as temporary:
            table.to_csv(temporary, index=False)


def on_common_points(judged: Mapping[str, Judged]) -> dict[str, pd.DataFrame]:
    """Return the forecasts at the points that all laws forecast, but for laws without any forecast."""
    forecasts = {name: each.forecasts for name, each in judged.items()}
    answered = {name: rows[rows["reason"] == ""] for name, rows in forecasts.items()}
    sets = [set(rows[KEY].itertuples(index=False, name=None)) for rows in answered.values() if len(rows)]
    common = set.intersection(*sets) if sets else set()
    return {
        name: rows[[key in common for key in rows[KEY].itertuples(index=False, name=None)]]
        for name, rows in answered.items()
        if len(rows)
    }


def comparison(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return a row for each law, on the points that all forecast and on its own; means over sources.

    Columns: law, points ("common" or "own"), those of `COLUMNS`, regret (nats per token, of usual shapes), seconds of CPU
    a forecast.
    """
    rows = []
    for points, tables in (
        ("common", on_common_points(judged)),
        ("own", {name: each.forecasts for name, each in judged.items()}),
    ):
        for name, forecasts in tables.items():
            total = by_source(forecasts).query("source == 'all'")
            groups = regret_by_source(judged[name].decisions)
            rows.append(
                {"law": name, "points": points}
                | (total.iloc[0][COLUMNS].to_dict() if len(total) else {"n": 0})
                | {
                    "regret": groups["sum"].sum() / groups["count"].sum() if len(groups) else np.nan,
                    "seconds": judged[name].forecasts["seconds"].mean(),
                }
            )
    return pd.DataFrame(rows, columns=["law", "points", *COLUMNS, "regret", "seconds"])


def by_share(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return the mean error of each law (columns) at each share of the run (rows), on the points that all forecast."""
    tables = on_common_points(judged)
    errors = {
        name: by_source(rows, ["share"]).query("source == 'all'").set_index("share") for name, rows in tables.items()
    }
    return pd.DataFrame({name: table["mean_error"] for name, table in errors.items()})


def long_table(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return the tables of `evaluate` of all laws, one below the other."""
    return pd.concat([summary(each).assign(law=name) for name, each in judged.items()], ignore_index=True)


@dataclass(frozen=True, repr=False)
class Benchmark(Result):
    """Forecasts and decisions of published runs, by law."""

    judged: Mapping[str, Judged]

    def to_frame(self) -> pd.DataFrame:
        """Return the table of `comparison`."""
        return comparison(self.judged)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows of the table."""
        rows = self.to_frame().to_dict("records")
        return {"rows": [{name: finite_or_none(value) for name, value in row.items()} for row in rows]}

    def __str__(self) -> str:
        table, texts = self.to_frame(), []
        for points, heading in (
            ("common", "at the points that all forecast"),
            ("own", "at the points that each forecasts"),
        ):
            rows = table[table["points"] == points].drop(columns="points")
            formats = {HEADINGS.get(name, name): FORMATS.get(name, "{:.3f}").format for name in rows.columns[1:]}
            rows = rows.rename(columns=HEADINGS)
            texts.append(f"\n{heading}\n\n{rows.to_string(index=False, formatters=formats, na_rep='')}")
        return "\n".join(texts)

    @property
    def _summary(self) -> str:
        laws = on_common_points(self.judged)  # without those that cannot be compared
        return f"Forecasts of the final loss of published runs by {len(laws)} laws, at the points that all forecast"

    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the mean error of each law against the share of the run that is seen."""
        errors = by_share(self.judged)
        figure = new_figure(7.2, 4.2)
        axes = figure.subplots() if ax is None else ax
        for name, values in errors.items():
            label, width = str(name).replace("_", " "), 2 if name == "joint" else 1
            axes.plot(errors.index, values, "o-", label=label, linewidth=width)
        axes.set(xlabel="share of the steps that is seen", ylabel="mean error of the final loss (nats per token)")
        axes.set_yscale("log")
        axes.set_xticks(list(errors.index), [f"{share:.0%}" for share in errors.index])
        low, high = errors.min().min() / 1.1, errors.max().max() * 1.1
        ticks = [tick for tick in LOSS_TICKS if low <= tick <= high]
        axes.set_ylim(low, high)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        if ax is None:
            figure.legend(loc="outside right center", frameon=False, fontsize=8)
            finish(figure)
        return axes
