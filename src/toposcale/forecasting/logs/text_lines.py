"""Lines of a text log by form: most are read a block at a time, by an expression of the form that most lines have."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.grammars import MARK, fact_of, fits, plain_content, without_prefix
from toposcale.forecasting.logs.line_forms import ABBREVIATED, NUMBER, PLAIN_NUMBER, TIME, UNREAD, Form, Kind, form_of
from toposcale.forecasting.logs.names import COUNTERS, END, loss_name

MAX_LINE_BYTES = 16384
"""Length beyond which a line is counted and not parsed: that of a printed configuration or text, not of a loss."""

MAX_FORMS = 10_000
"""Forms that are kept: a log has tens, a text that is no log one a line."""

BLOCK_BYTES = 1 << 18
"""Bytes that are read at once, a few thousand lines."""

MIN_MILLISECONDS = 1e12
"""Milliseconds until September 2001, before any metric of MLflow."""

TOO_LONG = f"more than {MAX_LINE_BYTES:,} bytes"

_BAR = re.compile(rb"%\|[^|\r\n]*+\|")  # progress bar of tqdm
_DICTIONARY = re.compile(rb"\{\s*+(?:['\"][^{}\n]*+\n\s*+)++(?:['\"][^{}\n]*+)?\}")
"""Dictionary or JSON object that is printed over several lines, whose loss may stand before its step."""


class Lines(NamedTuple):
    """Lines of a text log without colours, of which a redrawn one is several rows.

    content: rows that end with newlines. n_rows: their number. line_of: number of the line of each row, None if each row is
    a line. is_whole: whether the last line ended with a newline.
    """

    content: bytes
    n_rows: int
    line_of: np.ndarray | None
    is_whole: bool

    @classmethod
    def of(cls, content: bytes) -> "Lines":
        """Return the lines of a log; a dictionary that is printed over several lines is on its first one."""
        if content.lstrip().startswith(b"[{'"):  # a list of transformers' dictionaries, as Python prints it
            content = content.replace(b"}, {", b"}\n{")
        if b"{" in content:
            content = _DICTIONARY.sub(
                lambda match: b" ".join(match[0].split()) + b"\n" * match[0].count(b"\n"), content
            )
        is_whole, line_of = content.endswith((b"\n", b"\r")), None
        content = plain_content(content)
        if b"\r" in content:
            characters = np.frombuffer(content, np.uint8)
            ends = characters[(characters == ord("\n")) | (characters == ord("\r"))]
            line_of = 1 + np.cumsum(ends == ord("\n")) - (ends == ord("\n"))
            content = content.replace(b"\r", b"\n")
        content = _BAR.sub(b"%|", content) if b"%|" in content else content
        return cls(content, content.count(b"\n"), line_of, is_whole)

    @property
    def n_printed(self) -> int:
        """Return the number of lines, for a note."""
        n_empty = 0 if self.line_of is None else self.content.count(b"\n\n")
        return self.n_rows - self.content.startswith(b"\n") - n_empty

    def numbers(self, rows: Any) -> Any:
        """Return the numbers of the lines of rows, or of one row."""
        return rows + 1 if self.line_of is None else self.line_of[rows]

    def text(self, row: int) -> str:
        """Return the start of a row."""
        start = 0
        for _ in range(row):
            start = self.content.index(b"\n", start) + 1
        return self.content[start : start + 2000].decode("utf-8", "replace").split("\n")[0].strip()

    def quoted(self, row: int) -> str:
        """Return where a row stands and how it begins, for a message."""
        return f"line {self.numbers(row):,} ({self.text(row)[:80]!r})"


@dataclass(frozen=True, eq=False)
class Reading:
    """Lines of one form: their rows, their own ones (rows of several lines are one then), and their numbers by column."""

    form: Form
    kind: Kind
    rows: np.ndarray
    own: np.ndarray
    columns: Mapping[str, np.ndarray]

    def keep(self, which: np.ndarray) -> "Reading":
        """Return the lines of a mask."""
        columns = {name: values[which] for name, values in self.columns.items()}
        return replace(self, rows=self.rows[which], own=self.own[which], columns=columns)


Readings = list[Reading]


def counter_in(columns: Mapping[str, np.ndarray]) -> str:
    """Return the column that counts the updates most surely."""
    return max((name for name in columns if name in COUNTERS), key=lambda name: COUNTERS[name])


@dataclass
class Gathered:
    """Content of the lines of a log, gathered while they are read.

    values: numbers by form, (row, one a name) each; blocks: tables of them. left_out: rows by reason. headers: rows of each
    line without a number that is read. facts: row, name and value. cut: the last line, if half-written.
    """

    forms: dict[tuple[str, tuple[int, ...]], Form] = field(default_factory=dict)
    values: "dict[Form, array[float]]" = field(default_factory=lambda: defaultdict(lambda: array("d")))
    blocks: dict[Form, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    left_out: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    headers: dict[str, set[int]] = field(default_factory=dict)
    facts: list[tuple[int, str, float]] = field(default_factory=list)
    cut: str = ""

    def readings(self) -> Readings:
        """Return the lines of each form; none of a form whose three numbers do not begin with a time."""
        readings = []
        for form in self.forms.values():
            names = [*form.names.values()]
            parts = [*self.blocks.get(form, ()), np.frombuffer(self.values.get(form, b"")).reshape(-1, 1 + len(names))]
            table = np.concatenate(parts)
            table = table[np.argsort(table[:, 0], kind="stable")]
            columns = {name: table[:, at].copy() for at, name in enumerate(names, 1)}
            if len(table) and not np.any(columns.pop(TIME, MIN_MILLISECONDS) < MIN_MILLISECONDS):
                rows = table[:, 0].astype(int)
                readings.append(Reading(form, form.kind, rows, rows, _with_one_counter(form, columns)))
        return readings


def _with_one_counter(form: Form, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns with the count of a progress bar as the step where no better one is there, and the end of that one."""
    counter = form.counter
    batch, batches = columns.pop("batch", None), columns.pop("batches", None)
    steps = batch if counter == "batch" else columns.get(counter)
    epochs = None if form.total_is_known else columns.get("epoch")
    if epochs is not None and steps is not None and not np.any(epochs % 1) and not go_on_over_epochs(epochs, steps):
        columns.pop(END, None)
        batches = None  # those of an epoch, perhaps
    if counter == "batch" and batch is not None:
        return columns | {"step": batch} | ({} if batches is None else {END: batches})
    counted = next((form.names.get(at - 1, "") for at, name in form.names.items() if name == END), "")
    if END in columns and counted in COUNTERS and np.any(np.abs(columns[counted] - columns[counter]) > 1):
        del columns[END]  # the end of an epoch, or of micro-batches
    if counter in columns and batch is not None:  # tqdm writes 12345 as 1.23e+4
        count = columns[counter]
        distance = np.abs(count - batch)
        is_rounded = (count % 100 == 0) & (distance > 1) & (distance <= 0.006 * count)
        columns[counter] = np.where(is_rounded, batch, count)
    return columns


