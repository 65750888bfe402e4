"""What surrounds the one call of every script: its log, its errors, and where its tables say they come from."""

import fcntl
import hashlib
import json
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from toposcale.checkpoints.sources import moved, readable
from toposcale.io import schemas, tables
from toposcale.io.errors import LeftOutError, UserError, is_shared, reason_of
from toposcale.io.files import read_json, write_text
from toposcale.io.notes import gaps, note, repeated

# Packages whose version can change a number.
PACKAGES = ("numpy", "scipy", "gudhi", "torch", "pandas", "pyarrow", "persim", "ruptures", "transformers", "tokenizers")
CAUSE = ".cause.txt"
"""What stands in this file beside a job's log is why it failed, in one line."""


def script(main: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorator of the last function of a script: it runs where Snakemake starts the script, not where it is imported."""
    if main.__module__ == "__main__":
        _run(main, main.__globals__["snakemake"])
    return main


def _run(main: Callable[[Any], None], snakemake: Any) -> None:
    """Call `main(snakemake)`; on failure leave one line on the terminal, the traceback in the log, and exit status 1."""
    log = Path(str(snakemake.log))
    log.with_suffix(CAUSE).unlink(missing_ok=True)
    logging.raiseExceptions = False  # a log on a full disk says nothing, and no traceback either
    try:
        with _alone(log):
            logging.basicConfig(filename=log, filemode="w", level=logging.INFO, format="%(asctime)s %(message)s")
            logging.captureWarnings(True)
            start = time.perf_counter()
            main(snakemake)
            cost = {"wall_seconds": time.perf_counter() - start, "cpu_seconds": time.process_time()}
            # For the report. Not Snakemake's `benchmark`: that asks too late about jobs of under a second.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in kilobytes
            write_json(log.with_suffix(".cost.json"), cost | {"peak_memory_mb": peak})
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # Snakemake, which was interrupted too, says so
    except (UserError, OSError, MemoryError) as error:
        _fail(snakemake.rule, str(error) or type(error).__name__, log)
    except Exception as error:
        _fail(snakemake.rule, f"{type(error).__name__}: {error} (a defect; the traceback is in {log})", log)


def provenance(snakemake: Any) -> dict[str, str]:
    """Metadata of a table: the settings that it was made with, the code, the revision and the package versions."""
    # The state of the user's files says when to measure again, not how it is done.
    settings = {key: value for key, value in snakemake.params.items() if key not in ("code", "files")}
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        "rule": snakemake.rule,
        "settings": json.dumps(settings, sort_keys=True, default=dict),
        "code": str(snakemake.params.get("code", "")),
        "revision": os.environ.get("TOPOSCALE_REVISION", "unknown"),
        "versions": json.dumps(versions, sort_keys=True),
    }


def measured(
    snakemake: Any, concerns: str, noted: list[dict[str, Any]], measure: Callable[..., Any], *arguments: Any
) -> Iterator[tuple[int, Any]]:
    """Of each checkpoint of the job, the step and what `measure(checkpoint, *arguments)` gives.

    A checkpoint from elsewhere that cannot be measured is a gap, whatever exception says so: None, and a row for the
    warnings table in `noted`. One that was made here can be made again, so its error is raised, and so is what every
    checkpoint shares (`errors.is_shared`).
    """
    model = snakemake.wildcards.model
    for step, checkpoint in zip(snakemake.params.steps, snakemake.input.checkpoints, strict=True):
        measurements = None
        try:
            measurements = measure(checkpoint, *arguments)
            if change := moved(checkpoint):
                noted.append(note(model, "checkpoint", change, "set hub.keep: true, which keeps what was fetched"))
        except LeftOutError as error:
            noted.append(repeated(model, step, error.original, leave_out=True))
        except BaseException as error:
            if is_shared(error) or not snakemake.params.leave_gaps:
                raise
            reason = readable(reason_of(error), checkpoint)
            logging.warning("%s", reason, exc_info=not isinstance(error, UserError))
            noted += gaps(model, {step: reason}, concerns, remedy=_remedy(model, checkpoint))
        yield step, measurements


def _remedy(model: str, checkpoint: str) -> str:
    """What mends a gap: a published checkpoint is fetched again where that is asked for."""
    if Path(checkpoint).suffix != ".json":
        return ""
    return (
        f"once it is mended on the Hub, run again with AGAIN={checkpoint} (snakemake --forcerun), which fetches it again "
        f"(the next run does so of itself after a damaged download); or leave its step out of models.{model}.steps"
    )


def write(snakemake: Any, parts: Mapping[str, Iterable[pa.Table]], noted: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write one file a named output: all its rows, and what is to note about them.

    An output is named after its table, with or without the source of the rows before it (landscape_features).
    """
    metadata = tables.with_warnings(provenance(snakemake), noted)
    for name, pieces in parts.items():
        table = schemas.TABLES.get(name) or schemas.TABLES[name.rpartition("_")[2]]
        tables.write(tables.joined(table, pieces), snakemake.output[name], metadata)


def write_json(path: str | Path, content: Any, **options: Any) -> None:
    """Write JSON as `write_text` does a text; options: those of `json.dumps`."""
    write_text(path, json.dumps(content, **options) + "\n")


def progress(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    """Pass items on; work of more than five seconds tells the log how far it is, at most every five seconds."""
    start = last_line = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if now - last_line >= 5:
            logging.info("%d of %d %s after %.0f s", number, total, what, now - start)
            last_line = now
        yield item


def digest(settings: Any) -> str:
    """A short hash of settings, for the metadata of what was made with them."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def duplicates(paths: Iterable[str]) -> set[tuple[str, int]]:
    """The (model, step) pairs that the files of `duplicates.py` name."""
    facts = [read_json(path) for path in paths]
    return {(fact["model"], int(step)) for fact in facts for step in fact["duplicates"]}


@contextmanager
def _alone(log: Path) -> Iterator[None]:
    """Wait until no other process is at this job: a job outlives a Snakemake that was killed, and may still be writing."""
    # Snakemake removes the log itself before it starts a job.
    with log.with_name(f".{log.name}.lock").open("w") as lock:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fail(rule: str, message: str, log: Path) -> None:
    logging.error(message)
    with suppress(OSError), log.open("a") as file:
        traceback.print_exc(file=file)
    cause = f"toposcale: {rule}: {' '.join(message.split())}"
    with suppress(OSError):
        log.with_suffix(CAUSE).write_text(cause + "\n", encoding="utf-8")  # for the last line of the run
    if rule != "advice":  # `make advice` prints nothing but the last line, which is the cause
        print(cause, file=sys.stderr)
    raise SystemExit(1)
