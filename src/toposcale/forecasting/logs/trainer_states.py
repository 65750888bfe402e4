"""State of transformers' Trainer: where it lies, what it holds, and the metrics of its evaluations."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_text

FILE_NAME = "trainer_state.json"  # beside every checkpoint
SUMMARY = "train_runtime"  # key of the last entry of transformers' Trainer, which has the mean loss
_UNMEASURED = ("_runtime", "_per_second", "_time", "_flos")


class TrainerState(NamedTuple):
    """Path and content of a trainer_state.json, and notes on another that is not read."""

    path: Path
    content: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def latest_state(path: Path) -> TrainerState | None:
    """Read the latest state of transformers' Trainer at or in a path; None if there is none.

    Raise UserError if the state of a folder and the latest one of its checkpoints are of two trainings.
    """
    if path.name == FILE_NAME:
        return TrainerState(path, read_state(path))
    states, of_checkpoints = (
        [TrainerState(file, read_state(file)) for file in path.glob(pattern) if path.is_dir()]
        for pattern in (FILE_NAME, f"checkpoint-*/{FILE_NAME}")
    )
    latest = max(of_checkpoints, key=_last_step, default=None)
    if not states or latest is None:
        return latest or next(iter(states), None)
    name = latest.path.parent.name
    if any(one != other for one, other in zip(_logged_losses(states[0]), _logged_losses(latest), strict=False)):
        raise UserError(
            f"{path}: its {FILE_NAME} and that of {name} are of two trainings, since their losses differ; name the "
            "file of one"
        )
    if _last_step(states[0]) >= _last_step(latest):
        return states[0]
    note = f"the {FILE_NAME} of the folder itself ends at step {_last_step(states[0]):,}: that of {name} is read"
    return latest._replace(notes=(note,))


def _last_step(state: TrainerState) -> int:
    return int(state.content["global_step"])


def _logged_losses(state: TrainerState) -> list[str]:
    """Return the entries with a training loss, as texts, so that NaN equals NaN."""
    entries = [entry for entry in state.content["log_history"] if isinstance(entry, dict) and "loss" in entry]
    return [f"{entry.get('step')} {entry['loss']}" for entry in entries]


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
        raise UserError(f"{path}: not the state of a Trainer ({why})") from error


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints `checkpoint-{step}` of a folder that hold a state, by step."""
    paths = {
        path.parent: path.parent.name.removeprefix("checkpoint-") for path in folder.glob(f"checkpoint-*/{FILE_NAME}")
    }
    return sorted((path for path, step in paths.items() if step.isdecimal()), key=lambda path: int(paths[path]))


def trainings(checkpoints: Iterable[Path]) -> list[list[Path]]:
    """Return the checkpoints with a state, given in the order of their steps, by training.

    A resumed training continues its log, even if it was given more steps.
    """
    found: list[list[Path]] = []
    states: dict[Path, tuple[str, Any]] = {}  # log and last step
    for checkpoint in checkpoints:
        try:
            state = read_state(checkpoint / FILE_NAME)
        except UserError:
            continue
        log, last = states[checkpoint] = repr(state["log_history"]), state.get("max_steps")
        for training in reversed(found):
            begun, end = states[training[-1]]
            if log.startswith(begun[:-1]) and (begun != "[]" or last == end):
                training.append(checkpoint)
                break
        else:
            found.append([checkpoint])
    return found


def refuse_two_trainings(checkpoints: Iterable[Path]) -> None:
    """Raise UserError if the states in folders of checkpoints, in the order of their steps, are of two trainings."""
    if len(runs := trainings(checkpoints)) > 1:
        one, other = runs[0][0], runs[1][0]
        raise UserError(
            f"{one.parent}: {one.name} and {other.name} are of two trainings (their logs do not continue each other, or "
            "end at other steps); give each a folder of its own"
        )


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
    if counted := float(state.get("num_input_tokens_seen") or 0):
        return max(round(counted / steps), 1)
    if not non_embedding_parameters:
        return None
    each = float(state.get("total_flos") or 0) / (6 * non_embedding_parameters) / steps
    return round(each) if each >= 1 and abs(each - round(each)) <= 1e-6 * each else None


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
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
