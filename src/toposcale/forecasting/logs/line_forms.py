"""Forms of the lines of text logs: a line becomes a form when its numbers are replaced by a mark.

What the numbers of all lines of a form are is found once: by the grammar of a program that fits it, or else by the generic
grammar, the name in front of each number (or behind it, where a loss is named so).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from toposcale.forecasting.logs.grammars import GRAMMARS, MARK, PREFIX, fits
from toposcale.forecasting.logs.names import (
    BITS,
    COUNTERS,
    END,
    OF_THE_BATCH,
    PERPLEXITY,
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

PLAIN_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|n/a|none", re.IGNORECASE)
"""A number that is read: others have a unit or separated thousands, which a pattern of the user's may read."""

TIME = "milliseconds"
_OTHER_BAR = re.compile(r"%\|.*\0 ?(?:examples|tokens|samples|files|[kMG]?B)/s")  # of the data, as those of datasets
_OPENING_BAR = re.compile(r"\0%\|[^\[]*+\[[^,\]=]*+(?:,[^,\]=]*+/[^,\]=]*+)?")
_WRAPPERS = re.compile(r"\W*(?:\w+\.)?(?:b?float\d*|tensor|array)$")
_NAME_END = " :=([{<\"'\t.#~@\u2026-"
_SEPARATORS = re.compile(r"[|,;:=()\[\]{}<>\"'\t]|\. ")
_NAME_BEHIND = re.compile(r" ?([a-z][a-z/_ -]*?) ?(?:(?:[,;|(]| -+ ).*)?", re.DOTALL)
_JUNK, _NEVER, RANKS, _NO_COUNTER, _UNITS = word_sets(
    "info debug warning root log logger main trainer",
    "best lowest min minimum previous prev last old scale scaler scaling scaled",
    "rank local_rank global_rank worker gpu device",
    "per time tokens samples ms sec s seconds avg best save every log warmup total max num skipped nan remaining last "
    "previous next each ago accumulation accum inner outer",
    "tokens samples sequences examples epochs s sec secs seconds min minutes h hours ms k m b",
)
_LEADING_JUNK = re.compile(f"^(?:(?:{'|'.join(sorted(_JUNK))})_)+")
_PYTORCH_QUICKSTART = r"loss: \0 \[ ?\0/\0\]"
_OF_SAMPLES = re.compile(r"\[ ?\0/\0 \(\0%\)")

UNREAD = "not understood"
SEVERAL = "several losses"
ABBREVIATED = "a number is abbreviated, such as 1.2k, or has separated thousands, which a pattern reads"
_IN_BITS = "in bits; a loss must be in nats per token: bits per token x 0.6931"
_SUMMARIES = {
    re.compile(f".*{SUMMARY}"): "a summary of the training",
    re.compile(f"{MARK}/{MARK} (?=.*- loss: {MARK})(?=.*(?:- ETA: |s/step))"): (
        "means since the epoch began, as Keras prints them; log each batch with CSVLogger"
    ),
}
NEVER_OFFERED = (*_SUMMARIES.values(), _IN_BITS)
"""Reasons why lines are left out: what they hold is not the loss of a step in nats, whatever a pattern takes of it."""


MAX_NUMBERS = 60
"""Numbers of a line beyond which it is read by itself."""


class Kind(Enum):
    """Kind of the lines of a form."""

    OTHER = "other"
    STEP = "step"
    FACT = "fact"
    TRAINING = "training"
    EVALUATION = "evaluation"
    LEFT_OUT = "left out"