def go_on_over_epochs(epochs: np.ndarray, steps: np.ndarray) -> bool | None:
    """Return whether steps (lines,) go on where an epoch begins; None if none begins."""
    begins = np.diff(epochs) > 0
    return bool(np.all(np.diff(steps)[begins] >= 0)) if begins.any() else None


def gather(lines: Lines) -> Gathered:
    """Read the lines, block after block; a last one without a newline is kept if it is whole."""
    gathered, form, row, start = Gathered(), Form(""), 0, 0
    n_rows = lines.n_rows - (not lines.is_whole)
    while row < n_rows:
        size = BLOCK_BYTES if form.has_table else BLOCK_BYTES >> 3
        end = lines.content.rfind(b"\n", start, start + size) + 1 or lines.content.index(b"\n", start) + 1
        block, start = lines.content[start:end], end
        *numbers, others = (
            zip(*form.table.findall(block), strict=True) if form.has_table else (block.split(b"\n")[:-1],)
        )
        counts: Counter[Form] = Counter()
        if numbers:
            counts[form] = _add_block(gathered, form, row, numbers)
        for at, line in enumerate(others) if counts[form] < len(others) else ():
            if line and row + at < n_rows and (read := _add_line(gathered, row + at, line)):
                counts[read] += 1
        row += len(others)
        form = max((one for one in counts if one.has_table), key=lambda one: counts[one], default=form)
    if not lines.is_whole:
        _add_last(gathered, lines)
    return gathered


