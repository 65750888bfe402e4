"""Lines of a text log by form: most are read a block at a time, by the expression of the form that most lines have."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.grammars import MARK, fact_of, fit_of, plain_content
from toposcale.forecasting.logs.line_forms import MAX_NUMBERS, NOT_UNDERSTOOD, NUMBER, Form, form_of, key_of
from toposcale.forecasting.logs.names import COUNTERS, TRAINING, loss_name

MAX_LINE_BYTES = 16384
"""Length beyond which a line is counted and not parsed: that of a printed configuration or text, not of a loss."""

MAX_FORMS = 10_000
"""Forms that are kept: a log has tens, a text that is no log one a line."""

BLOCK_BYTES = 1 << 18
"""Bytes that are read at once, a few thousand lines."""

MIN_MILLISECONDS = 1e12
"""Milliseconds until September 2001, before any metric of MLflow."""

TOO_LONG = f"more than {MAX_LINE_BYTES:,} bytes"
ABBREVIATED = "a number is abbreviated, such as 1.2k, or has separated thousands, which a pattern reads"

_PLAIN_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|n/a|none", re.IGNORECASE)
_BAR = re.compile(rb"%\|[^|\r\n]*+\|")  # progress bar of tqdm
_DICTIONARY = re.compile(rb"\{\s*+(?:['\"][^{}\n]*+\n\s*+)++(?:['\"][^{}\n]*+)?\}")
"""Dictionary or JSON object that is printed over several lines, whose loss may stand before its step."""


class Lines(NamedTuple):
    """Lines of a text log without colours and without what containers put before them; a redrawn one is several rows.

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
    """Lines of one form: their rows, (lines,), and their numbers by column, (lines,) each."""

    form: Form
    rows: np.ndarray
    columns: Mapping[str, np.ndarray]

    @property
    def is_training(self) -> bool:
        """Return whether a training loss is among the numbers."""
        return TRAINING in self.splits and not self.form.is_evaluation

    @property
    def splits(self) -> set[frozenset[str]]:
        """Splits of the losses among the numbers."""
        losses = map(loss_name, self.columns)
        return {loss.split for loss in losses if loss and not loss.is_part}

    def without(self, *names: str) -> "Reading":
        """Return the lines without the numbers of some columns."""
        return replace(self, columns={name: self.columns[name] for name in self.columns if name not in names})