@dataclass(frozen=True, eq=False)
class Form:
    """Lines that differ only in their numbers.

    key: the line with marks in the place of its numbers, and single spaces. names: column of each number that is read, by
    its position in the line. decimals: positions of numbers that must be decimal to be losses. opening: words up to the
    loss. marks: words of a split in it. reason: why they are left out. text: name of the text of an evaluation.
    is_prefixed: whether containers put something before them. programs, is_evaluation: grammars that fit them.
    total_is_known: whether one says that a total is not that of an epoch.
    """

    key: str
    kind: Kind = Kind.OTHER
    names: Mapping[int, str] = field(default_factory=dict)
    decimals: tuple[int, ...] = ()
    opening: str = ""
    marks: frozenset[str] = frozenset()
    reason: str = ""
    text: str = ""
    is_prefixed: bool = False
    programs: frozenset[str] = frozenset()
    is_evaluation: bool = False
    total_is_known: bool = False

    @property
    def counter(self) -> str:
        """Return the name of the number that counts the updates most surely, "batch" if none has another name."""
        counters = [name for name in self.names.values() if name in COUNTERS]
        return max(counters, key=lambda name: COUNTERS[name], default="batch")

    @property
    def counts(self) -> bool:
        """Return whether a number of its lines counts steps."""
        return any(name in COUNTERS or name == "batch" for name in self.names.values())

    @property
    def has_table(self) -> bool:
        """Return whether most of its lines can be read by one expression."""
        return self.kind in (Kind.TRAINING, Kind.EVALUATION) and self.key.count(MARK) < MAX_NUMBERS

    @cached_property
    def table(self) -> re.Pattern[bytes]:
        """Expression whose groups are the numbers of a line of the form that are read, and any other line.

        It need not take every line of the form: the others are read one by one.
        """
        parts = [r"[ \t]++".join(map(re.escape, literal.split(" "))) for literal in self.key.split(MARK)]
        number, anything = r"([-+]?\d++(?:\.\d++)?(?:[eE][-+]?\d++)?)", rf"[-+]?[\d.]++(?:[eE][-+]?\d++)?+{_UNIT}"
        numbers = [number if at in self.names else anything for at in range(len(parts) - 1)]
        numbers = [rf"(?=[-+]?\d*+\.){text}" if at in self.decimals else text for at, text in enumerate(numbers)]
        # Spaces around numbers differ with their width.
        text = "".join(part + number for part, number in zip(parts, [*numbers, ""], strict=True))
        prefix = PREFIX.pattern if self.is_prefixed else ""
        return re.compile(rf"{prefix}[ \t]*+{text}[ \t]*+\n|(.*+)\n".encode())

    @property
    def ends_at_loss(self) -> bool:
        """Return whether its last number is a loss and its last word."""
        return self.key.endswith(MARK) and loss_name(self.names.get(self.key.count(MARK) - 1, "")) is not None

    @property
    def has_validation(self) -> bool:
        """Return whether a number of its lines is a loss of an evaluation."""
        return any(split_of_loss(name) in (VALIDATION, TEST) for name in self.names.values())


def split_of_loss(name: str) -> frozenset[str] | None:
    """Return the split of the name of a loss, None for another name."""
    return loss.split if (loss := loss_name(name)) else None


@dataclass
class _Numbers:
    """Numbers of a line that the generic grammar has read so far; see `Form`."""

    literals: Sequence[str]
    names: dict[int, str] = field(default_factory=dict)
    decimals: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = ""
    is_left_out: bool = False

    @property
    def counts(self) -> bool:
        return any(name in COUNTERS or name == "batch" for name in self.names.values())

    def leave_out(self, reason: str) -> None:
        self.is_left_out, self.reason = True, reason


def form_of(key: str, whole: Collection[int] = (), *, is_prefixed: bool = False) -> Form:
    """Return what the lines of a key are.

    whole: positions of whole numbers, after a word such as `train` that has a loss or something else behind it.
    is_prefixed: whether containers put something before them.
    """
    if reason := next((reason for pattern, reason in _SUMMARIES.items() if pattern.match(key)), ""):
        return Form(key, Kind.LEFT_OUT, reason=reason)
    hits = fits(key)
    numbers = _Numbers(key.lower().split(MARK))
    if not any(GRAMMARS[hit.program].is_whole for hit in hits):
        _name_all(numbers, whole)
    if hits and (named := {at: END if name == "total" else name for at, name in hits[0].names.items()}):
        others = {at: name for at, name in numbers.names.items() if name not in named.values()}
        numbers = _Numbers(numbers.literals, others | named, text=numbers.text)
    names = dict(sorted(numbers.names.items()))
    losses = {at: loss for at, name in names.items() if (loss := loss_name(name)) and not loss.is_part}
    form = Form(
        key,
        is_prefixed=is_prefixed,
        names=names,
        text=numbers.text,
        programs=frozenset(hit.program for hit in hits if not hit.is_heading),
        total_is_known=any({"total", "epoch"} & {*hit.names.values()} for hit in hits),
    )
    if numbers.is_left_out or not losses:
        return _without_loss(form, numbers, is_heading=any(hit.is_heading for hit in hits))
    words = re.findall(r"[a-z][a-z_/]*", _OPENING_BAR.sub("", MARK.join(numbers.literals[: min(losses) + 1])))
    marks = [word for word in words if word in VALIDATION | TEST]
    is_evaluation = any(hit.is_evaluation for hit in hits)
    is_test = bool(marks) and marks[-1] in TEST  # the nearest to the loss
    form = replace(
        form,
        kind=Kind.TRAINING if any(loss.split is TRAINING for loss in losses.values()) else Kind.EVALUATION,
        decimals=tuple(numbers.decimals),
        opening=" ".join(word for word in words if word not in _UNITS),  # times grow from seconds to hours
        marks=frozenset(marks) & TEST if is_test else frozenset(marks) | ({"eval"} if is_evaluation else set()),
        is_evaluation=is_evaluation,
    )
    return form


