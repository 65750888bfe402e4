"""Script wrapper: logging, errors, provenance, and rows of the `warnings` table that a job notes while it measures."""

import hashlib
import json
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from toposcale.io import schemas, tables
from toposcale.io.errors import UserError, listed, message_of, one_line
from toposcale.io.files import locked, remove_unfinished, write_text

# Packages whose version can change a number.
PACKAGES = ("numpy", "scipy", "gudhi", "torch", "pandas", "pyarrow", "persim", "transformers", "tokenizers")
CAUSE = ".cause.txt"
"""Suffix of the file next to a job's log that holds the reason of its failure in one line."""


def script(main: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorate the main function of a script: run it if Snakemake starts the script, not if it is imported."""
    if main.__module__ == "__main__":
        _run(main, main.__globals__["snakemake"])
    return main


def _run(main: Callable[[Any], None], snakemake: Any) -> None:
    """Call `main(snakemake)`; on failure print one line, log the traceback and exit with status 1."""
    log = Path(str(snakemake.log))
    log.with_suffix(CAUSE).unlink(missing_ok=True)
    logging.raiseExceptions = False  # a log on a full disk must not print tracebacks
    try:
        # A job may outlive a killed Snakemake and still be writing. Snakemake itself removes the log before a job.
        with locked(log.with_name(f".{log.name}.lock")):
            remove_unfinished(snakemake.output)
            # Appended, as the progress of a training is: at an offset of its own a line would overwrite another's.
            logging.basicConfig(filename=log, filemode="a", level=logging.INFO, format="%(asctime)s %(message)s")
            logging.captureWarnings(True)
            start = time.perf_counter()
            check_inputs(snakemake.params.get("inputs", {}))
            main(snakemake)
            cost = {"wall_seconds": time.perf_counter() - start, "cpu_seconds": time.process_time()}
            # For the report. Snakemake's `benchmark` samples too late for jobs of under a second.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in kilobytes
            write_json(log.with_suffix(".cost.json"), cost | {"peak_memory_mb": peak})
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # Snakemake, which was interrupted too, reports it
    except MemoryError as error:
        _fail(snakemake.rule, f"not enough memory ({error}); give it more, or run fewer jobs at a time (--cores)", log)
    except (UserError, OSError) as error:
        _fail(snakemake.rule, message_of(error) or type(error).__name__, log)
    except Exception as error:
        _fail(snakemake.rule, f"{type(error).__name__}: {error} (a defect; the traceback is in {log})", log)


def provenance(snakemake: Any) -> dict[str, str]:
    """Return the metadata of a table: its digest, the settings, the revision and the package versions."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    settings = {name: value for name, value in snakemake.params.items() if name not in ("script", "digest", "inputs")}
    return {
        "rule": snakemake.rule,
        "digest": snakemake.params.digest,
        "settings": json.dumps(settings, sort_keys=True, default=dict),
        "revision": os.environ.get("TOPOSCALE_REVISION", "unknown"),
        "versions": json.dumps(versions, sort_keys=True),
    }


def recorded_digest(path: str) -> str:
    """Return the digest that `provenance` left in a file; "" where there is none."""
    if path.endswith(".parquet"):
        return tables.read_metadata(path).get("digest", "")
    from toposcale.io import tensor_files  # here, since most jobs only read tables

    return tensor_files.read_metadata(path).get("digest", "")


def check_inputs(expected: Mapping[str, str]) -> None:
    """Raise UserError if some files were not made with the settings, code and inputs of this run (`expected`, by file).

    Snakemake takes a file for up to date if it has no record of it (in .snakemake), or if it looks newer than it is.
    """
    stale = [path for path, digest in expected.items() if recorded_digest(path) != digest]
    if stale:
        folders = sorted({"/".join(path.split("/")[:-1][:4]) for path in stale})  # results/{run}/features/weights
        raise UserError(
            f"{listed(stale, 1)}: made with other settings, code or inputs than those of this run, and Snakemake has no "
            f"record of it; delete {' '.join(folders)}, or all of the run, and run again"
        )


def write(
    snakemake: Any, parts: Mapping[str, Iterable[pa.Table]], warning_rows: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Write a table to each named output, with `warning_rows` for the warnings table in its metadata.

    An output is named after its table, optionally after the source of its rows (landscape_features).
    """
    metadata = tables.with_warnings(provenance(snakemake), warning_rows)
    for name, tables_of_output in parts.items():
        table = schemas.TABLES.get(name) or schemas.TABLES[name.rpartition("_")[2]]
        tables.write(tables.concatenate(table, tables_of_output), snakemake.output[name], metadata)


def note(
    model: str, concerns: str, warning: str, remedy: str, *, step: int | None = None, is_missing: bool = False
) -> dict[str, Any]:
    """Return a row about a checkpoint, which may be missing, or about the whole model if there is no `step`.

    A fact with which nothing is wrong has no remedy.
    """
    row = {"model": model, "step": step, "concerns": concerns, "warning": warning, "remedy": remedy}
    return row | {"is_missing": is_missing}


def missing(
    model: str, reasons: Mapping[int, str], concerns: str = "checkpoint", *, remedy: str = ""
) -> list[dict[str, Any]]:
    """Return rows for the checkpoints of a model that could not be measured; `reasons` holds the reason by step."""
    remedy = remedy or f"fix the checkpoint and run again, or leave out its step with models.{model}.steps"
    return [note(model, concerns, reason, remedy, step=step, is_missing=True) for step, reason in reasons.items()]


def write_json(path: str | Path, content: Any, **options: Any) -> None:
    """Write JSON atomically; `options` are those of `json.dumps`."""
    write_text(path, json.dumps(content, **options) + "\n")


def progress(items: Iterable[Any], total: int, unit: str) -> Iterator[Any]:
    """Yield the items and log the progress, at most every five seconds."""
    start = last_line = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if now - last_line >= 5:
            logging.info("%d of %d %s after %.0f s", number, total, unit, now - start)
            last_line = now
        yield item


def digest(settings: Any) -> str:
    """Return a short hash of settings, for metadata."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def _fail(rule: str, message: str, log: Path) -> None:
    message = one_line(message)
    logging.error(message)
    with suppress(OSError), log.open("a") as file:
        traceback.print_exc(file=file)
    cause = f"toposcale: {rule}: {message}"
    with suppress(OSError):
        log.with_suffix(CAUSE).write_text(cause + "\n", encoding="utf-8")  # for the last line of the run
    print(cause, file=sys.stderr)
    raise SystemExit(1)
