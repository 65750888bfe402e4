"""Text logs: the standard output of training programs.

A line holds a step and a training or validation loss, and possibly a learning rate, a gradient norm and a perplexity. The
same expressions find these fields in every log; a table of line patterns identifies the program.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.columns import END, PARAMETERS, PER_STEP

_DIGITS = r"(?>[-+]?(?:\d*\.\d+|\d+\.?(?!,\d))(?:e[-+]?\d+)?|[-+]?(?:nan|inf))(?!\w)"  # 3,25 is not 3
_NUMBER = rf"(?: value)?[\s:=\"'|(]{{0,12}}(?:[a-z][\w.]{{0,15}}\()?({_DIGITS})"  # np.float64(3.2)
_DECIMAL = rf"[\s:=]{{1,12}}(?=\d+\.\d)({_DIGITS})"  # after a name that may also precede a count
_VALIDATION = r"(?:val(?:id(?:ati(?:on|ng)|ate)?)?|eval(?:uat(?:ion|ing|e))?|dev|test)"
_LOSSES = (
    r"(?:(?:reduced|train(?:ing)?|lm|ce|avg|average|mean)[ _/-]?)*"
    r"(?:loss(?:[ /]train(?:/total)?|_step)?|CrossEntropyLoss|trl)"
)
_VALIDATION_LOSSES = rf"(?:{_VALIDATION}[ _/-]?(?:lm[ _])?loss|loss[ /]{_VALIDATION}|tel)"


class _Field(NamedTuple):
    """Expression of a field, and words of which a line with the field has one: a search for them is ten times as fast."""

    words: tuple[str, ...]
    expression: re.Pattern[str]


def _field(words: str, expression: str) -> _Field:
    return _Field(tuple(words.split()), re.compile(expression, re.IGNORECASE))


_FIELDS = {
    name: _field(words, rf"(?<![\w/-])(?:{expression})")
    for name, words, expression in (
        ("validation_loss", "val dev test tel", rf"{_VALIDATION_LOSSES}{_NUMBER}|val{_DECIMAL}"),
        ("loss", "loss train trl", rf"{_LOSSES}(?: at \w+ \d++)?{_NUMBER}|train{_DECIMAL}"),
        ("learning_rate", "lr learning", rf"(?:lr|learning[ _]?rate){_NUMBER}"),
        ("gradient_norm", "norm", rf"(?:grad(?:ient)?[ _-]?norm|gnorm|norm){_NUMBER}"),
        ("perplexity", "ppl perplexity", rf"(?:ppl|perplexity){_NUMBER}"),
        ("epoch", "epoch", r"epoch[\s:=\"'\[(]{1,4}(\d+(?:\.\d+)?)"),
    )
}
# The first match counts: a program may log batches (iter) beside updates (step).
_STEPS = tuple(
    _field(words, rf"{expression}((?>\d{{1,3}}(?:,\d{{3}})+|\d+))(?: */ *(\d+))?(?![\d.]*[a-z%])")
    for words, expression in (
        ("num_updates", r"num_updates\W{0,12}"),
        ("step", r"(?<![\w/])(?:global_?|train_|current_|optimizer_)?steps?[\s:=#\"'(\[]{0,12}"),
        ("iter update", r"(?<![\w/])(?:iter(?:ation)?|update)s?[\s:=#\"'(\[]{0,12}"),
        ("batch", r"\[batch="),
        ("tr val tel loss", r"^(?:s:)?(?=\d+[ :]{1,2}(?:tr(?:ain|l)|val|tel|loss)\b)"),  # s:250 tel:5.2, or 250 val 5.2
        ("/", r"(?<!epoch)(?<!epoch[ :])(?<!epoch: )[\[(] *(?=\d+ */ *\d+ *[\])])"),  # (250/1000)
        ("batches", r"(?<![\d.])(?=\d+/ *\d+ batches)"),
    )
)
_PROGRESS = re.compile(r"%\|.*\| *(\d+)/(\d+) *\[")  # progress bar of tqdm
# What transformers' Trainer logs at its start, and in each dictionary.
_START = re.compile(r"Num Epochs = ([\d,]+).*?Total optimization steps = ([\d,]+)", re.DOTALL)
_EPOCH = re.compile(r"['\"]epoch['\"]: *['\"]?([\d.]+)")
_OF_VALIDATION = re.compile(rf"(?<![\w/.-]){_VALIDATION}(?![\w/.])", re.IGNORECASE)
_HEADER = re.compile(r"\[(?:step|batch)=")  # of OLMo and Composer, before one line per metric
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
    "NeMo": re.compile(r"\breduced_train_loss[:=]"),
    "Composer": re.compile(r"\bloss/train/total: "),
    "fairseq": re.compile(r"\bnum_updates\b"),
    "transformers": re.compile(r"\{.*['\"](?:eval_)?loss['\"]: .*['\"]epoch['\"]: "),
    "MLflow": _MLFLOW,
}
_FACTS = {
    name: re.compile(rf"^{words}: (\d{{1,3}}(?:,\d{{3}})+|\d+(?:\.\d+)?[KMB]?)\s*$", re.IGNORECASE | re.MULTILINE)
    for name, words in (
        (PER_STEP, "(?:tokens per iteration will be|total desired batch size)"),  # of nanoGPT and build-nanogpt
        (PARAMETERS, "number of parameters"),
    )
}
"""Lines that state a fact of the run, by the name of its column in a table."""

ANY = "an unknown program, with a step and a loss"
"""Name of a log that matches none of the patterns."""


class TextLog(NamedTuple):
    """Columns of a text log, and counts of its lines.

    pattern: name of the line pattern. matched, lines: numbers of matching lines and of all lines. columns: arrays
    (matched,) by quantity, NaN if missing in a line and infinite if not a number there. facts: last step, tokens per step
    and number of parameters, those that are logged. without_step: number of lines with a loss but no step.
    """

    pattern: str
    matched: int
    lines: int
    columns: dict[str, np.ndarray]
    facts: dict[str, float]
    without_step: int


class _Row(NamedTuple):
    """A line, and its fields by quantity."""

    line: str
    fields: dict[str, float]


def read(text: str) -> TextLog:
    """Read a text log: the lines of the most frequent pattern, or else all lines with a step and a loss."""
    lines = _COLOURS.sub("", text).replace("\r", "\n").splitlines()
    start = _START.search(text)
    epochs, total = (int(number.replace(",", "")) for number in start.groups()) if start else (0, 0)
    rows = list(_rows(lines, total / max(epochs, 1)))
    stepped = [row for row in rows if "step" in row.fields]
    some = stepped[:: max(len(stepped) // 2000, 1)]
    counts = {name: sum(bool(pattern.search(row.line)) for row in some) for name, pattern in PATTERNS.items()}
    best = max(counts, key=lambda name: counts[name])
    is_known = counts[best] >= max(len(some) / 2, 1)
    fields = [row.fields for row in stepped if not is_known or PATTERNS[best].search(row.line)]
    # The training loss of an evaluation is a separate estimate, and is not read if the step logs one.
    logged = {row["step"] for row in fields if "validation_loss" not in row}
    fields = [{**row, "loss": np.nan} if "validation_loss" in row and row["step"] in logged else row for row in fields]
    fields = list(_measured_once(fields))
    names = dict.fromkeys(name for row in fields for name in row)
    columns = {name: np.array([row.get(name, np.nan) for row in fields]) for name in names if name != "final_step"}
    return TextLog(
        best if is_known else ANY, len(fields), len(lines), columns, _facts(text, fields), len(rows) - len(stepped)
    )


def _facts(text: str, fields: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the facts of the run by column; those of which a log has several values, as of several runs, are unknown."""
    stated = {name: {number_of(match[1]) for match in line.finditer(text)} for name, line in _FACTS.items()}
    facts = {name: values.pop() for name, values in stated.items() if len(values) == 1}
    ends = [row["final_step"] for row in fields if "final_step" in row]
    return facts | ({END: max(ends)} if ends else {})


