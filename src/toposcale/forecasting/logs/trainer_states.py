"""State of transformers' Trainer: where it lies, what it holds, and the metrics of its evaluations."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_text

FILE_NAME = "trainer_state.json"  # next to every checkpoint
SUMMARY = "train_runtime"  # key of the last entry of transformers' Trainer, which has the mean loss
_UNMEASURED = ("_runtime", "_per_second", "_time", "_flos")


class TrainerState(NamedTuple):
    """Path and content of a trainer_state.json, and notes on another that is not read."""

    path: Path
    content: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def latest_state(path: Path) -> TrainerState | None:
    """Read the latest state of transformers' Trainer at or in a path; None if there is none.

    Raise UserError if states in a folder are of two trainings.
    """
    if path.name == FILE_NAME:
        return TrainerState(path, read_state(path))
    files = [*path.glob(f"checkpoint-*/{FILE_NAME}"), *path.glob(FILE_NAME)]
    states = sorted((TrainerState(file, read_state(file)) for file in files), key=_last_step)
    if not states:
        return None
    if len(runs := trainings(states)) > 1:
        first, second = (run[0].path.relative_to(path) for run in runs[:2])
        raise UserError(
            f"{path}: {first} and {second} are of two trainings (their logs do not continue each other, or end at other "
            "steps); name the file of one, or give each training a folder of its own"
        )
    latest = states[-1]
    note = f"the {FILE_NAME} of the folder itself ends at step {{:,}}: that of {latest.path.parent.name} is read"
    return latest._replace(notes=tuple(note.format(_last_step(one)) for one in states[:-1] if one.path.parent == path))


def _last_step(state: TrainerState) -> int:
    return int(state.content["global_step"])


def read_state(path: str | Path) -> dict[str, Any]:
    """Return the content of a trainer_state.json; raise UserError if it is missing, truncated or something else."""
    try:
        state = parse_json(read_text(path))
        for key, kind in {"log_history": list, "global_step": int}.items():
            if not isinstance(state, dict) or not isinstance(state.get(key), kind):
                raise TypeError(f"no {key}, or one of another type")
        return state
    except (OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        remedy = "if it was cut short, name that of an earlier checkpoint"
        raise UserError(f"{path}: not the state of a Trainer ({why}); {remedy}") from error


def trainings(states: Iterable[TrainerState]) -> list[list[TrainerState]]:
    """Return the states, given in the order of their steps, by training.

    A resumed training continues its log, even if it was given more steps, but for the summary at its end.
    """
    runs: list[list[TrainerState]] = []
    logs: dict[Path, str] = {}
    for state in states:
        entries = state.content["log_history"]
        history = [entry for entry in entries if not (isinstance(entry, dict) and SUMMARY in entry)]
        # As a text, in which NaN equals NaN.
        log, last = logs.setdefault(state.path, repr(history)), state.content.get("max_steps")
        for run in reversed(runs):
            begun = logs[run[-1].path]
            if log.startswith(begun[:-1]) and (begun != "[]" or last == run[-1].content.get("max_steps")):
                run.append(state)
                break
        else:
            runs.append([state])
    return runs


def facts(state: Mapping[str, Any], non_embedding_parameters: int) -> dict[str, int | None]:
    """Return final_step and tokens_per_step of a Trainer, None if unknown; 0 parameters are unknown ones."""
    last, tokens = state.get("max_steps"), tokens_per_step(state, non_embedding_parameters)
    return {"final_step": last if isinstance(last, int) and last > 0 else None, "tokens_per_step": tokens}


def tokens_per_step(state: Mapping[str, Any], non_embedding_parameters: int) -> int | None:
    """Return the tokens per step of a Trainer; None if its state does not determine them.

    It either counted them (`num_input_tokens_seen`; the mean over its steps, since batches may differ), or they follow from
    `total_flos`, the sum of 6 x tokens x non-embedding parameters. If the latter gives a fraction, the sum is of something
    else and the tokens are unknown.
    """
    steps = int(state.get("global_step") or 0)
    if steps < 1:
        return None
    if 0 < (counted := float_or_none(state.get("num_input_tokens_seen")) or 0) < float("inf"):
        return max(round(counted / steps), 1)
    if not non_embedding_parameters:
        return None
    each = (float_or_none(state.get("total_flos")) or 0) / (6 * non_embedding_parameters) / steps
    return round(each) if 1 <= each < float("inf") and abs(each - round(each)) <= 1e-6 * each else None


def evaluated(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an evaluation of the Trainer: `eval_loss` as validation_loss, other `eval_NAME` as NAME."""
    named = {
        name.removeprefix("eval_"): number
        for name, value in entry.items()
        if name.startswith("eval_") and not name.endswith(_UNMEASURED) and (number := float_or_none(value)) is not None
    }
    if "loss" in named:
        named["validation_loss"] = named.pop("loss")
    return named


def float_or_none(value: Any) -> float | None:
    """Return a number, which some programs log as text; None for anything else."""
    try:
        return None if isinstance(value, bool | complex) else float(value)
    except (TypeError, ValueError):
        return None
