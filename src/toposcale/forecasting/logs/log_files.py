"""Read the files of training logs (CSV, Parquet, JSON, text) as rows, by their content before their name."""

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from toposcale.forecasting.logs import json_logs, patterns, text_logs
from toposcale.forecasting.logs.names import is_step_or_loss
from toposcale.forecasting.logs.rows import LogError, Rows, half_written
from toposcale.io.files import read_plain_or_gzip

_TABLES = (".csv", ".tsv")
_NO_TEXT = (
    "not a text in UTF-8, so not a CSV table or a text log, nor Parquet or Feather; export it as CSV with the columns step "
    "and loss"
)

OTHER_FILES = {
    rb"PK\x03\x04.{26,200}data\.pkl|\x80\x02\x8a\nl\xfc|.{4}\0{4}\{\"": (
        "weights of a model; give the log of its training, or describe the weights: toposcale describe FILE"
    ),
    rb"\xfd7zXZ\0": "compressed with xz; unpack it: xz -dk FILE",
    rb"BZh[1-9]1AY&SY": "compressed with bzip2; unpack it: bzip2 -dk FILE",
    rb"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it: zstd -dk FILE",
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "an Excel workbook or a zip archive; save the sheet with the losses as CSV",
    rb"GGUF": "GGUF weights; give the log of the training",
    rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF": "a picture or a PDF; give the numbers that it shows as CSV",
    rb"\s*<(?:!DOCTYPE|html)": "a web page; give the losses as CSV, as the tracker exports them",
}
"""Kinds of files that hold no log, each with its remedy, by a pattern of their first bytes."""


