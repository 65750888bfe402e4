"""Find the log of a training in its folder."""

from pathlib import Path

from toposcale.forecasting.logs import loss_curves, trainer_states
from toposcale.io.errors import UserError, listed

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".log", ".txt")


def logs_in(folder: Path) -> list[Path]:
    """Return the files of a folder that are read as loss curves; where there is none, those of the folder around it."""
    for place in (folder, folder.resolve().parent):
        files = [file for file in sorted(place.iterdir()) if file.suffix in _SUFFIXES and file.is_file()]
        if logs := [file for file in files if _is_curve(file)]:
            return logs
    return []


def log_of(path: Path) -> Path:
    """Return the only log of a folder; a file, and a folder that is a log by itself or has none, unchanged.

    Raise UserError if there are several.
    """
    by_itself = (trainer_states.FILE_NAME, f"checkpoint-*/{trainer_states.FILE_NAME}", "**/*.tfevents.*")
    if not path.is_dir() or any(any(path.glob(pattern)) for pattern in by_itself):
        return path
    logs = logs_in(path)
    if len(logs) > 1:
        raise UserError(f"{path}: {len(logs)} logs, {listed([log.name for log in logs], 5)}; name one of them")
    return logs[0] if logs else path


def _is_curve(file: Path) -> bool:
    try:
        return len(loss_curves.read(file).columns["step"]) > 1
    except UserError:
        return False
