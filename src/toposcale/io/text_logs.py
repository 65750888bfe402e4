"""Text logs: the standard output of training programs, read by a table of line patterns.

A line tells a step and a loss of training or validation, and maybe a learning rate, a gradient norm and a perplexity. These
fields are found alike in every log; the table tells the program by its lines.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

_DIGITS = r"(?>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf))(?!\w)"
_NUMBER = rf"(?: value)?[\s:=\"'|(]{{0,12}}(?:tensor\()?({_DIGITS})"
_POINT = rf"[\s:=]{{1,12}}(?=\d+\.\d)({_DIGITS})"  # of a name that may count something else, too
_VALIDATION = r"(?:val(?:id(?:ati(?:on|ng)|ate)?)?|eval(?:uat(?:ion|ing|e))?|dev|test)"
_LOSSES = r"(?:(?:train(?:ing)?|lm|ce|avg|average|mean)[ _/-]?)*(?:loss(?:[ /]train)?|CrossEntropyLoss|trl)"
_VALIDATION_LOSSES = rf"(?:{_VALIDATION}[ _/-]?(?:lm[ _])?loss|loss[ /]{_VALIDATION}|tel)"


class _Field(NamedTuple):
    """Expression of a field, and words of which every such line has one: to look for them takes a tenth of the time."""

    words: tuple[str, ...]
    expression: re.Pattern[str]


def _field(words: str, expression: str) -> _Field:
    return _Field(tuple(words.split()), re.compile(expression, re.IGNORECASE))


_FIELDS = {
    name: _field(words, rf"(?<![\w/-])(?:{expression})")
    for name, words, expression in (
        ("validation_loss", "val dev test tel", rf"{_VALIDATION_LOSSES}{_NUMBER}|val{_POINT}"),
        ("loss", "loss train trl", rf"{_LOSSES}(?: at \w+ \d++)?{_NUMBER}|train{_POINT}"),
        ("learning_rate", "lr learning", rf"(?:lr|learning[ _]?rate){_NUMBER}"),
        ("gradient_norm", "norm", rf"(?:grad(?:ient)?[ _-]?norm|gnorm|norm){_NUMBER}"),
        ("perplexity", "ppl perplexity", rf"(?:ppl|perplexity){_NUMBER}"),
    )
}
# The first that is found counts: a program may count batches (iter) beside updates (step).
_STEPS = tuple(
    _field(words, rf"{expression}((?>\d{{1,3}}(?:,\d{{3}})+|\d+))(?: */ *(\d+))?(?![\d.]*[a-z%])")
    for words, expression in (
        ("num_updates", r"num_updates\W{0,12}"),
        ("step", r"(?<![\w/])(?:global_?|train_|current_|optimizer_)?steps?[\s:=#\"'(\[]{0,12}"),
        ("iter update", r"(?<![\w/])(?:iter(?:ation)?|update)s?[\s:=#\"'(\[]{0,12}"),
        ("tr val tel", r"^(?:s:)?(?=\d+ (?:tr(?:ain|l)|val|tel)\b)"),  # s:250 tel:5.2, or 250 val 5.2
    )
)
_PROGRESS = re.compile(r"%\|.*\| *(\d+)/(\d+) *\[")  # a bar of tqdm
# What transformers' Trainer says when it begins, and in each dictionary.
_PLAN = re.compile(r"Num Epochs = ([\d,]+).*?Total optimization steps = ([\d,]+)", re.DOTALL)
_EPOCH = re.compile(r"['\"]epoch['\"]: *['\"]?([\d.]+)")
_OF_VALIDATION = re.compile(rf"(?<![\w/.-]){_VALIDATION}(?![\w/.])", re.IGNORECASE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MLFLOW = re.compile(rf"^\d{{13}} (?P<value>{_DIGITS}) (?P<step>\d+)$")

PATTERNS = {
    "nanoGPT": re.compile(r"^(?:iter|step) \d+: (?:train )?loss"),
    "build-nanogpt": re.compile(r"^step +\d+ \| loss: .*\| norm: |^\d+ (?:train|val) [\d.]+$|^validation loss: "),
    "llm.c": re.compile(r"^s:\d+ (?:trl|tel):|^step +\d+/\d+ \| (?:train )?loss |^val loss "),
    "modded-nanogpt": re.compile(r"^step:\d+/\d+ (?:train|val)_loss:"),
    "Megatron-LM": re.compile(r"\biteration +\d+/ *\d+ \||validation loss at iteration"),
    "torchtitan": re.compile(r"\bstep: *\d+ +loss: "),
    "torchtune": re.compile(r"^Step \d+ \| loss:"),
    "fairseq": re.compile(r"\bnum_updates\b"),
    "transformers": re.compile(r"\{.*['\"](?:eval_)?loss['\"]: .*['\"]epoch['\"]: "),
    "MLflow": _MLFLOW,
}
ANY = "an unknown program, with a step and a loss"
"""Name for the lines of none of them."""


class TextLog(NamedTuple):
    """What was read of a text log.

    pattern: name of the line pattern. matched, lines: numbers of its lines, and of all lines. columns: arrays of one length
    by quantity, NaN where a line has none, infinite where it has one that is no number. final_step: the last step, where
    the lines tell it. without_step: lines with a loss and no step.
    """

    pattern: str
    matched: int
    lines: int
    columns: dict[str, np.ndarray]
    final_step: int | None
    without_step: int


class _Row(NamedTuple):
    """A line with its fields by quantity."""

    line: str
    fields: dict[str, float]


def read(text: str) -> TextLog:
    """Read a text log: the lines of the pattern that matches most of them, else all lines with a step and a loss."""
    lines = _COLOURS.sub("", text).replace("\r", "\n").splitlines()
    plan = _PLAN.search(text)
    epochs, total = (int(number.replace(",", "")) for number in plan.groups()) if plan else (0, 0)
    rows = list(_rows(lines, total / max(epochs, 1)))
    stepped = [row for row in rows if "step" in row.fields]
    some = stepped[:: max(len(stepped) // 2000, 1)]
    counts = {name: sum(bool(pattern.search(row.line)) for row in some) for name, pattern in PATTERNS.items()}
    best = max(counts, key=lambda name: counts[name])
    is_known = counts[best] >= max(len(some) / 2, 1)
    fields = [row.fields for row in stepped if not is_known or PATTERNS[best].search(row.line)]
    # The training loss of an evaluation is an estimate of its own beside the one that is logged at that step.
    logged = {row["step"] for row in fields if "validation_loss" not in row}
    fields = [{**row, "loss": np.nan} if "validation_loss" in row and row["step"] in logged else row for row in fields]
    names = dict.fromkeys(name for row in fields for name in row)
    columns = {name: np.array([row.get(name, np.nan) for row in fields]) for name in names if name != "final_step"}
    final = max((int(row["final_step"]) for row in fields if "final_step" in row), default=None)
    return TextLog(best if is_known else ANY, len(fields), len(lines), columns, final, len(rows) - len(stepped))


def _rows(lines: Sequence[str], steps_per_epoch: float) -> Iterator[_Row]:
    """Yield the lines with a loss.

    The step of one without is that of the progress bar, or of the line before or after it, or follows from its epoch.
    """
    bars = [match for line in lines if "%|" in line and (match := _PROGRESS.search(line))]
    total = max((int(bar[2]) for bar in bars), default=0)  # an evaluation has a shorter bar of its own
    progress, header, waiting = dict[str, float](), dict[str, float](), list[_Row]()
    for line in map(str.strip, lines):
        if "%|" in line and (bar := _PROGRESS.search(line)) and int(bar[2]) == total:
            progress = {"step": float(bar[1]), "final_step": total}
        fields = _fields_of(line)
        if not fields.keys() & {"loss", "validation_loss"}:
            header = fields if "[step=" in line else header  # of OLMo, before a line for each metric
            continue
        if "step" not in fields:
            epoch = _EPOCH.search(line) if steps_per_epoch else None
            fields |= progress or ({"step": round(float(epoch[1]) * steps_per_epoch)} if epoch else header)
        if "step" not in fields and "loss" not in fields:
            waiting.append(_Row(line, fields))  # an evaluation before the step
            continue
        yield from (_Row(row.line, row.fields | {"step": fields["step"]}) for row in waiting if "step" in fields)
        yield _Row(line, fields)
        header, waiting = {}, []
    yield from waiting


def _fields_of(line: str) -> dict[str, float]:
    """Return the numbers of a line by quantity, NaN as infinite: it was logged."""
    if match := _MLFLOW.match(line):
        return {"step": float(match["step"]), "loss": _number(match["value"])}
    fields, lower = {}, line.lower()
    for words, step in _STEPS:
        if any(word in lower for word in words) and (match := step.search(line)):
            fields["step"] = float(match[1].replace(",", ""))
            if match[2]:
                fields["final_step"] = float(match[2])
            break
    for name, (words, field) in _FIELDS.items():
        if any(word in lower for word in words) and (match := field.search(line)):
            if name == "loss" and "validation_loss" not in fields and _OF_VALIDATION.search(line, 0, match.start()):
                name = "validation_loss"
            fields[name] = _number(next(filter(None, match.groups())))
            line = line[: match.start()] + line[match.end() :]  # "validation loss: 3.2" has no other loss
    return fields


def _number(text: str) -> float:
    value = float(text)
    return np.inf if np.isnan(value) else value
