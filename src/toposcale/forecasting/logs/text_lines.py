"""Lines of a text log by form: most are read a block at a time, by an expression of the form that most lines have."""

import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from toposcale.forecasting.amounts import LEAST_PARAMETERS
from toposcale.forecasting.logs.grammars import MARK, fact_of, fits, plain_content, without_prefix
from toposcale.forecasting.logs.line_forms import NUMBER, UNREAD, Form, Kind, form_of, number_of_log
from toposcale.forecasting.logs.names import COUNTERS, PARAMETERS, loss_name

LONGEST_LINE, MOST_FORMS, BLOCK = 16384, 10_000, 1 << 18
"""Bytes of the longest line that is parsed, the most forms that are kept, and bytes that are read at once."""

TOO_LONG = f"more than {LONGEST_LINE:,} bytes"
ABBREVIATED = "a number is abbreviated, such as 1.2k, which a pattern reads"
_BAR = re.compile(rb"%\|[^|\r\n]*+\|")  # progress bar of tqdm

LinesByReason = defaultdict[str, list[int]]


class Lines:
    """Lines of a text log by form, and what stands between them.

    A row is the index of its line, where a redrawn line counts as several. left_out: numbers of lines by reason. headers:
    rows of each line without a number that is read. facts: row, name and value. cut: the last line, if it is half-written.
    """

    def __init__(self, content: bytes) -> None:
        self.forms: dict[tuple[str, tuple[int, ...]], Form] = {}
        self.left_out: LinesByReason = defaultdict(list)
        self.headers: dict[str, set[int]] = {}
        self.facts: list[tuple[int, str, float]] = []
        self.notes: list[str] = []
        self.cut = ""
        is_whole = content.endswith((b"\n", b"\r"))
        content = plain_content(content)
        self._line_of: np.ndarray | None = None
        if b"\r" in content:
            characters = np.frombuffer(content, np.uint8)
            ends = characters[(characters == ord("\n")) | (characters == ord("\r"))]
            self._line_of = 1 + np.cumsum(ends == ord("\n")) - (ends == ord("\n"))
            content = content.replace(b"\r", b"\n")
        self.content = _BAR.sub(b"%|", content) if b"%|" in content else content
        self.n_rows = self.content.count(b"\n")
        self.n_lines = self.n_rows - self.content.startswith(b"\n") - self.content.count(b"\n\n") * (b"\r" in content)
        self._read(self.n_rows if is_whole else self.n_rows - 1)
        if not is_whole:
            self._read_last(self.n_rows - 1, self.content[self.content.rfind(b"\n", 0, -1) + 1 : -1])
        for form in self.forms.values():
            form.finish()
            form.lines = self.numbers(form.rows)

    def numbers(self, rows: Any) -> Any:
        """Return the numbers of the lines of rows, or of one row."""
        return np.asarray(rows) + 1 if self._line_of is None else self._line_of[rows]

    def text(self, number: int) -> str:
        """Return the start of the last row of a line."""
        row = number - 1 if self._line_of is None else int(np.searchsorted(self._line_of, number))
        start = 0
        for _ in range(row):
            start = self.content.index(b"\n", start) + 1
        return self.content[start : start + 2000].decode("utf-8", "replace").lstrip("\n").split("\n")[0].strip()

    def _read(self, n_rows: int) -> None:
        """Read the first rows, block after block."""
        form, row, start = Form(), 0, 0
        while row < n_rows:
            size = BLOCK if form.table else BLOCK >> 3
            end = self.content.rfind(b"\n", start, start + size) + 1 or self.content.index(b"\n", start) + 1
            block, start = self.content[start:end], end
            *numbers, others = (
                zip(*form.table.findall(block), strict=True) if form.table else (block.split(b"\n")[:-1],)
            )
            counts: Counter[Form] = Counter()
            if numbers:
                counts[form] = form.add(row, numbers)
            for at, line in enumerate(others) if counts[form] < len(others) else ():
                if line and row + at < n_rows and (read := self._slow(row + at, line)):
                    counts[read] += 1
            row += len(others)
            form = max(counts, key=lambda one: counts[one] if one.table else 0, default=form)

    def _read_last(self, row: int, line: bytes) -> None:
        """Read a last line without a newline if it has the whole form of others, or ends as a grammar's lines do."""
        key = _key(_decoded(line[:LONGEST_LINE]))
        read = [known for (known, _), form in self.forms.items() if form.kind is not Kind.OTHER]
        before = [text for text in self.content[-4096:-1].split(b"\n")[1:-1] if _key(_decoded(text)) == key]
        is_whole = key in read and (
            not key.endswith(MARK) or any(len(_last(text)) <= len(_last(line)) for text in before)
        )
        if is_whole or not read or key.endswith(("}", "]")) or (key.endswith(("|", ")", "%")) and fits(key)):
            self._slow(row, line)
        elif MARK in key or "loss" in key.lower():
            self.cut = line.decode("utf-8", "replace")

    def _slow(self, row: int, raw: bytes, whole: tuple[int, ...] = ()) -> Form | None:
        """Read a line by its form; return it if it is that of a row."""
        if len(raw) > LONGEST_LINE:
            self._leave_out(TOO_LONG, row)
            return None
        line = _decoded(raw)
        key = _key(line)
        form = self.forms.get((key, whole)) or self._new_form(key, whole, line, raw)
        if form.kind is Kind.OTHER:
            is_header = not form.counts and len(self.headers) < MOST_FORMS
            if is_header and len(rows := self.headers.setdefault(key, set())) <= 64:
                rows.add(row)
            return None
        if form.kind is Kind.FACT:
            self._add_fact(row, line)
            return None
        tokens = [*NUMBER.finditer(line)] if form.names or form.decimals else []
        if integers := tuple(at for at in form.decimals if tokens[at][1].lstrip("+-").isdecimal()):
            return self._slow(row, raw, integers)
        are_abbreviated = [name for at, name in form.names.items() if tokens[at][0] != tokens[at][1]]
        if form.kind is Kind.LEFT_OUT or any("," in tokens[at][1] for at in form.losses):
            self._leave_out(form.reason if form.kind is Kind.LEFT_OUT else UNREAD, row)
        elif any(name in COUNTERS or name == "batch" or loss_name(name) for name in are_abbreviated):
            self._leave_out(ABBREVIATED, row)
        else:
            texts = [tokens[at][1] if name not in are_abbreviated else "none" for at, name in form.names.items()]
            form.values.extend((row, *map(number_of_log, texts)))
            return form
        return None

    def _new_form(self, key: str, whole: tuple[int, ...], line: str, raw: bytes) -> Form:
        """Return the form of a line that is like none before it, and keep it unless there are too many."""
        is_prefixed = len(raw.decode("utf-8", "replace")) > len(line)
        form = Form(key, Kind.FACT) if fact_of(line) else form_of(key, whole, is_prefixed=is_prefixed)
        if len(self.forms) < MOST_FORMS:
            self.forms[key, whole] = form
        elif form.kind in (Kind.TRAINING, Kind.EVALUATION):
            return Form(kind=Kind.LEFT_OUT, reason=UNREAD)
        return form

    def _leave_out(self, reason: str, row: int) -> None:
        self.left_out[reason].append(int(self.numbers(row)))

    def _add_fact(self, row: int, line: str) -> None:
        """Add a fact; parameters that make no language model are noted instead."""
        name, value = fact_of(line) or ("", 0.0)
        if name == PARAMETERS and value < LEAST_PARAMETERS:
            note = f"line {self.numbers(row):,} states {value:g} parameters, which make no language model: not read"
            self.notes += [note] if note not in self.notes else []
        else:
            self.facts.append((row, name, value))


def _decoded(raw: bytes) -> str:
    return without_prefix(raw.decode("utf-8", "replace").replace(MARK, " "))


def _key(line: str) -> str:
    return " ".join(NUMBER.sub(MARK, line).split())


def _last(raw: bytes) -> bytes:
    """Return the last word of a line."""
    return raw.split()[-1]