def content_of(path: Path) -> bytes:
    """Return the content of a file, uncompressed; a text in UTF-16 with its mark, as Windows writes it, in UTF-8."""
    content = read_plain_or_gzip(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content


def read(path: Path, named: Collection[str] = (), pattern: str | None = None) -> Rows:
    """Read a file; raise LogError if it is missing, damaged or not a log.

    named: columns that the user named. pattern: expression of the lines of a text log.
    """
    content = content_of(path)
    if pattern is not None:
        return patterns.read(content, pattern)
    suffix = (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
    if content.startswith((b"PAR1", b"ARROW1")) or suffix == ".parquet":
        from toposcale.forecasting.logs import table_files  # imports pyarrow

        form = "Feather" if content.startswith(b"ARROW1") else "Parquet"
        return Rows(table_files.columns_of(table_files.parse_parquet(content, path), path), form)
    content = content.rstrip(b"\0")  # a disk that was full
    if content.startswith(b"\0\0"):  # a log that was cut while it was written
        content = content.lstrip(b"\0")
    content = content.removeprefix(b"\xef\xbb\xbf")
    _refuse_others(path, content, suffix)
    start = content[:65536].decode("utf-8", "replace").lstrip()
    if suffix in json_logs.SUFFIXES or json_logs.is_json(start):
        if (rows := json_logs.read(path, content, suffix, named)) is not None:
            return rows
    else:
        begin = _end_of_comments(content, named)
        table = content[begin:] if begin else content
        if suffix in _TABLES or _is_table(table[:65536].decode("utf-8", "replace").lstrip(), named):
            return _read_csv(path, table, content.count(b"\n", 0, begin))
    return text_logs.read(content)


def _refuse_others(path: Path, content: bytes, suffix: str) -> None:
    """Raise LogError for a file of another kind, for text in another encoding, and for NUL bytes amid the lines."""
    for first, what in OTHER_FILES.items():
        if re.match(first, content, re.DOTALL):
            raise LogError(what.replace("FILE", str(path)))
    if suffix == ".ipynb":
        raise LogError("a notebook; copy the table of losses below its cell to a text file, or give the log")
    if (nul := content.find(b"\0")) >= 0:
        if content.count(b"\0", 0, 4096) > min(len(content), 4096) / 100:
            shares = [content[at:4096:2].count(b"\0") / len(content[at:4096:2]) for at in (0, 1)]
            is_wide = min(shares) < 0.1 and max(shares) > 0.9
            raise LogError(_recode("UTF-16LE" if shares[1] > 0.9 else "UTF-16BE", path) if is_wide else _NO_TEXT)
        line = content.count(b"\n", 0, nul) + 1
        raise LogError(
            f"NUL bytes in line {line:,}, as after a crash; delete the line: sed {line}d {path.name} > mended"
        )
    try:
        content[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(content[:4096]) - 3:
            is_text = not re.search(rb"[\x01-\x08\x0e-\x1a]", content[:4096])
            raise LogError(_recode("LATIN1", path) if is_text else _NO_TEXT) from None


def _recode(encoding: str, path: Path) -> str:
    """Return the remedy for a text in an encoding other than UTF-8."""
    command = f"iconv -f {encoding} -t UTF-8 {path} > converted{path.suffix}"
    return f"not in UTF-8, but perhaps in {encoding}; convert it: {command}"


def _end_of_comments(content: bytes, named: Collection[str]) -> int:
    """Return where the first line begins that is not a comment (#), or that names columns."""
    start = 0
    while content.startswith(b"#", start):
        end = content.find(b"\n", start) + 1 or len(content)
        if _is_table(content[start:end].decode("utf-8", "replace"), named):
            break
        start = end
    return start


def _is_table(start: str, named: Collection[str]) -> bool:
    """Return whether the first line holds column names."""
    lines = start.removeprefix("sep=").splitlines() or [""]
    head = lines[0] if len(lines[0]) > 1 else "".join(lines[1:2])
    fields = [field.strip(" \"'") for field in re.split(r"[,;\t]", head[:65536])]
    return any(map(is_step_or_loss, fields)) or bool(set(fields) & set(named))


def _read_csv(path: Path, content: bytes, first_line: int) -> Rows:
    """Read a CSV table without a half-written last line, and without repeated headers."""
    from toposcale.forecasting.logs import table_files  # imports pyarrow

    notes = []
    content, cut = _without_cut_line(content)
    if cut:
        notes.append(half_written(cut))
    header = content[: content.find(b"\n") + 1]
    if header.strip() and b"\n" + header in content:
        content = content.replace(b"\n" + header, b"\n\n")
        notes.append("its header is there several times, as in concatenated files")
    table, separator = table_files.parse_csv(content, path, first_line)
    lines = _lines(content, table.num_rows, first_line)
    form = f"CSV separated by {separator}"
    return Rows(table_files.columns_of(table, path), form, tuple(notes), lines=lines)


def _lines(content: bytes, n_rows: int, first_line: int) -> np.ndarray | None:
    """Return the line of each row, (rows,); None if rows of several lines, in quotes, make it unknown."""
    skipped = content[:4].lower() == b"sep="
    if content.count(b"\n") + (not content.endswith(b"\n")) == n_rows + 1 + skipped:
        return np.arange(n_rows) + first_line + 2 + skipped
    filled = [number for number, line in enumerate(content.split(b"\n"), first_line + 1) if line.strip()]
    return np.array(filled[1 + skipped :]) if len(filled) == n_rows + 1 + skipped else None


def _without_cut_line(content: bytes) -> tuple[bytes, str]:
    """Return a CSV without an incomplete last line, and that line; "" if the last line is complete."""
    *before, last = (line.strip() for line in content[-4096:].split(b"\n"))
    before = before[1:] or before
    if content.endswith((b"\n", b"\r")) or content.count(b"\n", 0, 65536) < 2 or not before:
        return content, ""
    separator = max((b",", b";", b"\t"), key=before[-1].count)
    fewer = last.count(separator) < before[-1].count(separator)
    lengths = [len(line.rsplit(separator, 1)[-1]) for line in before]
    if fewer or len(last.rsplit(separator, 1)[-1]) < min(lengths):
        return content[: content.rindex(b"\n") + 1], last.decode("utf-8", "replace")
    return content, ""
