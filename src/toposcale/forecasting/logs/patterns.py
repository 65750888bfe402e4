"""Patterns: lines of a text log by a regular expression of the user's, and the one to suggest for a log that is refused.

A pattern has groups with the names of columns, such as `step (?P<step>\\d+) .* loss (?P<loss>[\\d.]+)`. A number may have
separated thousands and a unit (k, M, B, T or %) if its group takes them. A pattern with a newline reads records of lines.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.grammars import fact_of, plain_content
from toposcale.forecasting.logs.json_logs import columns_of_entries
from toposcale.forecasting.logs.line_forms import BATCH, BATCHES, IN_BITS, NUMBER, SUMMARIES, form_of, key_of
from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, PER_STEP, loss_name, split_of
from toposcale.forecasting.logs.rows import LogError, Rows
from toposcale.forecasting.logs.text_logs import FORM, OTHER_AXES
from toposcale.io.errors import UserError, counted

EXAMPLE = r"step (?P<step>\d+) .* loss (?P<loss>[\d.]+)"
SEPARATORS = "[_'\u2019\u00a0\u202f]"  # of thousands, besides commas
_NO_COUNT = re.compile(
    r" ?(?:tokens|samples|sequences|examples|epochs|batches|s|sec|ms|min|h)\b|[a-zA-Z%]{2}|%|:\d|, *\d"
)
"""Words behind a number that counts no steps."""

_OF_EPOCHS = {"epoch", BATCH, BATCHES}
_RENAMED = {"total": END, "tokens": "tokens"}
MAX_SAMPLED_LINES = 100_000
"""Lines of a refused log from which a pattern is suggested."""

MAX_COMPARED_LINES = 1000
"""Lines of one form whose numbers are compared for it."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern; raise UserError if it is invalid, or has no group of a loss or of a step."""
    try:
        expression = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UserError(f"pattern (--pattern): {pattern!r:.80} is not a regular expression ({error})") from error
    names = [*expression.groupindex]
    has_step = any(name in COUNTERS for name in names) or {*names} >= _OF_EPOCHS
    if not any(map(loss_name, names)) or not has_step:
        raise UserError(f"pattern (--pattern): needs groups called step and loss, such as '{EXAMPLE}'")
    return expression


def read(content: bytes, pattern: str) -> Rows:
    """Read the lines of a text log that a pattern matches, and the facts that other lines state."""
    expression = compiled(pattern)
    lines, numbers = _lines(content)
    matches = _matches(lines, expression, is_of_lines=r"\n" in pattern)
    if not matches:
        sample = next((line for line in lines if "loss" in line.lower()), lines[0]).strip()
        raise LogError(f"no line matches the pattern (--pattern); the first with a loss is {sample[:120]!r}")
    columns = columns_of_entries(
        {_RENAMED.get(name, name): _value(match, name) for name in match.groupdict()} for _, match in matches
    )
    rows = np.array([row for row, _ in matches])
    for row, line in enumerate(lines):
        if (fact := fact_of(line)) and fact[0] in (PER_STEP, PARAMETERS):
            columns.setdefault(fact[0], np.full(len(rows), np.nan))[np.searchsorted(rows, row) :] = fact[1]
    row, match = matches[0]
    shown = ", ".join(f"{name} {text}" for name, text in match.groupdict().items() if text)
    notes = [
        f"read by the pattern: {counted(len(rows), 'match', 'matches')}, the first in line {numbers[row]:,}: {shown}"
    ]
    if others := sorted({row for row, line in enumerate(lines) if "loss" in line.lower()} - {*rows.tolist()}):
        count = counted(len(others), "line holds", "lines hold")
        text = f"line {numbers[others[0]]:,} ({lines[others[0]].strip()[:80]!r})"
        notes.append(f"{count} the word loss and no match, the first: {text}")
    columns = _with_steps_of_epochs(columns)
    columns, on_steps = _with_steps(columns)
    return Rows(columns, FORM, (*notes, *on_steps), lines=np.array(numbers)[rows])


def _with_steps_of_epochs(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns with steps of the groups epoch, batch and batches: (epoch - first epoch) x batches + batch."""
    if not columns.keys() >= _OF_EPOCHS:
        return columns
    epoch, batch, batches = (columns[name] for name in ("epoch", "batch", "batches"))
    if len(np.unique(batches[np.isfinite(batches)])) > 1:
        raise LogError("its epochs have different numbers of batches; make a CSV with step and loss")
    steps = (epoch - min(np.nanmin(epoch), 1)) * batches + batch
    return {"step": steps} | {name: values for name, values in columns.items() if name not in _OF_EPOCHS}


def _with_steps(columns: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the columns, in which matches without a step have that of the match before, and a note."""
    counters = [name for name in columns if name in COUNTERS]
    has_step = ~np.all([np.isnan(columns[name]) for name in counters], axis=0)
    last = np.maximum.accumulate(np.where(has_step, np.arange(len(has_step)), 0))
    filled = {name: columns[name][last] for name in (*counters, END) if name in columns}
    count = counted(int(np.sum(~has_step)), "match has", "matches have")
    notes = [] if has_step.all() else [f"{count} no step: that of the match before each was taken"]
    return {**columns, **filled}, notes


def _lines(content: bytes) -> tuple[list[str], list[int]]:
    """Return the lines of a log, of which a redrawn one is several, and their numbers."""
    texts = enumerate(plain_content(content).decode("utf-8", "replace").split("\n"), 1)
    lines = [(line, number) for number, text in texts for line in text.split("\r")]
    return [line for line, _ in lines], [number for _, number in lines]


def _matches(lines: list[str], expression: re.Pattern[str], *, is_of_lines: bool) -> list[tuple[int, re.Match[str]]]:
    """Return the matches of an expression, with the index of the line where each begins."""
    if not is_of_lines:
        return [(row, match) for row, line in enumerate(lines) if (match := expression.search(line))]
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])
    matches = [*expression.finditer("\n".join(lines))]
    rows = np.searchsorted(starts, [match.start() for match in matches], side="right") - 1
    return [*zip(rows.tolist(), matches, strict=True)]


