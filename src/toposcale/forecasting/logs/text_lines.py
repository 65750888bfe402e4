"""Lines of a text log, each read by its form: a regular expression reads the lines that are like the one before."""

import io
import re
from collections import defaultdict

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.text_forms import MARK, NUMBER, THOUSANDS, UNREAD, Form, Kind, form_of

LONGEST_LINE, MOST_FORMS = 16384, 10_000
"""Bytes of the longest line that is parsed, and the most forms that are kept."""

TOO_LONG = f"more than {LONGEST_LINE:,} bytes"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BAR = re.compile(r"%\|[^|]*+\|")  # progress bar of tqdm

LinesByReason = defaultdict[str, list[int]]


class Lines:
    """Lines of a text log by form, and what stands between them; left_out: their numbers by reason; notes: on steps."""

    def __init__(self, content: bytes) -> None:
        self.forms: dict[tuple[str, tuple[int, ...]], Form] = {}
        self.n_rows = self.n_lines = 0
        self.left_out: LinesByReason = defaultdict(list)
        self.headers: dict[str, set[int]] = {}
        self.facts: list[tuple[int, str, float]] = []
        self.notes: list[str] = []
        complete = content.count(b"\n")
        last = content[content.rfind(b"\n") + 1 :].rstrip()
        is_cut = complete and last and not last.endswith((b"}", b"]"))
        self.cut = last.decode("utf-8", "replace") if is_cut else ""
        self._read(content, complete if is_cut else complete + 1)
        for form in self.forms.values():
            form.finish()

    def _read(self, content: bytes, n_lines: int) -> None:
        form, fast = Form(), None
        for number, raw in zip(range(1, n_lines + 1), io.BytesIO(content), strict=False):
            if fast is not None and (match := fast(raw)):
                self.n_lines += 1
                form.values.extend((self.n_rows, number, *map(_number, match.groups())))
                self.n_rows += 1
                continue
            for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
                self.n_lines += bool(piece)
                if len(piece) > LONGEST_LINE:
                    self.left_out[TOO_LONG].append(number)
                elif piece and not piece.isspace() and (read := self._slow(number, piece)) and read.fast:
                    form, fast = read, read.fast.fullmatch

    def _slow(self, number: int, piece: bytes, whole: tuple[int, ...] = ()) -> Form | None:
        """Read a line by its form; return it if it is that of a row with a step of its own."""
        line = piece.decode("utf-8", "replace").replace(MARK, " ")
        line = _COLOURS.sub("", line) if "\x1b" in line else line
        line = _BAR.sub("%|", line) if "%|" in line else line
        key = " ".join(NUMBER.sub(MARK, line).split())
        if (form := self.forms.get((key, whole))) is None:
            form = form_of(key, whole)
            if len(self.forms) >= MOST_FORMS and form.kind in (Kind.TRAINING, Kind.EVALUATION):
                form = Form(kind=Kind.LEFT_OUT, reason=UNREAD)
            elif len(self.forms) < MOST_FORMS:
                self.forms[key, whole] = form
        if form.kind is Kind.OTHER:
            if len(rows := self.headers.setdefault(key, set())) <= 64 and len(self.headers) < MOST_FORMS:
                rows.add(self.n_rows)
            return None
        texts = NUMBER.findall(line)
        if integers := tuple(at for at in form.decimals if texts[at].lstrip("+-").isdecimal()):
            return self._slow(number, piece, integers)
        values = [_number(texts[at]) for at in form.names]
        if form.kind is Kind.LEFT_OUT or any("," in texts[at] for at in form.losses):
            self.left_out[form.reason if form.kind is Kind.LEFT_OUT else UNREAD].append(number)
        elif form.kind is Kind.FACT:
            self.facts += [(self.n_rows, name, number_of(texts[at] + form.unit)) for at, name in form.names.items()]
        else:
            form.values.extend((self.n_rows, number, *values))
            self.n_rows += 1
            return form
        return None


def _number(text: str | bytes) -> float:
    """Return a number of a log: infinite for NaN, NaN where nothing was measured."""
    try:
        value = float(text)
    except ValueError:
        text = text.decode() if isinstance(text, bytes) else text
        return np.nan if text.lower() in ("n/a", "none") else float(re.sub(THOUSANDS, "", text))
    return np.inf if value != value else value
