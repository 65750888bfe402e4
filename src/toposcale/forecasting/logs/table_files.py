"""Read the user's own tables: Parquet, Feather or CSV in any of its habits, as it is or compressed."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from toposcale.forecasting.runs.schedules import SHAPES, ScheduleTable
from toposcale.io.errors import UserError, as_user_error, did_you_mean
from toposcale.io.files import read_plain_or_gzip

MAX_COLUMNS = 10_000
"""A hundred times the columns of the widest log at hand (43); each costs a third of a millisecond and 11 kB."""

_SPACED = re.compile("['\u2019 \u00a0\u202f]([0-9]{3})")
_DOTTED = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?")
_COMMAS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
"""Numbers with separated thousands, and with decimal commas."""

_REMEDIES = (
    "delete that line, give each column a name, and where decimals are written with commas, separate the columns by "
    "semicolons"
)
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def read_any(path: str | Path) -> tuple[pa.Table, str]:
    """Read a Parquet or CSV file of the user's; return it with the name of the CSV separator ("" for Parquet).

    Parquet is recognised by its first bytes, and a file may be compressed with gzip. Raise UserError if the file is missing
    or not readable.
    """
    path = Path(path)
    content = read_plain_or_gzip(path)
    if content.startswith(b"PAR1") or ".parquet" in path.suffixes[-2:]:
        return parse_parquet(content, path), ""
    return parse_csv(content, path)


def columns_of(table: pa.Table, path: str | Path) -> dict[str, np.ndarray]:
    """Return the columns of a table: numbers, NaN where missing and infinite where not a number; all else as objects.

    Raise UserError if two columns have one name.
    """
    columns: dict[str, np.ndarray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            raise UserError(f"{path}: two columns are called {name}; rename or remove one")
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            columns[name] = np.concatenate([np.empty(0), *map(_numbers, column.chunks)])
        else:
            columns[name] = np.empty(len(column), dtype=object)
            columns[name][:] = column.to_pylist()
    return columns


def read_schedule(path: str | Path) -> ScheduleTable:
    """Return the schedule of a table with step and learning_rate; raise UserError if there is none in the file."""
    try:
        if not Path(path).exists():
            raise ValueError(f"neither a shape ({', '.join(SHAPES)}) nor a file{did_you_mean(str(path), SHAPES)}")
        columns = columns_of(read_any(path)[0], path)
        steps, rates = _column_named(columns, "step"), _column_named(columns, "learning_rate", "lr")
        if np.any(steps % 1):
            raise ValueError("step: whole numbers")
        return ScheduleTable(tuple(steps.astype(int).tolist()), tuple(rates.tolist()))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error


def _column_named(columns: Mapping[str, np.ndarray], *names: str) -> np.ndarray:
    """Return the column of one of these names, also behind a prefix (train/lr); ValueError unless there is exactly one."""
    if len(present := [column for column in columns if column.lower().rpartition("/")[2] in names]) != 1:
        how_many = f"{' and '.join(present)} are each a" if present else "no"
        raise ValueError(f"{how_many} column {names[0]}; a schedule has step and learning_rate (or lr)")
    return np.asarray(columns[present[0]], dtype=np.float64)


def _numbers(array: pa.Array) -> np.ndarray:
    """Return numbers as float64: NaN where missing, infinite where NaN."""
    # From its buffers, since every method of Arrow's that converts imports pyarrow.compute or pandas, a tenth of `advise`.
    known, content = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    values = np.frombuffer(content, array.type.to_pandas_dtype())[rows].astype(np.float64)
    values[np.isnan(values)] = np.inf
    if known is not None:
        values[np.unpackbits(np.frombuffer(known, np.uint8), bitorder="little")[rows] == 0] = np.nan
    return values


def parse_parquet(content: bytes, path: str | Path) -> pa.Table:
    """Return the table of a user's Parquet or Feather file; raise UserError if it is damaged."""
    import pyarrow.parquet as pq  # here, since most logs are CSV

    with as_user_error(path, "not a readable Parquet or CSV table", (pa.ArrowException, OSError)):
        if content.startswith(b"ARROW1"):
            return pa.ipc.open_file(pa.BufferReader(content)).read_all()
        return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)