def _value(match: re.Match[str], name: str) -> float | None:
    """Return the number of a group, infinite for NaN; None where nothing was measured. It must be the whole number."""
    text = (match[name] or "").strip()
    if text.lower() in ("", "n/a", "none", "-"):
        return None
    start, end = match.span(name)
    before, after = match.string[max(start - 2, 0) : start], match.string[end : end + 2]
    if re.search(r"\d[.,]?$", before) or re.match(r"[.,]?\d|[kKMBT](?![a-zA-Z])", after):
        raise LogError(
            f"the group {name} of the pattern (--pattern) takes only {text} of {(before + text + after).strip()!r}; let it "
            r"take the whole number, such as [\d.,]+[kKMBT]?"
        )
    try:
        value = number_of(text[:-1]) / 100 if text.endswith("%") else number_of(re.sub(SEPARATORS, "", text))
    except ValueError as error:
        raise LogError(
            f"the group {name} of the pattern (--pattern) takes {text!r:.40}, which is not a number"
        ) from error
    return np.inf if value != value else value


def suggested(content: bytes, *, starts_again: bool = False) -> str:
    """Return a pattern for the most frequent line that holds a loss and a number; "" without a step on it.

    starts_again: whether its steps start again in each epoch.
    """
    lines = [line[:400] for line in _lines(content)[0][:MAX_SAMPLED_LINES]]
    lines = [line.rstrip() for line in lines if "loss" in line.lower() and re.search(r"\d", line)]
    keys = [*map(key_of, lines)]
    for key, n in Counter(keys).most_common(3):
        alike = [line for line, other in zip(lines, keys, strict=True) if other == key][:MAX_COMPARED_LINES]
        form = form_of(alike[0])
        counts_others = any(re.search(axis, alike[0], re.I) for axis, remedy in OTHER_AXES.items() if "count" in remedy)
        if n < 2 or counts_others or form.reason in (IN_BITS, *SUMMARIES.values()):
            continue
        if pattern := _pattern_of(alike, _groups_of(alike, form.names, starts_again=starts_again)):
            return pattern
    return ""


def _groups_of(lines: Sequence[str], names: Mapping[int, str], *, starts_again: bool) -> dict[int, str]:
    """Return the groups of the numbers of lines of one form, by position: losses, and the step or what it follows from.

    names: those that are known. Without the name of a step, the first numbers that rise are it.
    """
    groups: dict[int, str] = {}
    line, end, counting = lines[0], 0, []
    for at, number in enumerate(NUMBER.finditer(line)):
        before, name, end = line[end : number.start()].lower(), names.get(at, ""), number.end()
        counting += [] if _NO_COUNT.match(line, end) else [at]
        is_step = name == "step" or re.search(r"(?:step|iter|iteration|update)s?\W*$", before)
        if loss_name(name) or (not name and re.search(r"loss\W*$", before)):
            group = "validation_loss" if split_of(before) and "train" not in before else "loss"
        elif starts_again:
            group = BATCH if name == "step" else name if name in _OF_EPOCHS else ""
        else:
            group = "step" if is_step and at in counting else ""
        if group and group not in groups.values():
            groups[at] = group
    if "step" not in groups.values() and not starts_again:
        columns = _columns_of(lines)
        groups |= dict.fromkeys([at for at in counting if at not in groups and _rise(columns[at])][:1], "step")
    return groups


def _columns_of(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the numbers of each position in lines of one form."""
    return [*zip(*([number[0] for number in NUMBER.finditer(line)] for line in lines), strict=True)]


def _pattern_of(lines: Sequence[str], groups: Mapping[int, str]) -> str:
    """Return a pattern that takes the groups from lines of one form; "" without a step or a loss."""
    line, columns, numbers = lines[0], _columns_of(lines), [*NUMBER.finditer(lines[0])]
    has_steps = "step" in groups.values() or {*groups.values()} >= _OF_EPOCHS
    if not has_steps or not any(map(loss_name, groups.values())):
        return ""
    pieces, end = [], 0
    for at in sorted(groups):
        before = line[end : numbers[at].start()]
        place = re.search(r"[^\s|,;]*\s*[^\w\s]*\s*$", before)
        shown = before if len(before) < 12 or place is None else place[0]
        gap = "" if shown == before and end else ".*?" if end or shown != before else "^"
        text = re.sub(r"\d+", r"\\d+", re.sub(r"(?:\\ )+", " +", re.escape(shown)))
        kind = r"[-+.\deE]+" if loss_name(groups[at]) else _expression_of(columns[at])
        pieces.append(f"{gap}{text}(?P<{groups[at]}>{kind})")
        end = numbers[at].end()
        if re.match(r" \d{3}(?![\d.])", line[end:]):
            return ""  # thousands, perhaps
    return "".join(pieces).replace("'", r"\x27").replace("\t", r"\t").removeprefix(".*?")


def _rise(texts: Sequence[str]) -> bool:
    return all(map(str.isdecimal, texts)) and all(int(one) < int(other) for one, other in pairwise(texts))


def _expression_of(texts: Sequence[str]) -> str:
    """Return an expression of whole numbers such as these, which may have units or separated thousands."""
    separators = sorted({*re.findall(SEPARATORS, "".join(texts))})
    return r"\d+" if all(map(str.isdecimal, texts)) else rf"[\d.,{''.join(separators)}]+[kKMBT]?"
