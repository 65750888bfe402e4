"""Text logs: the standard output of training programs.

The lines of each form are read alike (`text_forms`), and rows are made of those of one program: of an unknown one the
training lines must have one form up to the loss.
"""

import io
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, PER_STEP, TEST, TRAINING, VALIDATION, loss_name
from toposcale.forecasting.logs.rows import Log, LogError, half_written
from toposcale.forecasting.logs.text_forms import GRAMMARS, MARK, NUMBER, RANKS, Form, Kind, form_of
from toposcale.forecasting.logs.trainer_states import FILE_NAME
from toposcale.io.errors import counted

ANY = "an unknown program, with a step and a loss"
TEXT_LOGS = f"text logs of {', '.join(GRAMMARS)} are read; else make a CSV with the columns step and loss"

LONGEST_LINE, MOST_FORMS = 16384, 10_000
"""Bytes of the longest line that is parsed, and the most forms that are kept."""

MOST_UNREAD = 1 / 20
"""Largest share of the lines with a loss that may be of no known form."""

_NO_STEP, _UNREAD, _OF_OTHERS, _LONG = (
    "no step",
    "not understood",
    "of another kind",
    f"more than {LONGEST_LINE:,} bytes",
)
"""Reasons why lines are left out, beside those of the forms."""

_GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_DIVIDE = "they count {0}: divide these by the {0} of a step, and give a CSV with the columns step and loss"
_OTHER_AXES = {
    r"\[\s*\d+/\d+ \(\d+%\)\]|\bsamples?\b(?!/)": _DIVIDE.format("samples"),
    r"\btokens?\b(?!/)": _DIVIDE.format("tokens"),
    r"\d\s?k?it/": "the progress bar abbreviates its steps (8.00kit): export the losses of the tracker as CSV",
}
"""Remedies for lines that count something else than steps, by a pattern of them."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BAR = re.compile(r"%\|[^|]*+\|")  # progress bar of tqdm
_BAR_OR_LOSS = re.compile(rb"%\|[^|\n]*+\| (\d++)/(\d++) \[|\{'loss': ([^\n{}]*+)")
_EPOCH = re.compile(rb"'epoch': '?(\d++(?:\.(\d++))?)")


_LinesByReason = defaultdict[str, list[int]]


@dataclass
class _Context:
    """Step and total of a line without a loss, which lines without a step belong to; forms: those that already did."""

    step: float = np.nan
    total: float = np.nan
    row: int = -1
    forms: set[int] = field(default_factory=set)


class _Lines:
    """Rows of the lines of a text log, form by form, and what stands between them; left_out: numbers of lines by reason."""

    def __init__(self, content: bytes, *, bar_follows: bool = False) -> None:
        self.forms: dict[tuple[str, tuple[int, ...]], Form] = {}
        self.n_rows = self.n_lines = 0
        self.left_out: _LinesByReason = defaultdict(list)
        self.headers: dict[str, set[int]] = {}
        self.facts: list[tuple[int, str, float]] = []
        self._context = _Context()
        self.longest_bar = 0.0
        self.bar_follows = bar_follows
        self._waiting: list[tuple[Form, int, list[float]]] = []
        complete = content.count(b"\n")
        last = content[content.rfind(b"\n") + 1 :].rstrip()
        is_cut = complete and last and not last.endswith((b"}", b"]"))
        self.cut = last.decode("utf-8", "replace") if is_cut else ""
        self._read(content, complete if is_cut else complete + 1)
        self.left_out[_NO_STEP] += [number for _, number, _ in self._waiting]

    def _read(self, content: bytes, n_lines: int) -> None:
        form, fast = Form(), None
        for number, raw in zip(range(1, n_lines + 1), io.BytesIO(content), strict=False):
            if fast is not None and (found := fast(raw)):
                self.n_lines += 1
                self._add(form, number, [*map(_number, found.groups())])
                continue
            for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
                self.n_lines += bool(piece)
                if len(piece) > LONGEST_LINE:
                    self.left_out[_LONG].append(number)
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
                form = Form(kind=Kind.UNREAD)
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
        if form.kind is Kind.UNREAD or any("," in texts[at] for at in form.losses):
            self.left_out[_UNREAD].append(number)
        elif form.kind is Kind.LEFT_OUT:
            self.left_out[form.reason].append(number)
        elif form.kind is Kind.FACT:
            self.facts += [(self.n_rows, name, number_of(texts[at] + form.unit)) for at, name in form.names.items()]
        elif form.kind is Kind.STEP:
            self._note(dict(zip(form.names.values(), values, strict=True)))
        elif form.counts:
            self._add(form, number, values)
            return form
        elif self.bar_follows:
            self._waiting.append((form, number, values))
        else:
            self._add_without_step(form, number, values)
        return None

    def _note(self, named: Mapping[str, float]) -> None:
        """Note a step that lines without one belong to; the progress bar of an evaluation is shorter than the other."""
        step = next((value for name, value in named.items() if name in COUNTERS), named.get("batch", np.nan))
        if "batch" in named and step == named["batch"]:
            if named["batches"] < self.longest_bar:
                return
            self.longest_bar = named["batches"]
        self._context = _Context(step, named.get(END, named.get("batches", np.nan)))
        for line in self._waiting:
            self._add_without_step(*line)
        self._waiting.clear()

    def _add(self, form: Form, number: int, values: list[float]) -> None:
        """Add a row."""
        form.rows.append(self.n_rows)
        form.lines.append(number)
        form.values.extend(values)
        self.n_rows += 1
        if self._context.forms:
            self._context = _Context()

    def _add_without_step(self, form: Form, number: int, values: list[float]) -> None:
        """Add a row whose step is that of a line before it, or follows from its epoch, or is that of another row."""
        plan = {name: value for _, name, value in self.facts if name in ("epochs", "optimization_steps")}
        epoch = dict(zip(form.names.values(), values, strict=True)).get("epoch")
        context = self._context
        if id(form) in context.forms:
            self._context = context = _Context()
        if context.step == context.step:
            step, total = context.step, context.total
        elif epoch is not None and len(plan) == 2:
            step, total = round(epoch * plan["optimization_steps"] / max(plan["epochs"], 1)), plan["optimization_steps"]
        elif form.kind is Kind.EVALUATION or form.marks or _has_validation(form):
            step, total = np.nan, np.nan
        else:
            self.left_out[_NO_STEP].append(number)
            return
        if context.row < 0 or context.step != context.step:
            context.row = self.n_rows
            self.n_rows += 1
        context.forms.add(id(form))
        form.rows.append(context.row)
        form.lines.append(number)
        form.values.extend([*values, step, total])


def _number(text: str | bytes) -> float:
    """Return a number of a log: infinite for NaN, NaN where nothing was measured."""
    try:
        value = float(text)
    except ValueError:
        text = text.decode() if isinstance(text, bytes) else text
        return np.nan if text.lower() in ("n/a", "none") else float(text.replace(",", ""))
    return np.inf if value != value else value


def read(content: bytes) -> Log:
    """Read a text log; raise LogError if it holds no losses with steps, or too many lines that are not understood."""
    if content.lstrip().startswith(b"[{'"):  # a list of transformers' dictionaries, as Python prints it
        content = content.replace(b"}, {", b"}\n{")
    lines = _Lines(content, bar_follows=_bar_follows(content))
    forms = _without_launcher([form for form in lines.forms.values() if len(form.rows)], lines.left_out)
    for form in forms:
        _refuse_two_losses(form)
    program = _program(forms)
    forms = _understood(forms, program, lines.left_out)
    n_read, without_step = _n_rows(forms), lines.left_out.pop(_NO_STEP, [])
    if len(without_step) > n_read:
        text = _line(content, without_step[0])
        remedy = next((what for axis, what in _OTHER_AXES.items() if re.search(axis, text, re.I)), _GIVE_STEPS)
        count = counted(len(without_step), "line has", "lines have")
        raise LogError(f"{count} a loss and no step; {remedy}")
    of_others = lines.left_out.pop(_OF_OTHERS, [])
    unread = sorted([*lines.left_out.pop(_UNREAD, []), *of_others, *without_step])
    left_out = [
        f"{counted(len(numbers), 'line was', 'lines were')} left out ({reason}), the first: line {min(numbers):,} "
        f"({_line(content, min(numbers))[:80]!r})"
        for reason, numbers in lines.left_out.items()
    ]
    count = counted(len(unread), "line with a loss was", "lines with a loss were")
    missed = f"{count} not understood, the first: line {unread[0]:,}" if unread else ""
    if len(unread) > MOST_UNREAD * (n_read + len(unread)):
        first = min((form.lines[0] for form in forms if form.kind is Kind.TRAINING), default=0)
        kinds = f" beside line {first:,} ({_line(content, first)[:80]!r}): give the lines of one kind" if first else ""
        beside = kinds if unread[0] in of_others else ""
        raise LogError(f"{missed} ({_line(content, unread[0])[:80]!r}){beside}; {TEXT_LOGS}")
    if not n_read:
        raise LogError("; ".join(["no line with a step and a loss", *left_out, TEXT_LOGS]))
    _name_counters(forms)
    columns, at_lines, headers = _assembled(lines, forms)
    notes = [f"read as a text log: {n_read:,} of {lines.n_lines:,} lines are those of {program or ANY}"]
    notes += [half_written(lines.cut)] if lines.cut else []
    notes += left_out
    if lines.longest_bar and not all(form.counts for form in forms):
        notes.append(f"the step of a loss is that of the progress bar {'after' if lines.bar_follows else 'before'} it")
    notes += _with_steps(columns, precedes=bool(program) and GRAMMARS[program].precedes)
    _count_over_epochs(columns)
    return Log(columns, "text log", notes, [missed] if missed else [], at_lines, headers, program)


def _bar_follows(content: bytes) -> bool:
    """Return whether the step of a loss is that of the progress bar after it, as where tqdm writes the line."""
    bars, places, epochs, longest, digits = [np.nan], list[int](), list[float](), 0, 1
    for step, total, entry in _BAR_OR_LOSS.findall(content):
        if total and int(total) >= longest:  # not that of an evaluation
            longest = int(total)
            bars.append(float(step))
        elif not total and (epoch := _EPOCH.search(entry)):
            places.append(len(bars))
            epochs.append(float(epoch[1]))
            digits = max(digits, len(epoch[2] or b""))
    if len(places) < 3 or len(bars) < 3:
        return False
    half, epoch_of = 0.501 * 10.0**-digits, np.array(epochs)

    def fit(steps: np.ndarray) -> list[bool]:
        interval = np.nanmin(np.abs(np.diff(steps)), initial=np.inf)
        most = steps / np.maximum(epoch_of - half, 1e-200)
        return [
            bool(np.isfinite(steps[:-1]).all()),
            bool(np.nanmax(steps / (epoch_of + half), initial=0) <= np.nanmin(most, initial=np.inf)),
            bool(interval > 0 and not np.any(steps[np.isfinite(steps)] % interval)),
            bool(steps[0] == interval),
        ]

    before, after = (np.array([*bars, np.nan])[np.array(places) - back] for back in (1, 0))
    if fit(before) == fit(after) and not np.array_equal(before, after):
        raise LogError(
            f"whether a loss belongs to the progress bar before it or after it is unknown; give the {FILE_NAME} "
            "that transformers' Trainer writes beside its checkpoints"
        )
    return fit(after) > fit(before)


def _without_launcher(forms: list[Form], left_out: _LinesByReason) -> list[Form]:
    """Return the forms but for those of a launcher whose lines alternate with those of the program that it launched."""
    for name in (name for name, grammar in GRAMMARS.items() if grammar.is_launcher):
        own = [form for form in forms if name not in form.programs]
        lines, of_training = (
            np.array(sorted(line for form in group if form.kind is Kind.TRAINING for line in form.lines))
            for group in ([form for form in forms if form not in own], own)
        )
        turns = len(np.unique(np.searchsorted(of_training, lines)))
        if 2 * turns > min(len(lines), len(of_training)) > 0:
            left_out[f"losses of {name}, beside those of its training"] += lines.tolist()
            return own
    return forms


def _refuse_two_losses(form: Form) -> None:
    """Raise LogError if some steps have two losses in lines of one form, such as those of an evaluation."""
    if form.kind is not Kind.TRAINING or not form.counts or RANKS & set(form.names.values()):
        return
    names = [*form.names.values()]
    of_step = next(at for at, name in enumerate(names) if name in COUNTERS or name == "batch")
    of_loss = next(at for at, name in enumerate(names) if loss_name(name))
    steps, losses = (np.array(form.values[at :: len(names)]) for at in (of_step, of_loss))
    again = np.flatnonzero((np.diff(steps) == 0) & (losses[1:] != losses[:-1])) + 1
    if 2 < len(again) < 0.2 * len(steps) and np.all(np.diff(steps) >= 0):
        raise LogError(
            f"{len(again):,} steps have two losses, the first in lines {form.lines[again[0] - 1]:,} and "
            f"{form.lines[again[0]]:,}; if one is of an evaluation, call it val_loss"
        )


def _line(content: bytes, number: int) -> str:
    """Return the start of a line."""
    start = next(itertools.islice(io.BytesIO(content), number - 1, None)).lstrip(b"\r")[:2000]
    return start.decode("utf-8", "replace").split("\r")[0].strip()


def _program(forms: Sequence[Form]) -> str:
    """Return the program whose grammar takes most rows, "" if it takes less than half of them."""
    counts: Counter[str] = Counter()
    for form in forms:
        counts.update(dict.fromkeys(form.programs, len(form.rows)))
    best = max(counts, key=lambda name: counts[name], default="")
    return best if 2 * counts[best] >= max(sum(len(form.rows) for form in forms), 1) else ""


def _understood(forms: Sequence[Form], program: str, left_out: _LinesByReason) -> list[Form]:
    """Return the forms that are read, with the losses of evaluations as such; the lines of the others are left out.

    A mark of a split tells lines apart only if not all of them have it, and if most training lines have none.
    """
    common = frozenset.intersection(*(form.marks for form in forms)) if forms else frozenset()
    training = [form for form in forms if form.kind is Kind.TRAINING]
    marked = [form for form in training if form.marks - common and not _has_validation(form)]
    if _n_rows(marked) <= _n_rows([form for form in training if form not in marked]):
        for form in marked:
            form.kind, prefix = Kind.EVALUATION, "test_" if form.marks - common <= TEST else "validation_"
            losses = {at: name for at, name in form.names.items() if loss_name(name)}
            form.names = {**form.names, **{at: f"{prefix}{name}" for at, name in losses.items()}}
    training = [form for form in training if form.kind is Kind.TRAINING]
    alone, both = ([form for form in training if _has_validation(form) is has] for has in (False, True))
    is_logged = any(program in form.programs and not form.is_evaluation for form in both)
    if _n_rows(alone) > _n_rows(both) and not is_logged:
        for form in both:  # the training loss of an evaluation is a separate estimate
            form.kind = Kind.EVALUATION
            form.names = {at: name if _split(name) is not TRAINING else "estimate" for at, name in form.names.items()}
        training = alone
    rows_of: Counter[str] = Counter()
    for form in training:
        rows_of[form.opening] += len(form.rows)
    usual = max(rows_of, key=lambda opening: rows_of[opening], default="")
    group = [form for form in training if (program in form.programs if program else form.opening == usual)]
    whole = max(group, key=lambda form: len(form.rows), default=None)
    others = [form for form in training if form not in group or (form is not whole and _is_cut(form, whole))]
    read = [form for form in forms if form not in others]
    several = [form for form in read if form.text]
    if len({form.text for form in read if _has_validation(form)}) <= 1:
        several = []
    for form in (*others, *several):
        left_out[_OF_OTHERS if form in others else "evaluations on several texts"] += form.lines
    return [form for form in read if form not in several]


def _is_cut(form: Form, whole: Form | None) -> bool:
    """Return whether one or two lines end at their loss, where others go on."""
    ends_at_loss = form.key.endswith(MARK) and max(form.losses) == form.key.count(MARK) - 1
    return whole is not None and len(form.rows) <= 2 and ends_at_loss and whole.key.startswith(form.key)


def _name_counters(forms: Sequence[Form]) -> None:
    """Give the steps of lines that count one thing one name: `step`, or that of the lines with two counters."""
    counters = [[name for name in form.names.values() if name in COUNTERS] for form in forms]
    both = {name for names in counters if len(names) > 1 for name in names}
    in_forms = Counter(name for names in counters for name in names)
    best = max(sorted(both), key=lambda name: (in_forms[name], COUNTERS[name]), default="step")
    for form, names in zip(forms, counters, strict=True):
        if len(names) == 1:
            form.names = {at: best if name in names else name for at, name in form.names.items()}


def _n_rows(forms: Sequence[Form]) -> int:
    return sum(len(form.rows) for form in forms)


def _split(name: str) -> frozenset[str] | None:
    return said.split if (said := loss_name(name)) else None


def _has_validation(form: Form) -> bool:
    return any(_split(name) in (VALIDATION, TEST) for name in form.names.values())


def _assembled(lines: _Lines, forms: Sequence[Form]) -> tuple[dict[str, np.ndarray], np.ndarray, list[frozenset[int]]]:
    """Return the columns of the forms (rows,), the line of each row, and the rows before which headers stand."""
    is_read = np.zeros(lines.n_rows + 1, dtype=bool)
    for form in forms:
        is_read[np.frombuffer(form.rows, dtype=np.int64)] = True
    index = np.cumsum(is_read) - is_read
    n = int(is_read.sum())
    columns: dict[str, np.ndarray] = {}
    at_lines = np.zeros(n, dtype=np.int64)
    for form in forms:
        rows = index[np.frombuffer(form.rows, dtype=np.int64)]
        names = [*form.names.values(), *(() if form.counts else ("step", END))]
        values = np.frombuffer(form.values).reshape(len(rows), len(names))
        at_lines[rows] = form.lines
        for at, name in enumerate(names):
            columns.setdefault(name, np.full(n, np.nan))[rows] = values[:, at]
    for name in {name for _, name, _ in lines.facts} & {PER_STEP, PARAMETERS}:
        columns[name] = _stated(n, [(int(index[row]), value) for row, one, value in lines.facts if one == name])
    headers = [frozenset(index[[*rows]].tolist()) for rows in lines.headers.values() if len(rows) <= 64]
    columns.pop("estimate", None)
    return columns, at_lines, headers


def _stated(n: int, facts: Sequence[tuple[int, float]]) -> np.ndarray:
    """Return the last value of a fact at each row, NaN where two were stated between the same rows."""
    column = np.full(n, np.nan)
    for row in dict.fromkeys(row for row, _ in facts):
        values = {value for at, value in facts if at == row}
        column[row:] = values.pop() if len(values) == 1 else np.nan
    return column


def _with_steps(columns: dict[str, np.ndarray], *, precedes: bool) -> list[str]:
    """Give evaluations without a step that of the row before or, if they precede theirs, after them; return a note."""
    counters = [name for name in columns if name in (*COUNTERS, "batch")]
    known = ~np.all([np.isnan(columns[name]) for name in counters], axis=0) if counters else np.empty(0, bool)
    if known.all() or not known.any():
        return []
    rows, at = np.flatnonzero(known), np.arange(len(known))
    before = np.maximum(np.searchsorted(rows, at, side="right") - 1, 0)
    after = np.minimum(np.searchsorted(rows, at), len(rows) - 1)
    source = rows[after if precedes else before]
    for name in (*counters, END, "batches", "epoch"):
        if name in columns:
            columns[name] = np.where(known, columns[name], columns[name][source])
    place = "after" if precedes else "before"
    count = counted(int(np.sum(~known)), "validation loss has", "validation losses have")
    return [f"{count} no step: that of the row {place} each was taken"]


def _count_over_epochs(columns: dict[str, np.ndarray]) -> None:
    """Make batches of epochs, and the places of progress bars, steps of the training."""
    batch, batches, epochs = (columns.pop(name, None) for name in ("batch", "batches", "epochs"))
    counter = next((name for name in columns if name in COUNTERS), "")
    if counter and batch is not None:
        known = np.isfinite(columns[counter]) & np.isfinite(batch)
        if known.any() and np.mean(np.abs(columns[counter] - batch)[known] <= 1) < 0.9:  # batches beside updates
            batch = None
    if batch is None or batches is None:
        if counter and END in columns:
            steps, ends = columns[counter], columns[END]
            columns[counter], columns[END] = _over_epochs(steps, ends, columns.get("epoch"), epochs)
        return
    steps, ends = _over_epochs(batch, batches, columns.get("epoch"), epochs)
    missing = np.full(len(ends), np.nan)
    for name, values in ((counter or "step", steps), (END, ends)):
        before = columns.get(name, missing)
        columns[name] = np.where(np.isnan(before), values, before)


def _over_epochs(
    steps: np.ndarray, ends: np.ndarray, epoch: np.ndarray | None, epochs: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and their last one, of batches that begin again in each epoch: (epoch - 1) x batches + batch."""
    known = np.empty(0, bool) if epoch is None else np.isfinite(epoch) & np.isfinite(steps)
    if epoch is None or not known.any() or np.any(epoch[known] % 1):
        return steps, ends
    begins = np.flatnonzero(np.diff(epoch[known]) > 0)
    starts_again = len(begins) and np.all(np.diff(steps[known])[begins] < 0)
    if len(begins) and not starts_again:  # they are counted over all epochs
        return steps, ends
    if starts_again and len(np.unique(ends[known])) > 1:
        raise LogError("its epochs have different numbers of batches; make a CSV with step and loss")
    n_epochs = np.nanmax(epochs) if epochs is not None and np.isfinite(epochs).any() else np.nan
    first = 0 if epoch[known].min() == 0 else 1
    return ((epoch - first) * ends + steps if starts_again else steps), ends * n_epochs