@dataclass
class Gathered:
    """Content of the lines of a log, gathered while they are read.

    values: row and numbers of single lines by form; blocks: tables of them. left_out: rows by reason. facts: row, name and
    value. cut: the last line, if half-written.
    """

    forms: dict[str, Form] = field(default_factory=dict)
    values: dict[Form, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[Form, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    left_out: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    facts: list[tuple[int, str, float]] = field(default_factory=list)
    cut: str = ""

    def readings(self) -> list[Reading]:
        """Return the lines of each form; none of a form whose three numbers do not begin with a time."""
        readings = []
        for form in self.forms.values():
            names = [*form.names.values()]
            table = np.concatenate(
                [np.reshape(self.values.get(form, ()), (-1, 1 + len(names))), *self.blocks.get(form, ())]
            )
            table = table[np.argsort(table[:, 0], kind="stable")]
            columns = {name: table[:, at].copy() for at, name in enumerate(names, 1)}
            if len(table) and not np.any(columns.pop("milliseconds", MIN_MILLISECONDS) < MIN_MILLISECONDS):
                readings.append(Reading(form, table[:, 0].astype(int), columns))
        return readings


def gather(lines: Lines) -> Gathered:
    """Read the lines, block after block; a last one without a newline is kept if it is whole."""
    gathered, form, row, start = Gathered(), Form(""), 0, 0
    n_rows = lines.n_rows - (not lines.is_whole)
    while row < n_rows:
        size = BLOCK_BYTES if form.key else BLOCK_BYTES >> 3
        end = lines.content.rfind(b"\n", start, start + size) + 1 or lines.content.index(b"\n", start) + 1
        block, start, counts = lines.content[start:end], end, Counter[Form]()
        if form.key:
            *numbers, others = zip(*form.expression.findall(block), strict=True)
            counts[form] = _add_block(gathered, form, row, numbers)
            others = others if counts[form] else tuple(block.split(b"\n")[:-1])
        else:
            others = tuple(block.split(b"\n")[:-1])
        for at, line in compress(zip(count(row), others, strict=False), others):
            if at < n_rows and (read := _add_line(gathered, at, line)):
                counts[read] += 1
        row += len(others)
        form = max((one for one in counts if one.key.count(MARK) < MAX_NUMBERS), key=counts.__getitem__, default=form)
    if not lines.is_whole:
        _add_last(gathered, lines)
    return gathered


def _add_block(gathered: Gathered, form: Form, row: int, numbers: Sequence[Sequence[bytes]]) -> int:
    """Add the lines of a block that have the numbers of a form, and return how many they are; row: that of its first."""
    is_of_form = [*map(bool, numbers[0])]
    at = np.flatnonzero(is_of_form)
    try:
        columns = [np.array([*map(float, compress(texts, is_of_form))]) for texts in numbers]
    except ValueError:  # digits that are no number
        return 0
    gathered.blocks[form].append(np.column_stack([at + row, *columns]))
    return len(at)


def _add_line(gathered: Gathered, row: int, raw: bytes) -> Form | None:
    """Read a line by its form; return it if it is that of a row."""
    if len(raw) > MAX_LINE_BYTES:
        gathered.left_out[TOO_LONG].append(row)
        return None
    line = _decoded(raw)
    key = key_of(line)
    form = gathered.forms.get(key)
    if form is None:
        is_full = len(gathered.forms) >= MAX_FORMS  # too many to know those of all
        form = Form(key, reason=NOT_UNDERSTOOD if "loss" in line.lower() else "") if is_full else form_of(line)
        gathered.forms |= {} if is_full else {key: form}
    if not form.is_read:
        if fact := fact_of(line):
            gathered.facts.append((row, *fact))
        elif form.reason:
            gathered.left_out[form.reason].append(row)
        return None
    texts = [number[0].strip() for number in NUMBER.finditer(line)]
    values = [_number(texts[at]) for at in form.names]
    if any(value is None and _is_needed(name) for value, name in zip(values, form.names.values(), strict=True)):
        gathered.left_out[ABBREVIATED].append(row)
        return None
    gathered.values[form].append([row, *(np.nan if value is None else value for value in values)])
    return form


def _add_last(gathered: Gathered, lines: Lines) -> None:
    """Read a last line without a newline if it has the whole form of others, or ends as a grammar's lines do."""
    line = lines.content[lines.content.rfind(b"\n", 0, -1) + 1 : -1]
    key = key_of(_decoded(line[:MAX_LINE_BYTES]))
    read = [known for known, form in gathered.forms.items() if form.is_read or form.reason]
    before = [text for text in lines.content[-4096:-1].split(b"\n")[1:-1] if key_of(_decoded(text)) == key]
    is_long_enough = not key.endswith(MARK) or any(len(text.split()[-1]) <= len(line.split()[-1]) for text in before)
    is_whole = key in read and is_long_enough
    if is_whole or not read or key.endswith(("}", "]")) or (key.endswith(("|", ")", "%")) and fit_of(key)):
        _add_line(gathered, lines.n_rows - 1, line)
    elif MARK in key or "loss" in key.lower():
        gathered.cut = line.decode("utf-8", "replace")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace(MARK, " ")


def _number(text: str) -> float | None:
    """Return a number of a log: infinite for NaN, NaN where nothing was measured; None for one with a unit."""
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    if text.lower() in ("n/a", "none"):
        return np.nan
    value = float(text)
    return np.inf if value != value else value


def _is_needed(name: str) -> bool:
    """Return whether a line without a number of this name is not read."""
    return name in COUNTERS or loss_name(name) is not None