def _without_loss(form: Form, numbers: _Numbers, *, is_heading: bool) -> Form:
    """Return a form without a loss that is read: left out, the step of losses on other lines, or anything else."""
    if numbers.is_left_out:
        return replace(form, kind=Kind.LEFT_OUT, reason=numbers.reason)
    if _OTHER_BAR.search(form.key):
        return form
    if numbers.reason:
        return replace(form, kind=Kind.LEFT_OUT, reason=numbers.reason)
    return replace(form, kind=Kind.STEP) if form.counts and (is_heading or "%|" in form.key) else form


def _name_all(numbers: _Numbers, whole: Collection[int]) -> None:
    """Name the numbers of a line by the words around them."""
    literals, name = numbers.literals, ""
    behind = _names_behind(literals)
    for at in range(len(literals) - 1):
        if at not in whole and at not in numbers.names:
            name = _name_one(numbers, at, name, behind.get(at))
    if _starts_with_number(literals) and 0 not in whole and not (numbers.counts and literals[1][0] != ":"):
        numbers.names[0] = "rank" if numbers.counts else "step"
    if not numbers.counts:  # tqdm without a total
        numbers.names |= {at: "iteration" for at in range(len(literals) - 1) if literals[at + 1].startswith("it [")}


def _names_behind(literals: Sequence[str]) -> dict[int, str]:
    """Return the names of numbers that stand behind them, by position, where a loss is named so: `9.71 train loss, ...`."""
    matches = {at: match for at, text in enumerate(literals[1:]) if (match := _NAME_BEHIND.fullmatch(text))}
    names = {at: plain_name(match[1]) for at, match in matches.items()}
    is_behind = any(
        loss_name(name) and (at == len(literals) - 2 or literals[at + 1].rstrip().endswith((",", ";", "|", " -")))
        for at, name in names.items()
    )
    return names if is_behind else {}


def _starts_with_number(literals: Sequence[str]) -> bool:
    """Return whether the number at the start of a line may count the steps."""
    if len(literals) < 2 or literals[0].strip(" [(#") or not re.match(r"[\])]?(?:[ |,]|:.)", literals[1]):
        return False
    unit = re.match(r" ?([a-z]+)(?![\w=:]|: )", literals[1])
    is_pair = literals[0].strip() == "[" and literals[1].strip() == ","  # such as [epoch, batch]
    return not is_pair and (unit is None or unit[1] not in _UNITS)


def _name_one(numbers: _Numbers, at: int, given: str, behind: str | None) -> str:
    """Name a number and, if it is one of several (`3/10`, `3 of 10`), the next one; return the name of the next number.

    given: its name, if it has none of its own. behind: the name behind it, where names stand there.
    """
    literals, names = numbers.literals, numbers.names
    before, after = literals[at : at + 2]
    name, following = behind or _name(before) or given, ""
    has_unit = behind is None and bool(re.match(r"[a-z%]", after) or re.search(r"\((?:t|m?s)\)\W*$|\blr\($", before))
    is_ratio = after.strip() in ("/", "of") and at + 2 < len(literals)
    is_time = after == ":" and at + 2 < len(literals)
    column = most = ""
    if is_ratio and (not name or name in TRAINING) and not before.endswith("/") and literals[at + 2][:1] != "/":
        if not _counts_samples(literals, at):
            column, most = "batch", "batches"
    elif at == 0 and not name and _starts_with_number(literals):
        most = END
    elif name == "raw" and loss_name(names.get(at - 1, "")):
        column = names[at - 1]
        names[at - 1] = f"smoothed_{column}"
    elif not (has_unit or is_time or (is_ratio and {*name.split("_")} & VALIDATION)) and (
        counter := _counter(name, after, at)
    ):
        column = counter if counter not in names.values() else ""
        is_followed = after == " " and at + 2 < len(literals) and not re.match("[a-z%:]", literals[at + 2])
        if is_followed and any("loss" in literal for literal in literals):
            numbers.leave_out(UNREAD)  # its thousands, perhaps
        most = END if COUNTERS[counter] > COUNTERS["micro_step"] else ""
        following = match[1] if (match := re.match(r"(.*loss)_(?:at|after|for|on)_", name)) else ""
    elif name.endswith("epoch") and set(name.split("_")[:-1]) <= _JUNK | TRAINING | VALIDATION | {"current"}:
        column = "epoch"
    elif PERPLEXITY.search(name) and loss_name(name) is None:
        column = "validation_perplexity" if set(name.split("_")) & VALIDATION else "perplexity"
    elif not has_unit:
        column = _loss(numbers, at, name) or _other_column(name)
    names |= {at: column} if column else {}
    names |= {at + 1: most} if is_ratio and most else {}
    return following