def parse_csv(content: bytes, path: str | Path, first_line: int = 0) -> tuple[pa.Table, str]:
    """Return the table of a CSV file, and the name of its separator.

    The separator is that of a first line `sep=;`, as Excel writes it, or else the most frequent of comma, semicolon and tab
    in the first line. Decimal commas, and commas or dots between thousands, are parsed. first_line: lines of the file
    before the content, for messages. Raise UserError if it is not one.
    """
    head = content[: content.find(b"\n") + 1 or None].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    separator = max(_SEPARATORS, key=head.count)
    if head.lower().startswith("sep=") and head[4:] in (*_SEPARATORS, ""):
        separator, content = head[4:] or "\t", content.split(b"\n", 1)[1] if b"\n" in content else b""
        first_line += 1
    if "\0" in head or "\ufffd" in head:
        raise UserError(f"{path}: not a text in UTF-8, so not a CSV table")

    fields = Counter(field.strip(' "') for field in head.split(separator))
    if (twice := fields.most_common(1)[0])[1] > 1 and twice[0]:
        raise UserError(f"{path}: two columns are called {twice[0]}; rename or remove one")

    if fields.total() == 1 and re.search(r"\S[ |]+\S", head):
        raise UserError(f"{path}: its first line, {head[:60]!r}, is no CSV; separate the columns by commas: step,loss")
    if fields.total() > MAX_COLUMNS:
        raise UserError(
            f"{path}: {fields.total():,} columns, of which {MAX_COLUMNS:,} are read; keep the step and the loss"
        )

    def parsed(texts: Iterable[str] = ()) -> pa.Table:
        # "nan" is a value that is not finite, an empty field a missing one.
        empty = ["", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "None", "-", "No log"]
        return csv.read_csv(
            pa.BufferReader(content),
            csv.ReadOptions(use_threads=False),  # threads that outlive the interpreter may abort it
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(null_values=empty, column_types=dict.fromkeys(texts, pa.string())),
        )

    try:
        data = parsed()
        grouped = {name: _grouped(data[name].to_pylist()) for name in _columns(data, pa.types.is_string)}
        if any(is_decimal for _, is_decimal in filter(None, grouped.values())):  # commas are, so dots are not
            texts = parsed(names := _columns(data, pa.types.is_floating))
            grouped |= {name: _grouped(texts[name].to_pylist(), dots=True) for name in names}
    except (pa.ArrowException, OSError) as error:
        row = re.search(r"Row #(\d+): (.*)", str(error).splitlines()[0])
        reason = f"line {int(row[1]) + first_line:,}: {row[2]:.80}; {_REMEDIES}" if row else str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet or CSV table ({reason})") from error
    if numbers := {name: pa.array(column[0], pa.float64()) for name, column in grouped.items() if column}:
        data = pa.table([numbers.get(name, data[at]) for at, name in enumerate(data.schema.names)], data.schema.names)
    return data, _SEPARATORS[separator]


def _columns(data: pa.Table, is_type: Callable[[pa.DataType], bool]) -> list[str]:
    """Return the names of the columns of a type that are there once."""
    counts = Counter(data.schema.names)
    return [field.name for field in data.schema if is_type(field.type) and counts[field.name] == 1]


def _grouped(cells: Sequence[str | None], *, dots: bool = False) -> tuple[list[float | None], bool] | None:
    """Return the numbers of texts of which some have grouped digits or a comma, and whether that is decimal.

    Commas separate thousands if all of them can, and some number has none or the numbers rise; otherwise they are decimal.
    Dots do if all of them can, and some number has two, or it is known (`dots`) that they are not decimal. Spaces and
    apostrophes always do. None if they are not numbers, or as they stand.
    """
    texts = [_SPACED.sub(r"\1", (cell or "").strip()) for cell in cells]
    commas, dotted = ([text for text in texts if mark in text] for mark in (",", "."))
    is_decimal = False
    if dotted and (dots or any(text.count(".") > 1 for text in dotted)) and all(map(_DOTTED.fullmatch, dotted)):
        texts = [text.replace(".", "").replace(",", ".") for text in texts]
    elif commas and all(map(_COMMAS.fullmatch, commas)) and (len(commas) < sum(map(bool, texts)) or _rise(commas)):
        texts = [text.replace(",", "") for text in texts]
    elif commas and all(map(_DECIMAL_COMMA.fullmatch, commas)):
        texts, is_decimal = [text.replace(",", ".") for text in texts], True
    elif commas or texts == [(cell or "").strip() for cell in cells]:
        return None
    try:
        return [float(text) if text else None for text in texts], is_decimal
    except ValueError:  # some are texts
        return None


def _rise(texts: Sequence[str]) -> bool:
    numbers = [float(text.replace(",", "")) for text in texts]
    return all(one < other for one, other in pairwise(numbers))
