"""What surrounds the one call of every script: its log, its errors, and where its tables say they come from."""

import fcntl
import hashlib
import json
import logging
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from toposcale import checkpoints
from toposcale.io.errors import LeftOutError, PassingError, UserError
from toposcale.io.files import atomic_write, read_json
from toposcale.io.notes import gaps, repeated

# Packages whose version can change a number.
_PACKAGES = (
    "numpy",
    "scipy",
    "gudhi",
    "torch",
    "pandas",
    "pyarrow",
    "persim",
    "ruptures",
    "transformers",
    "tokenizers",
)


_EVERY = 5.0  # seconds between two lines of progress

CAUSE = ".cause.txt"
"""What stands in this file beside a job's log is why it failed, in one line."""


def run(main: Callable[[Any], None], snakemake: Any) -> None:
    """Call `main(snakemake)`; on failure leave one line on the terminal, the traceback in the log, and exit status 1."""
    log = Path(str(snakemake.log))
    log.with_suffix(CAUSE).unlink(missing_ok=True)
    logging.raiseExceptions = False  # a log on a full disk says nothing, and no traceback either
    try:
        with _alone(log):
            logging.basicConfig(
                filename=log, filemode="w", level=logging.INFO, format="%(asctime)s %(message)s"
            )
            logging.captureWarnings(True)
            start = time.perf_counter()
            main(snakemake)
            _write_cost(log.with_suffix(".cost.json"), time.perf_counter() - start)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # Snakemake, which was interrupted too, says so
    except (UserError, OSError, MemoryError) as error:
        _fail(snakemake.rule, str(error) or type(error).__name__, log)
    except Exception as error:
        _fail(snakemake.rule, f"{type(error).__name__}: {error} (a defect; the traceback is in {log})", log)


def provenance(snakemake: Any) -> dict[str, str]:
    """Metadata of a table: the settings that it was made with, the code, the revision and the package versions."""
    # Neither the code nor how the work is cut into jobs: the same files come of every cut.
    settings = {key: value for key, value in snakemake.params.items() if key not in ("code", "steps")}
    versions = {name: metadata.version(name) for name in _PACKAGES}
    return {
        "rule": snakemake.rule.partition("_by_model")[0],
        "settings": json.dumps(settings, sort_keys=True, default=dict),
        "code": str(snakemake.params.get("code", "")),
        "revision": os.environ.get("TOPOSCALE_REVISION", "unknown"),
        "versions": json.dumps(versions, sort_keys=True),
    }


def measured(
    snakemake: Any, step: int, concerns: str, measure: Callable[..., Any], checkpoint: str, *arguments: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """What `measure(checkpoint, *arguments)` gives, and what there is to note.

    A checkpoint of the user's that cannot be measured is a gap: None, and a row for the warnings table. One that was made
    here is made again, so its error is raised.
    """
    model = snakemake.wildcards.model
    try:
        return measure(checkpoint, *arguments), []
    except PassingError:
        raise  # a network that is down says nothing about the checkpoint
    except LeftOutError as error:
        return None, [repeated(model, step, error.original, leave_out=True)]
    except UserError as error:
        if not snakemake.params.leave_gaps:
            raise
        reason = checkpoints.readable(str(error), checkpoint)
        logging.warning("%s", reason)
        return None, gaps(model, {step: reason}, concerns, remedy=_remedy(model, checkpoint))


def _remedy(model: str, checkpoint: str) -> str:
    """What mends a gap: a published checkpoint is fetched anew where that is asked for."""
    if Path(checkpoint).suffix != ".json":
        return ""
    return (
        f"once it is mended on the Hub, run again with AGAIN={checkpoint} (snakemake --forcerun), which fetches it anew; "
        f"or leave its step out of models.{model}.steps"
    )


def progress(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    """Pass items on; work of more than five seconds tells the log how far it is, at most every five seconds."""
    start = told = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if now - told >= _EVERY:
            logging.info("%d of %d %s after %.0f s", number, total, what, now - start)
            told = now
        yield item


def each(value: Any) -> list[str]:
    """A named input or output as a list: of a job of one checkpoint it is a single path."""
    return [value] if isinstance(value, str) else list(value)


def of_steps(paths: Any, steps: Sequence[int]) -> list[str]:
    """The files of some steps: the inputs, or, where one job made them, those beside the last, which stands for all."""
    named = each(paths)
    if len(named) == len(steps):
        return named
    last = Path(named[-1])
    kind, digits, ending = re.fullmatch(r"(\w+-)(\d+)(\.\w+)", last.name).groups()
    return [str(last.with_name(f"{kind}{step:0{len(digits)}d}{ending}")) for step in steps]


def by_checkpoint(snakemake: Any) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Of each checkpoint that a job does: the step, the file or folder of the weights, and the outputs by name."""
    steps = snakemake.params.steps
    made = {name: each(paths) for name, paths in snakemake.output.items()}
    for place, checkpoint in enumerate(of_steps(snakemake.input.checkpoints, steps)):
        yield steps[place], checkpoint, {name: paths[place] for name, paths in made.items()}


def siblings(paths: Any, steps: Mapping[str, Sequence[int]]) -> list[str]:
    """Inputs, and for each folder of `steps`, of which one job made all files, the files of its steps."""
    named = each(paths)
    together = {folder: path for path in named if (folder := str(Path(path).parent)) in steps}
    rest = [path for path in named if str(Path(path).parent) not in steps]
    return rest + [file for folder, path in together.items() for file in of_steps(path, steps[folder])]


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


def _write_cost(path: Path, seconds: float) -> None:
    """What the job took, for the report. Not Snakemake's `benchmark`: that asks too late about jobs of under a second."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "wall_seconds": seconds,
        "cpu_seconds": time.process_time(),
        "peak_memory_mb": used.ru_maxrss / 1024,  # Linux counts in kilobytes
    }
    with atomic_write(path) as file:
        file.write_text(json.dumps(cost), encoding="utf-8")


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