def _counts_samples(literals: Sequence[str], at: int) -> bool:
    """Return whether a number and its total are those of samples, as in examples of PyTorch."""
    nearby = MARK.join(["", literals[at], *literals[at + 1 : at + 4]])
    return bool(_OF_SAMPLES.search(nearby) or re.fullmatch(_PYTORCH_QUICKSTART, MARK.join(literals)))


def _loss(numbers: _Numbers, at: int, name: str) -> str:
    """Return the column of a loss such as `validation_loss`, its own name beside another of that one; "" if none."""
    literals, names = numbers.literals, numbers.names
    loss, words = loss_name(name), set(re.split(r"[^a-z]+", name))
    if BITS.search(name) or (loss and BITS.match(literals[at + 1].lstrip(" (["))):
        numbers.reason = _IN_BITS
        return ""
    if loss is None and set(name.split("_")) <= TRAINING | VALIDATION | TEST:
        has_loss = any("loss" in literal for literal in literals) or any(map(loss_name, names.values()))
        if name in ("eval", "evaluate") and not has_loss:
            numbers.reason = "an evaluation that is not called a loss, such as an accuracy"
            return ""
        loss = loss_name(f"{name}_loss")
        numbers.decimals.append(at)
    if loss is None and (evaluation := text_of_evaluation(name)):
        numbers.text, name = evaluation
        loss = loss_name(name)
    if loss is None:
        _note_unknown_loss(numbers, words)
        return ""
    if _is_one_of_several(name, literals, at):
        numbers.leave_out(SEVERAL)
    content = [word for word in re.split(r"[^a-z0-9]+", name) if word not in TRAINING | VALIDATION | TEST | {"reduced"}]
    prefix = "validation_" if loss.split is VALIDATION else "test_" if loss.split is TEST else ""
    column = prefix + "_".join(dict.fromkeys(content or ["loss"]))
    column = name if loss.is_part or column in names.values() else column
    is_given = any(names[one] == column for one in names if one not in numbers.decimals)
    if is_given and not loss.is_part and at not in numbers.decimals:
        numbers.leave_out(SEVERAL)  # two losses of one name, such as those of two splits
    return column


def _note_unknown_loss(numbers: _Numbers, words: Collection[str]) -> None:
    """Note why a number whose name holds the word loss is not read."""
    if "loss" not in words:
        return
    if not _NEVER.union(VALIDATION, TEST).intersection(words):
        numbers.leave_out(UNREAD)
    elif not {"scale", "scaled"}.intersection(words):
        numbers.reason = "a best or mean loss, or an evaluation on another text"


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


def _counter(name: str, after: str, at: int) -> str:
    """Return the column of a number that counts steps, "" if it counts something else."""
    if name in COUNTERS or name == "batch":
        return name if name in COUNTERS else "iteration"
    if at == 0 and name in VALIDATION | TEST and after.startswith((":", " |")):
        return "step"
    *words, last = name.split("_")
    if "loss" in words and not {"at", "after", "for", "on"} & set(words):
        return ""
    if last in ("step", "steps", "iteration", "iter", "update", "updates") and not set(words) & _NO_COUNTER:
        return "global_step" if "global" in words else "optimizer_step" if "optimizer" in words else last
    return ""


def _other_column(name: str) -> str:
    """Return the column of the batch, of a process, or of a learning rate or gradient norm; "" if none."""
    if name in OF_THE_BATCH or name in RANKS:
        return name
    if re.fullmatch(r"(?:optim/)?(?:lr|learning_rate)", name):
        return "learning_rate"
    is_norm = name in ("norm", "global_norm", "total_norm") or name.endswith(("grad_norm", "gradient_norm", "gnorm"))
    return "gradient_norm" if is_norm else ""