def _add_block(gathered: Gathered, form: Form, row: int, numbers: Sequence[Sequence[bytes]]) -> int:
    """Add the lines of a block that have the numbers of a form, and return how many they are; row: that of its first."""
    n = len(numbers[0])
    at = range(n) if all(numbers[0]) else [index for index, text in enumerate(numbers[0]) if text]
    columns = numbers if len(at) == n else [[texts[index] for index in at] for texts in numbers]
    gathered.blocks[form].append(
        np.array([np.array(at, float) + row, *(np.array([*map(float, texts)]) for texts in columns)]).T
    )
    return len(at)


def _add_line(gathered: Gathered, row: int, raw: bytes, whole: tuple[int, ...] = ()) -> Form | None:
    """Read a line by its form; return it if it is that of a row."""
    if len(raw) > MAX_LINE_BYTES:
        gathered.left_out[TOO_LONG].append(row)
        return None
    line = _decoded(raw)
    key = _key(line)
    form = gathered.forms.get((key, whole)) or _new_form(gathered, key, whole, line, raw)
    if form.kind is Kind.OTHER:
        is_header = not form.counts and len(gathered.headers) < MAX_FORMS
        if is_header and len(rows := gathered.headers.setdefault(key, set())) <= 64:
            rows.add(row)
    elif form.kind is Kind.FACT:
        gathered.facts.append((row, *(fact_of(line) or ("", 0.0))))
    elif form.kind is Kind.LEFT_OUT:
        gathered.left_out[form.reason].append(row)
    else:
        texts = [number[0].strip() for number in NUMBER.finditer(line)]
        if integers := tuple(at for at in form.decimals if texts[at].lstrip("+-").isdecimal()):
            return _add_line(gathered, row, raw, integers)
        values = [_number(texts[at]) for at in form.names]
        if any(value is None and _is_needed(name) for value, name in zip(values, form.names.values(), strict=True)):
            gathered.left_out[ABBREVIATED].append(row)
        else:
            gathered.values[form].extend((row, *(np.nan if value is None else value for value in values)))
            return form
    return None


def _new_form(gathered: Gathered, key: str, whole: tuple[int, ...], line: str, raw: bytes) -> Form:
    """Return the form of a line that is like none before it, and keep it; there are too many to know those of all."""
    if len(gathered.forms) >= MAX_FORMS:
        return Form(key, Kind.LEFT_OUT if "loss" in line.lower() else Kind.OTHER, reason=UNREAD)
    is_prefixed = len(raw.decode("utf-8", "replace")) > len(line)
    form = Form(key, Kind.FACT) if fact_of(line) else form_of(key, whole, is_prefixed=is_prefixed)
    gathered.forms[key, whole] = form
    return form


def _add_last(gathered: Gathered, lines: Lines) -> None:
    """Read a last line without a newline if it has the whole form of others, or ends as a grammar's lines do."""
    line = lines.content[lines.content.rfind(b"\n", 0, -1) + 1 : -1]
    key = _key(_decoded(line[:MAX_LINE_BYTES]))
    read = [known for (known, _), form in gathered.forms.items() if form.kind is not Kind.OTHER]
    before = [text for text in lines.content[-4096:-1].split(b"\n")[1:-1] if _key(_decoded(text)) == key]
    is_long_enough = not key.endswith(MARK) or any(len(text.split()[-1]) <= len(line.split()[-1]) for text in before)
    is_whole = key in read and is_long_enough
    if is_whole or not read or key.endswith(("}", "]")) or (key.endswith(("|", ")", "%")) and fits(key)):
        _add_line(gathered, lines.n_rows - 1, line)
    elif MARK in key or "loss" in key.lower():
        gathered.cut = line.decode("utf-8", "replace")


def _decoded(raw: bytes) -> str:
    return without_prefix(raw.decode("utf-8", "replace").replace(MARK, " "))


def _key(line: str) -> str:
    return " ".join(NUMBER.sub(MARK, line).split())


def _number(text: str) -> float | None:
    """Return a number of a log: infinite for NaN, NaN where nothing was measured; None for one with a unit."""
    if not PLAIN_NUMBER.fullmatch(text):
        return None
    if text.lower() in ("n/a", "none"):
        return np.nan
    value = float(text)
    return np.inf if value != value else value


def _is_needed(name: str) -> bool:
    """Return whether a line without a number of this name is not read."""
    return name in COUNTERS or name == "batch" or loss_name(name) is not None
