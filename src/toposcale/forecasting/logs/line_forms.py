"""Forms of the lines of text logs: a line becomes a form when its numbers are replaced by a mark.

What the numbers of all lines of a form are is found once: by the grammar of a program that fits it, and else by the generic
grammar, the name in front of each number (or behind it, where a loss is named so).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from toposcale.forecasting.logs.grammars import GRAMMARS, MARK, fit_of
from toposcale.forecasting.logs.names import (
    BITS,
    COUNTERS,
    END,
    OF_THE_BATCH,
    PERPLEXITY,
    RANKS,
    TEST,
    TRAINING,
    VALIDATION,
    loss_name,
    plain_name,
    word_sets,
)
from toposcale.forecasting.logs.trainer_states import SUMMARY

_THOUSANDS = "(?:,|_|'|\u2019|\u00a0|\u202f)"  # what separates them
_CORE = rf"[-+]?(?:(?:\d{{1,3}}(?:{_THOUSANDS}\d{{3}})++(?![\d,_])|\d++)(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
# Its thousands, millions or bytes, which differ within a log.
_UNIT = "(?:[kKMBGT](?![a-zA-Z0-9])| ?[kKMGT]i?B(?![a-zA-Z0-9])| [MB](?= *+(?:[|,;)]|$)))?"
NUMBER = re.compile(
    r"(?=[-+.\dni])(?:(?<![a-z_\d.])|(?<=step)|(?<=step_)|(?<=iter)|(?<=iteration)|(?<=epoch)|(?<=rank)|(?<=default))"
    rf"((?:{_CORE}|(?<!of )(?:nan|inf|n/a|none)(?![a-z_]))){_UNIT}",
    re.IGNORECASE,
)
"""A number of a line, with its unit; in the first group without it."""

MAX_NUMBERS = 60
"""Numbers of a line beyond which it is read by itself."""

BATCH, BATCHES, RAW = "batch", "batches", "raw"
"""Names of a count without a name, such as that of a progress bar, of its total, and of a loss that is not smoothed."""

NOT_UNDERSTOOD = "not understood"
SEVERAL = "several losses"
IN_BITS = "in bits; a loss must be in nats per token: bits per token x 0.6931"
_NO_EVALUATION = "an evaluation that is not called a loss, such as an accuracy"
_NO_STEP_LOSS = "a best or mean loss, or an evaluation on another text"
SUMMARIES = {
    re.compile(f".*{SUMMARY}"): "a summary of the training",
    re.compile(f"{MARK}/{MARK} (?=.*- loss: {MARK})(?=.*(?:- ETA: |s/step))"): (
        "means since the epoch began, as Keras prints them; log each batch with CSVLogger"
    ),
}
"""Reasons why lines are left out, some by a pattern of their keys."""

_SPACES = re.compile(r"^(?:\\[ \t])+|(?:\\[ \t])+$")
"""Escaped spaces around a number, which differ with its width."""

_WRAPPERS = re.compile(r"\W*(?:\w+\.)?(?:b?float\d*|tensor|array)$")
_NAME_END = " :=([{<\"'\t.#~@\u2026-"
_SEPARATORS = re.compile(r"[|,;:=()\[\]{}<>\"'\t]|\. ")
_NAME_BEHIND = re.compile(r" ?([a-z][a-z/_ -]*?) ?(?:(?:[,;|(]| -+ ).*)?", re.DOTALL)
_OPENING_BAR = re.compile(r"\0%\|[^\[]*+\[[^,\]=]*+(?:,[^,\]=]*+/[^,\]=]*+)?")
_OTHER_BAR = re.compile(r"%\|.*\0 ?(?:examples|tokens|samples|files|[kMG]?B)/s")  # of the data, as those of datasets
_OF_SAMPLES = re.compile(r"\[ ?\0/\0 \(\0%\)|loss: \0 \[ ?\0/\0\]")
_JUNK, _NEVER, _NO_COUNTER, _UNITS = word_sets(
    "info debug warning root log logger main trainer",
    "best lowest min minimum previous prev last old scale scaler scaling scaled",
    "per time tokens samples ms sec s seconds avg best save every log warmup total max num skipped nan remaining last "
    "previous next each ago accumulation accum inner outer",
    "tokens samples sequences examples epochs s sec secs seconds min minutes h hours ms k m b",
)
_LEADING_JUNK = re.compile(f"^(?:(?:{'|'.join(sorted(_JUNK))})_)+")


@dataclass(frozen=True, eq=False)
class Form:
    """Lines that differ only in their numbers.

    key: the line with marks in the place of its numbers, and single spaces. line: one of them. names: column of each number
    that is read, by its position in the line. counter: name of the step, "" without one; other_counters: those that it
    comes before. program: whose grammar fits. is_evaluation, is_heading: what it says of the lines. opening: words up to
    the loss. marks: words of a split in it. text: name of the text of an evaluation. reason: why they are left out.
    """

    key: str
    line: str = ""
    names: Mapping[int, str] = field(default_factory=dict)
    counter: str = ""
    other_counters: frozenset[str] = frozenset()
    program: str = ""
    is_evaluation: bool = False
    is_heading: bool = False
    opening: str = ""
    marks: frozenset[str] = frozenset()
    text: str = ""
    reason: str = ""

    @property
    def is_bar(self) -> bool:
        """Return whether it is a progress bar that counts steps, and holds no loss."""
        return "%|" in self.key and bool(self.counter) and not self.splits and not _OTHER_BAR.search(self.key)

    @property
    def is_read(self) -> bool:
        """Return whether its lines are rows: they hold a loss, or the step of losses on other lines."""
        return not self.reason and bool(self.splits or self.is_heading or self.is_bar)

    @cached_property
    def splits(self) -> frozenset[frozenset[str]]:
        """Splits of the losses of a line."""
        losses = map(loss_name, self.names.values())
        return frozenset(loss.split for loss in losses if loss and not loss.is_part)

    @property
    def ends_at_loss(self) -> bool:
        """Return whether its last number is a loss and its last word."""
        return self.key.endswith(MARK) and loss_name(self.names.get(self.key.count(MARK) - 1, "")) is not None

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """Expression whose groups are the numbers of a line of the form that are read, and any other line.

        It need not take every line of the form: the others are read one by one.
        """
        numbers = [*NUMBER.finditer(self.line)]
        ends = [0, *(number.end() for number in numbers)]
        starts = [*(number.start() for number in numbers), len(self.line)]
        parts = [
            _SPACES.sub(r"[ \\t]++", re.escape(self.line[end:start])) for end, start in zip(ends, starts, strict=True)
        ]
        text = ""
        for at, number in enumerate(numbers):
            digits = "([-+.\\deE]++)" if at in self.names else "[-+.\\deE]++"
            text += parts[at] + digits + (_UNIT if number[0] != number[1] else "")
        return re.compile(rf"[ \t]*+{text}{parts[-1]}[ \t]*+\n|(.*+)\n".encode())


def key_of(line: str) -> str:
    """Return a line with marks in the place of its numbers."""
    return " ".join(NUMBER.sub(MARK, line).split())


def form_of(line: str) -> Form:
    """Return the form of a line."""
    key = key_of(line)
    if reason := next((reason for pattern, reason in SUMMARIES.items() if pattern.match(key)), ""):
        return Form(key, reason=reason)
    numbers = _Numbers([number[0].strip() for number in NUMBER.finditer(line)], key.lower().split(MARK))
    fit = fit_of(key)
    if fit is None or not GRAMMARS[fit.program].is_whole:
        numbers.name_all()
    if fit and fit.names:
        others = {at: name for at, name in numbers.names.items() if name not in fit.names.values()}
        numbers.names, numbers.reason = others | fit.names, ""
    counter, other_counters = numbers.choose_counter()
    losses = [at for at, name in numbers.names.items() if (loss := loss_name(name)) and not loss.is_part]
    words = re.findall(
        r"[a-z][a-z_/]*", _OPENING_BAR.sub("", MARK.join(numbers.literals[: min(losses, default=-1) + 1]))
    )
    marks = [word for word in words if word in VALIDATION | TEST]
    if "epoch" in numbers.names.values() and not (fit and END in fit.names.values()):
        # A total is that of an epoch, perhaps.
        numbers.names = {at: BATCHES if name == END else name for at, name in numbers.names.items()}
    return Form(
        key,
        line.strip(),
        dict(sorted(numbers.names.items())),
        counter,
        other_counters,
        program=fit.program if fit and not fit.is_heading else "",
        is_evaluation=bool(fit and fit.is_evaluation),
        is_heading=bool(fit and fit.is_heading),
        opening=" ".join(word for word in words if word not in _UNITS),  # times grow from seconds to hours
        marks=frozenset(marks) & TEST if marks and marks[-1] in TEST else frozenset(marks),  # the nearest to the loss
        text=numbers.text,
        reason="" if losses and not numbers.is_left_out else numbers.reason,
    )


@dataclass
class _Numbers:
    """Numbers of a line, of which the generic grammar names some.

    texts: the numbers. literals: what stands between them, in lower case. names: columns by position. text: name of the
    text of an evaluation. reason: why a number is not read; is_left_out: whether the line is not.
    """

    texts: Sequence[str]
    literals: Sequence[str]
    names: dict[int, str] = field(default_factory=dict)
    text: str = ""
    reason: str = ""
    is_left_out: bool = False

    def leave_out(self, reason: str) -> None:
        """Leave out the line."""
        self.is_left_out, self.reason = True, reason

    def name_all(self) -> None:
        """Name the numbers by the words around them."""
        given, behind = "", _names_behind(self.literals)
        for at in range(len(self.texts)):
            if at not in self.names:
                given = self._name_one(at, behind.get(at) or _name(self.literals[at]) or given, at in behind)
        counts = bool({*self.names.values()} & {*COUNTERS, BATCH})
        if counts and not self.literals[0].strip(" [") and self.literals[1][:1] in (":", "]"):
            self.names.setdefault(0, "rank")
        if not counts:  # tqdm without a total
            self.names |= {at: BATCH for at in range(len(self.texts)) if self.literals[at + 1].startswith("it [")}

    def choose_counter(self) -> tuple[str, frozenset[str]]:
        """Name the surest counter `step` and its total; return its name, "" without one, and those of the others."""
        counters = {at: name for at, name in self.names.items() if name in COUNTERS}
        bare = next((at for at, name in self.names.items() if name == BATCH), None)
        step = max(counters, key=lambda at: COUNTERS[counters[at]], default=bare)
        if step is None:
            return "", frozenset()
        if bare is not None and bare < step and any("%|" in literal for literal in self.literals[: bare + 1]):
            step = bare  # tqdm writes 12345 as 1.23e+4 behind its bar
        name, total = self.names[step], self.names.get(step + 1, "")
        dropped = {*COUNTERS, BATCH, BATCHES, END} - {"micro_step"}
        self.names = {at: column for at, column in self.names.items() if column not in dropped} | {step: "step"}
        if total in (BATCHES, END) and COUNTERS.get(name, 9) > COUNTERS["micro_step"]:
            self.names[step + 1] = END
        return name, frozenset(counters.values()) - {name}

    def _name_one(self, at: int, name: str, is_behind: bool) -> str:
        """Name a number and, if it is one of several (`3/10`, `3 of 10`), the next one; return a name for the next one."""
        literals, names = self.literals, self.names
        before, after = literals[at : at + 2]
        has_next = at + 2 < len(literals)
        if not is_behind and (re.match(r"[a-z%]", after) or re.search(r"\((?:t|m?s)\)\W*$|\blr\($", before)):
            return ""  # a unit
        is_ratio = has_next and after.strip() in ("/", "of")
        is_time_or_share = (after == ":" and has_next) or re.fullmatch(r"\d*\.\d*[1-9]\d*", self.texts[at])
        counter = "" if is_time_or_share else _counter(name)
        if is_ratio and (not name or name in TRAINING) and not before.endswith("/") and literals[at + 2][:1] != "/":
            nearby = MARK.join(["", literals[at], *literals[at + 1 : at + 4]])
            if not _OF_SAMPLES.search(nearby) and not _OF_SAMPLES.fullmatch(MARK.join(literals)):
                names |= {at: BATCH, at + 1: BATCHES}
        elif counter and not (is_ratio and {*name.split("_")} & VALIDATION):
            if after == " " and has_next and not re.match("[a-z%:]", literals[at + 2]):
                self.leave_out(NOT_UNDERSTOOD)  # its thousands, perhaps
            names |= {at: counter} | ({at + 1: END} if is_ratio else {})
            return match[1] if (match := re.match(r"(.*loss)_(?:at|after|for|on)_", name)) else ""
        elif name == RAW and loss_name(names.get(at - 1, "")):
            names |= {at: names[at - 1], at - 1: f"smoothed_{names[at - 1]}"}
        elif column := self._loss(at, name) or _other_column(name):
            names[at] = column
        return ""

    def _loss(self, at: int, name: str) -> str:
        """Return the column of a loss such as `validation_loss`, its own name where another has that one; "" if none."""
        literals, loss, words = self.literals, loss_name(name), set(re.split(r"[^a-z]+", name))
        if BITS.search(name) or (loss and BITS.match(literals[at + 1].lstrip(" (["))):
            self.reason = IN_BITS
            return ""
        if loss is None and set(name.split("_")) <= TRAINING | VALIDATION | TEST:
            if not any("loss" in literal for literal in literals) and name in ("eval", "evaluate"):
                self.reason = _NO_EVALUATION
            elif "." in self.texts[at] or not self.texts[at].isdecimal():
                loss = loss_name(f"{name}_loss")
        if loss is None and (evaluation := text_of_evaluation(name)):
            self.text, name = evaluation
            loss = loss_name(name)
        if loss is None and "loss" in words:
            if not _NEVER.union(VALIDATION, TEST).intersection(words):
                self.leave_out(NOT_UNDERSTOOD)
            elif not {"scale", "scaled"}.intersection(words):
                self.reason = _NO_STEP_LOSS
        if loss is None:
            return ""
        content = [
            word for word in re.split(r"[^a-z0-9]+", name) if word not in TRAINING | VALIDATION | TEST | {"reduced"}
        ]
        prefix = "validation_" if loss.split is VALIDATION else "test_" if loss.split is TEST else ""
        column = name if loss.is_part else prefix + "_".join(dict.fromkeys(content or ["loss"]))
        is_again = not loss.is_part and column in self.names.values()
        if is_again and name not in self.names.values() and name != column:
            return name  # both are losses of one split: choices asks
        if is_again or _is_one_of_several(name, literals, at):
            self.leave_out(SEVERAL)
        return column


def _names_behind(literals: Sequence[str]) -> dict[int, str]:
    """Return the names of numbers that stand behind them, by position, where a loss is named so: `9.71 train loss, ...`."""
    matches = {at: match for at, text in enumerate(literals[1:]) if (match := _NAME_BEHIND.fullmatch(text))}
    names = {at: plain_name(match[1]) for at, match in matches.items()}
    is_behind = any(
        loss_name(name) and (at == len(literals) - 2 or literals[at + 1].rstrip().endswith((",", ";", "|", " -")))
        for at, name in names.items()
    )
    return names if is_behind else {}


def _is_one_of_several(name: str, literals: Sequence[str], at: int) -> bool:
    """Return whether a loss is the start of a number with a decimal comma, or the first of several under its name."""
    after = literals[at + 1]
    is_followed = after == "," or after.strip() in ("/", "->") or (after == ", " and literals[at][-1:] in ("[", "("))
    is_of_two_splits = bool(TRAINING & {*name.split("/")} and VALIDATION & {*re.split("[/_]", name)})
    return at + 2 < len(literals) and (is_followed or (is_of_two_splits and not re.search("[a-z]", after)))


def text_of_evaluation(name: str) -> tuple[str, str] | None:
    """Return the text and the plain rest of a name such as `eval/c4/cross_entropy`; None if it is another one."""
    first, *between = name.split("/")
    plain = f"{first}/{between.pop()}" if between else name
    loss = loss_name(plain)
    is_cross_entropy = loss is not None and loss.is_cross_entropy and loss.split is VALIDATION
    return ("/".join(between), plain) if between and is_cross_entropy else None


def _name(before: str) -> str:
    """Return the plain name at the end of the text in front of a number."""
    text = re.sub(r" ?\([^()]*\)", "", before[-200:]).rstrip(_NAME_END)
    text = _WRAPPERS.sub("", text).rstrip(_NAME_END)
    name = plain_name(_SEPARATORS.split(text)[-1].strip(" -/")).removesuffix("_value").removesuffix("_is")
    return _LEADING_JUNK.sub("", name) if re.search("[a-z]", name) else ""


def _counter(name: str) -> str:
    """Return the name of a number that counts steps, "" if it counts something else."""
    if name in COUNTERS or name == "batch":
        return name if name in COUNTERS else "iteration"
    *words, last = name.split("_")
    if ("loss" in words and not {"at", "after", "for", "on"} & set(words)) or set(words) & _NO_COUNTER:
        return ""
    if last not in ("step", "steps", "iteration", "iter", "update", "updates"):
        return ""
    return "global_step" if "global" in words else "optimizer_step" if "optimizer" in words else last


def _other_column(name: str) -> str:
    """Return the column of an epoch, a perplexity, the batch, a process, a learning rate or a norm; "" if none."""
    if name.endswith("epoch") and set(name.split("_")[:-1]) <= _JUNK | TRAINING | VALIDATION | {"current"}:
        return "epoch"
    if PERPLEXITY.search(name):
        return "validation_perplexity" if set(name.split("_")) & VALIDATION else "perplexity"
    if name in OF_THE_BATCH or name in RANKS:
        return name
    if re.fullmatch(r"(?:optim/)?(?:lr|learning_rate)", name):
        return "learning_rate"
    is_norm = name in ("norm", "global_norm", "total_norm") or name.endswith(("grad_norm", "gradient_norm", "gnorm"))
    return "gradient_norm" if is_norm else ""


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