def _measured_once(rows: Sequence[dict[str, float]]) -> Iterator[dict[str, float]]:
    """Yield rows without the validation loss where it is that of the row before, as progress bars repeat the last one."""
    before = np.nan
    for row in rows:
        now = row.get("validation_loss", np.nan)
        is_repeated = now == before and not np.isnan(row.get("loss", np.nan))
        yield {**row, "validation_loss": np.nan} if is_repeated else row
        before = before if np.isnan(now) else now


def _rows(lines: Sequence[str], steps_per_epoch: float) -> Iterator[_Row]:
    """Yield the lines with a loss; a missing step is taken from the progress bar, the epoch, or a neighbouring line."""
    bars = [match for line in lines if "%|" in line and (match := _PROGRESS.search(line))]
    total = max((int(bar[2]) for bar in bars), default=0)  # the bar of an evaluation is shorter
    progress, header, waiting = dict[str, float](), dict[str, float](), list[_Row]()
    for line in map(str.strip, lines):
        if "%|" in line and (bar := _PROGRESS.search(line)) and int(bar[2]) == total:
            progress = {"step": float(bar[1]), "final_step": total}
        fields = _fields_of(line)
        if not fields.keys() & {"loss", "validation_loss"}:
            header = fields if _HEADER.search(line) else header
            continue
        if "step" not in fields:
            epoch = _EPOCH.search(line) if steps_per_epoch else None
            fields |= progress or ({"step": round(float(epoch[1]) * steps_per_epoch)} if epoch else header)
        if "step" not in fields and "loss" not in fields:
            waiting.append(_Row(line, fields))  # an evaluation, logged before its step
            continue
        yield from (_Row(row.line, row.fields | {"step": fields["step"]}) for row in waiting if "step" in fields)
        yield _Row(line, fields)
        header, waiting = {}, []
    yield from waiting


def _fields_of(line: str) -> dict[str, float]:
    """Return the numbers of a line by quantity, a logged NaN as infinite."""
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
