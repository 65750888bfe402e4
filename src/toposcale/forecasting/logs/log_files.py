"""Read the files of training logs (CSV, Parquet, JSON, text) as columns under their own names."""

import io
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs import text_logs
from toposcale.forecasting.logs.columns import NAMES, plain_name
from toposcale.forecasting.logs.trainer_states import FILE_NAME
from toposcale.io.errors import UserError
from toposcale.io.files import parse_json, read_plain_or_gzip

_NUMBER = re.compile(rb"[-+\d.,e]+|nan|none|inf|no log", re.IGNORECASE)
_CLOSING = "train_runtime"  # key of the last entry of transformers' Trainer, a summary with the mean loss
_LISTS, _LINES, _TABLES = (".json",), (".jsonl", ".ndjson"), (".csv", ".tsv")
TEXT_LOGS = f"text logs of {', '.join(text_logs.PATTERNS)} are read; else make a CSV with the columns step and loss"


class LogFile(NamedTuple):
    """Columns of a file by name, its format, and notes on what was dropped."""

    columns: Mapping[str, Any]
    form: str
    notes: tuple[str, ...] = ()


def read(path: Path, named: Collection[str] = ()) -> LogFile:
    """Read a file; named: columns that the user named. Raise UserError if it is missing, damaged or not a log."""
    content = read_plain_or_gzip(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16 with its mark, as Windows writes it
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    suffix = (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
    if content.startswith((b"PAR1", b"ARROW1")) or suffix == ".parquet":
        from toposcale.forecasting.logs import table_files  # imports pyarrow

        form = "Feather" if content.startswith(b"ARROW1") else "Parquet"
        return LogFile(table_files.columns_of(table_files.parse_parquet(content, path), path), form)
    content = _with_tabs(_without_comments(content.rstrip(b"\0"), named), named)  # NUL: a disk that was full
    start = content[:65536].decode("utf-8-sig", "replace").lstrip()
    if suffix in (*_LISTS, *_LINES) or (start[:1] in ("{", "[") and _is_json(start)):
        return _read_json(path, _text(path, content), suffix, named)
    if suffix in _TABLES or _is_table(start, named):
        return _read_csv(path, content)
    return _read_text(path, _text(path, content))


def _without_comments(content: bytes, named: Collection[str]) -> bytes:
    """Return content without the first lines that begin with #, but for names of columns."""
    start = 0
    while content.startswith(b"#", start):
        end = content.find(b"\n", start) + 1 or len(content)
        if _is_table(content[start:end].decode("utf-8", "replace"), named):
            break
        start = end
    return content[start:]


def _with_tabs(content: bytes, named: Collection[str]) -> bytes:
    """Return a table whose columns are aligned by spaces or bars with tabs between them, other content unchanged."""

    def cells_of(line: bytes) -> list[bytes]:
        if set(line.strip()) <= set(b"|-=+: "):
            return []
        return [cell.strip() for cell in line.strip().strip(b"|").split(b"|")] if b"|" in line else line.split()

    start = content[:4096].removeprefix(b"\xef\xbb\xbf").split(b"\n")[:-1]
    head, first = ([*filter(None, map(cells_of, start)), [], []])[:2]
    index = len(first) - len(head)  # pandas prints an index without a name
    is_aligned = index in (0, 1) and all(map(_NUMBER.fullmatch, first)) and not set(b"".join(head)) & set(b",;{[:")
    if b"\t" in content[:4096] or not is_aligned or not _is_table(b",".join(head).decode("utf-8", "replace"), named):
        return content
    rows = [b"\t".join(cells[index:]) for cells in map(cells_of, content.split(b"\n")) if cells]
    return b"\n".join([b"\t".join(head), *rows[1:], b""][: None if content.endswith(b"\n") else -1])


def _is_json(start: str) -> bool:
    """Return whether a text begins with a JSON object or a list of them; a text log may begin with a bracket, too."""
    return bool(re.match(r"\[\s*(?:\{\s*\"|\]|$)", start) or re.match(r"\{\s*(?:\"|\}|$)", start))


def _is_table(start: str, named: Collection[str]) -> bool:
    """Return whether the first line holds column names."""
    lines = start.removeprefix("sep=").splitlines() or [""]
    head = lines[0] if len(lines[0]) > 1 else "".join(lines[1:2])
    fields = [field.strip(" \"'") for field in re.split(r"[,;\t]", head)]
    plain = set(map(plain_name, fields))
    return bool(plain & {*NAMES["step"], *NAMES["loss"], *NAMES["validation_loss"]} or set(fields) & set(named))


def _text(path: Path, content: bytes) -> str:
    """Decode a text in UTF-8."""
    try:
        text = content.decode("utf-8-sig")
        if "\0" not in text:
            return text
    except UnicodeDecodeError:
        pass
    raise UserError(
        f"{path}: not a text in UTF-8, nor Parquet or Feather; export it as CSV with the columns step and loss"
    )


def _read_csv(path: Path, content: bytes) -> LogFile:
    """Read a CSV table without a half-written last line and repeated headers."""
    notes = []
    content, cut = _without_cut_line(content)
    if cut:
        notes.append(_dropped(cut))
    header = io.BytesIO(content).readline()
    if repeats := content.count(b"\n" + header) if header.strip() else 0:
        content = header + content.replace(header, b"")
        notes.append(f"the header is there {repeats + 1} times, as in concatenated files: the first one counts")
    from toposcale.forecasting.logs import table_files  # imports pyarrow

    table, separator = table_files.parse_csv(content, path)
    return LogFile(table_files.columns_of(table, path), f"CSV separated by {separator}", tuple(notes))


def _without_cut_line(content: bytes) -> tuple[bytes, str]:
    """Return a CSV without an incomplete last line, and that line; "" if the last line is complete."""
    if content.endswith((b"\n", b"\r")) or content.count(b"\n", 0, 65536) < 2:
        return content, ""
    *before, last = (line.strip() for line in content[-4096:].split(b"\n"))
    before = before[1:] or before
    separator = max((b",", b";", b"\t"), key=before[-1].count)
    fewer = last.count(separator) < before[-1].count(separator)
    lengths = [len(line.rsplit(separator, 1)[-1]) for line in before]
    if fewer or len(last.rsplit(separator, 1)[-1]) < min(lengths):
        return content[: content.rindex(b"\n") + 1], last.decode("utf-8", "replace")
    return content, ""


def _read_text(path: Path, text: str) -> LogFile:
    """Read a text log without a last line that does not end, since it may be half-written."""
    if text.lstrip().startswith("[{'"):  # a list of transformers' dictionaries, as Python prints it
        text = text.replace("}, {", "}\n{")
    complete, end, last = text.rpartition("\n")
    is_cut = end and last and not last.rstrip().endswith(("}", "]"))
    log = text_logs.read(complete if is_cut else text)
    if log.without_step > log.matched:
        raise UserError(
            f"{path}: {log.without_step:,} lines have a loss and no step; give a log with both, or the {FILE_NAME} "
            "that transformers' Trainer writes beside its checkpoints"
        )
    if not log.matched:
        raise UserError(f"{path}: no line with a step and a loss; {TEXT_LOGS}")
    notes = [f"read as a text log: {log.matched:,} of {log.lines:,} lines are those of {log.pattern}"]
    notes += [_dropped(last)] if is_cut else []
    columns = log.columns | {name: np.full(log.matched, value) for name, value in log.facts.items()}
    return LogFile(columns, "text log", tuple(notes))


def _read_json(path: Path, text: str, suffix: str, named: Collection[str]) -> LogFile:
    """Read JSON objects: one per line, as W&B and many training loops write them, or a list, as data frames do."""
    notes: list[str] = []
    objects = _objects(path, text, suffix, notes)
    if objects is None:
        return _read_text(path, text)
    closing = sum(_CLOSING in entry for entry in objects)
    steps = {*named, *NAMES["step"]}
    rows = [_flat(entry) for entry in objects if _CLOSING not in entry]
    stepped = [row for row in rows if not steps.isdisjoint(row) or not steps.isdisjoint(map(str.lower, row))]
    if stepped and (lost := sum("loss" in row for row in rows) - sum("loss" in row for row in stepped)):
        notes.append(f"{lost:,} rows have a loss and no step: they were left out")
    if closing:
        notes.append("the summary of the whole training was left out")
    return LogFile(columns_of(stepped or rows), "JSON, one object a row", tuple(notes))


def _objects(path: Path, text: str, suffix: str, notes: list[str]) -> list[dict[str, Any]] | None:
    """Return the JSON objects of a text; None if its first line is not JSON, so that it is a text log."""
    try:
        content = parse_json(text)  # fails at once for one object per line
    except ValueError as error:
        if together := _one_after_another(text, notes):
            return together
        first = text.lstrip().split("\n", 1)[0].strip()
        if not first.startswith("{") or first == "{":
            if suffix in (*_LISTS, *_LINES) or first in ("{", "["):
                raise UserError(f"{path}: not JSON ({error})") from error
            return None
    else:
        if isinstance(content, dict):
            content = _rows_of(content) or (None if suffix in _LISTS else [content])
        entries = [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
        if not entries:
            raise UserError(
                f"{path}: neither a list of objects with a step and a loss nor the state of a Trainer ({FILE_NAME})"
            )
        if left_out := len(content) - len(entries):
            notes.append(f"{left_out} of {len(content):,} entries are not objects: they were left out")
        return entries
    objects: list[dict[str, Any]] = []
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        try:
            objects.append(parse_json(line))
        except ValueError as error:
            if number == lines[-1][0] and objects:
                notes.append(_dropped(line))
                break
            if not objects and (suffix not in (*_LISTS, *_LINES) or line.startswith("{'")):
                return None
            if suffix in _LISTS:
                raise UserError(f"{path}: not JSON ({error})") from error
            raise UserError(f"{path}: line {number} is not JSON, one object a line ({error})") from error
        if not isinstance(objects[-1], dict):
            raise UserError(f"{path}: line {number} is not JSON, one object a line (it holds something else)")
    return objects


def _one_after_another(text: str, notes: list[str]) -> list[dict[str, Any]]:
    """Return the objects of a list that is cut, or of a text of objects that are not one a line; [] for other texts."""
    objects, between, decoder = list[dict[str, Any]](), re.compile(r"\s*,?\s*(?=\{)"), json.JSONDecoder()
    start = text.find("[") + 1 if text.lstrip().startswith("[") else 0
    try:
        parse_json(text[start:].lstrip().split("\n", 1)[0])
        return []  # one object a line
    except ValueError:
        pass
    while following := between.match(text, start):
        try:
            entry, start = decoder.raw_decode(text, following.end())
        except (ValueError, RecursionError):
            break
        objects.append(entry)
    rest = text[start:].strip().strip(",]").strip()
    if len(objects) < 2 or rest.count("{") > 1 or rest[:1] not in ("", "{"):
        return []
    notes += [_dropped(" ".join(rest.split()))] if rest else []
    return objects


def _rows_of(content: Mapping[str, Any]) -> list[Any]:
    """Return the rows in a JSON object: a list in it of objects, or those of its columns; [] if there are none."""
    if "log_history" in content:
        return content["log_history"]
    lists = {name: values for name, values in content.items() if isinstance(values, list) and len(values) > 1}
    for rows in lists.values():
        if isinstance(rows[0], dict):
            return rows
    columns = lists if len(lists) > 1 and len(set(map(len, lists.values()))) == 1 else {}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _dropped(line: str) -> str:
    """Return the note on a half-written last line."""
    return f"the last line, {line[:40]!r}, is half-written: it was dropped"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the entries of nested objects under names such as `train/loss`."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {f"{name}/{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the columns of rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column_of([row.get(name) for row in rows]) for name in names}


def column_of(values: Sequence[Any]) -> np.ndarray:
    """Return JSON values as float64, NaN if missing and infinite if a NaN was logged; texts as objects."""
    try:
        numbers = np.array(values, dtype=np.float64)
        if numbers.ndim != 1:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([_number(value) for value in values], dtype=np.float64)
        if not np.isfinite(numbers).any() and any(isinstance(value, str) for value in values):
            texts = np.empty(len(values), dtype=object)
            texts[:] = values
            return texts
    for index in np.flatnonzero(np.isnan(numbers)).tolist():
        if _number(values[index]) is not None:
            numbers[index] = np.inf
    return numbers


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
