"""The published training runs as a data set: loss curves with their learning-rate schedules, sources and licences.

Two folders hold them in one form. Runs whose licence allows it are part of the package; the others are facts that the
repository of this project has in `studies/decisions/published_runs`. docs/published-runs.md says how each was read.
"""

import csv
import gzip
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.published_run import CONSTANT, GIVEN, NEXT_TOKEN, PublishedRun
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.io.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

VERSION = "1"
"""Version of the data; a correction raises it and stands in CHANGELOG.md."""

PACKAGED = Path(__file__).parent / "data"
CLONED = Path(__file__).parents[3] / "studies/decisions/published_runs"
"""Folders of the runs: that of the package, and that of a clone of the repository."""

RUNS = "runs.csv"
"""Table of a folder with a row a run."""
CURVES = "curves.csv.gz"
"""Table of a folder with the losses."""
SCHEDULES = "schedules.csv.gz"
"""Table of a folder with the breakpoints of tabulated schedules; it may be absent."""


class Source(NamedTuple):
    """Source of runs.

    Parameters
    ----------
    source : str
        Name, as of `PublishedRun.source`.
    licence : str
        Licence that the repository states; "" where it states none, and the package does not have the runs.
    split : str
        "seen" or "unseen", as of `PublishedRun.split`.
    reference, repository : str
        Publication, and repository that the numbers were read from; "" where there is none.
    """

    source: str
    licence: str
    split: str
    reference: str
    repository: str


SOURCES = {row["source"]: Source(**row) for row in csv.DictReader((PACKAGED / "sources.csv").open(encoding="utf-8"))}
"""Every source by its name."""

UNLISTED = Source("", "", "", "", "")


@dataclass(frozen=True)
class PublishedRuns(Sequence[PublishedRun]):
    """Finished training runs of several sources.

    Parameters
    ----------
    runs : tuple of PublishedRun
        The runs.
    folders : tuple of Path
        Folders of tables that they were read from.
    """

    runs: tuple[PublishedRun, ...]
    folders: tuple[Path, ...]

    @overload
    def __getitem__(self, index: int) -> PublishedRun: ...

    @overload
    def __getitem__(self, index: slice) -> "PublishedRuns": ...

    def __getitem__(self, index: int | slice) -> "PublishedRun | PublishedRuns":
        return PublishedRuns(self.runs[index], self.folders) if isinstance(index, slice) else self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<{len(self)} published runs of {len(self.sources)} sources>"

    @property
    def sources(self) -> dict[str, Source]:
        """Source of the runs, with licence and reference, by name."""
        return {name: SOURCES.get(name, UNLISTED) for name in dict.fromkeys(run.source for run in self)}

    @cached_property
    def table(self) -> "pd.DataFrame":
        """Table with a row for each run; `end` is its last loss, nats per token."""
        import pandas as pd

        return pd.DataFrame([_facts_of(run) for run in self]).set_index("run")

    @property
    def digest(self) -> str:
        """SHA-256 of the names and numbers of the runs."""
        digest = sha256()
        for run in self:
            # The rates are computed, so their last digits depend on the machine.
            rates = f"{run.final_step} {run.schedule.rates.sum():.6g}"
            facts = {name: value for name, value in vars(run.facts).items() if value and run.facts.is_known(name)}
            facts.pop("aspect_ratio", None)  # it follows from the size
            digest.update(f"{facts} {run.source} {run.size} {run.shape} {run.objective} {rates}".encode())
            digest.update(run.steps.tobytes() + run.losses.tobytes())
        return digest.hexdigest()

    def to_csv(self, folder: str | Path) -> None:
        """Write the runs as the tables that `load_published_runs(folder=...)` reads.

        Parameters
        ----------
        folder : path
            Folder to make, with runs.csv, curves.csv.gz and schedules.csv.gz.
        """
        target, names = Path(folder), {run.model for run in self}
        target.mkdir(parents=True, exist_ok=True)
        for table in (RUNS, CURVES, SCHEDULES):
            files = [source / table for source in self.folders if (source / table).exists()]
            tables = [_text(file).splitlines() for file in files]
            lines = [line for rows in tables for line in rows[1:] if line.partition(",")[0] in names]
            content = "\n".join([*tables[0][:1], *lines, ""]).encode()
            (target / table).write_bytes(gzip.compress(content, mtime=0) if table.endswith(".gz") else content)


def load_published_runs(
    sources: str | Collection[str] | None = None,
    tags: str | Collection[str] | None = None,
    *,
    folder: str | Path | None = None,
) -> PublishedRuns:
    """Load the published training runs.

    Parameters
    ----------
    sources : str or collection of str, optional
        Sources to load; by default all that are here.
    tags : str or collection of str, optional
        Tags that a run must have, all of them, such as "seen", "cosine" or "muon" (`PublishedRun.tags`).
    folder : path, optional
        Another folder of tables in the form of `PublishedRuns.to_csv`, instead of the data set.

    Returns
    -------
    PublishedRuns
        The runs, by folder in the order of their tables.

    Raises
    ------
    UserError
        If a source or a tag is not known, or the licence of a source keeps it out of the package.

    Examples
    --------
    >>> from toposcale.datasets import load_published_runs
    >>> runs = load_published_runs(["multi-power-law", "modded-nanogpt"], tags="seen")
    >>> runs
    <17 published runs of 2 sources>
    >>> runs.sources["multi-power-law"].licence
    'MIT'
    >>> runs.table.columns[:4].to_list()
    ['source', 'family', 'n_parameters', 'tokens_per_step']
    """
    folders = (
        tuple(each for each in (PACKAGED, CLONED) if (each / RUNS).exists()) if folder is None else (Path(folder),)
    )
    asked = {sources} if isinstance(sources, str) else None if sources is None else set(sources)
    runs = [run for each in folders for run in _runs_of(each, asked)]
    present = {run.source for run in runs}
    for name in sorted((asked or set()) - present):
        if folder is None and name in SOURCES:
            raise UserError(
                f"{name}: {SOURCES[name].repository} states no licence, so the package does not have these runs; clone the "
                "repository of toposcale and install it with pip install -e ."
            )
        raise UserError(f"{name}: no such source; the sources are {', '.join(SOURCES if folder is None else present)}")
    wanted = {tags} if isinstance(tags, str) else set(tags or ())
    present_tags = {tag for run in runs for tag in run.tags}
    if unknown := sorted(wanted - present_tags):
        raise UserError(f"{unknown[0]}: no run has this tag; the tags are {', '.join(sorted(present_tags))}")
    return PublishedRuns(tuple(run for run in runs if wanted <= run.tags), folders)


def _runs_of(folder: Path, sources: Collection[str] | None) -> Iterator[PublishedRun]:
    """Yield the runs of a folder that are of these sources, or of any."""
    rows = [row for row in _rows(folder / RUNS) if sources is None or row["source"] in sources]
    names = {row["run"] for row in rows}
    curves = _series(folder / CURVES, "loss", names)
    breakpoints = _series(folder / SCHEDULES, "rate", names) if (folder / SCHEDULES).exists() else {}
    for row in rows:
        yield _run_of(row, *curves[row["run"]], breakpoints.get(row["run"]))


def _run_of(
    row: dict[str, str], steps: np.ndarray, losses: np.ndarray, breakpoints: tuple[np.ndarray, np.ndarray] | None
) -> PublishedRun:
    """Return a run of a row of the table and of its curve."""
    final_step, warmup = int(row["steps"]), int(row["warmup_steps"])
    peak, decay_start = _number(row.get("peak_rate")), _number(row["decay_start"])
    if row["shape"] == GIVEN:
        if breakpoints is None:
            raise UserError(f"{row['run']}: its schedule is `{GIVEN}`, but {SCHEDULES} has no row of it")
        rates = np.interp(np.arange(final_step + 1), *breakpoints)
    else:
        rates = _rates(row["shape"], final_step, warmup, decay_start / final_step, _number(row["final_rate"]))
    facts = RunFacts(
        row["run"],
        int(float(row["n_parameters"])),
        float(row["tokens_per_step"]),
        row["family"],
        optimizer=row.get("optimizer", ""),
        weight_average=row.get("weight_average") or "",
        weight_decay=_number(row.get("weight_decay")),
        aspect_ratio=_aspect_ratio(row["size"]),
        unique_tokens=_number(row.get("unique_tokens")),
    )
    return PublishedRun(
        facts,
        LearningRateSchedule(final_step, rates * (peak if np.isfinite(peak) else 1.0), ScheduleProvenance.GIVEN),
        steps=steps,
        losses=losses,
        checkpoint_steps=steps,
        checkpoint_losses=losses,
        source=row["source"],
        size=row["size"],
        shape=row["shape"],
        stated_warmup=warmup,
        decay_start=decay_start,
        objective=row.get("objective") or NEXT_TOKEN,
        split=SOURCES.get(row["source"], UNLISTED).split,
    )


@lru_cache
def _rates(shape: str, steps: int, warmup: int, decay_share: float, final: float) -> np.ndarray:
    """Return learning rates in units of the peak (steps + 1,)."""
    warmup = min(warmup, steps - 1)
    decay = min(max(round(decay_share * steps), warmup), steps - 1) if shape == "wsd" else None
    return Schedule(shape, 1.0, steps, warmup, 0.0 if shape == CONSTANT else final, decay).rates()


def _facts_of(run: PublishedRun) -> dict[str, Any]:
    """Return the row of a run in the table."""
    source = SOURCES.get(run.source, UNLISTED)
    return {
        "run": run.model,
        "source": run.source,
        "family": run.family,
        "n_parameters": run.n_parameters,
        "tokens_per_step": run.tokens_per_step,
        "steps": run.final_step,
        "optimizer": run.facts.optimizer,
        "kind": run.kind or "pretraining",
        "schedule": run.shape,
        "end": float(run.losses[-1]),
        "split": run.split,
        "licence": source.licence or "none stated",
        "reference": source.reference or source.repository,
    }


def _series(file: Path, column: str, names: Collection[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return ascending steps and the values of a column, by run."""
    values: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for row in _rows(file):
        if row["run"] in values:
            values[row["run"]].append((float(row["step"]), float(row[column])))
    sorted_rows = {name: np.array(sorted(rows)).T for name, rows in values.items() if rows}
    return {name: (steps, numbers) for name, (steps, numbers) in sorted_rows.items()}


def _rows(file: Path) -> Iterable[dict[str, str]]:
    """Return the rows of a CSV file by the names of their columns; UserError: it is missing."""
    return csv.DictReader(_text(file).splitlines())


def _text(file: Path) -> str:
    """Return the text of a file, which may be compressed; UserError: it is missing."""
    if not file.exists():
        raise UserError(f"{file}: no such file; a folder of published runs has {RUNS}, {CURVES} and {SCHEDULES}")
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")


def _aspect_ratio(size: str) -> float:
    """Return width over depth of a size that is named WIDTHxDEPTH; NaN for other names."""
    width, _, depth = size.partition("x")
    return int(width) / int(depth) if width.isdigit() and depth.isdigit() else np.nan


def _number(text: str | None) -> float:
    """Return the number of a cell; NaN where it is empty."""
    return float(text) if text else np.nan
