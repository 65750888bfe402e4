"""Patterns: lines of a text log by a regular expression of the user's, and the one to suggest for a log that is refused.

A pattern has groups with the names of columns, such as `step (?P<step>\\d+) .* loss (?P<loss>[\\d.]+)`. A number may have
separated thousands and a unit (k, M, B, T or %) if its group takes them. A pattern with a newline reads records of lines.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.grammars import MARK, fact_of, plain_content, without_prefix
from toposcale.forecasting.logs.line_forms import NUMBER, SUMMARIES, form_of
from toposcale.forecasting.logs.names import (
    COUNTERS,
    END,
    PARAMETERS,
    PER_STEP,
    TRAINING,
    loss_name,
    plain_name,
    split_of,
)
from toposcale.forecasting.logs.rows import LogError, Rows, columns_of_entries
from toposcale.forecasting.logs.text_logs import OTHER_AXES, count_over_epochs, with_steps
from toposcale.io.errors import UserError, counted

EXAMPLE = r"step (?P<step>\d+) .* loss (?P<loss>[\d.]+)"
_RENAMED = {"total": END, "tokens": "tokens"}
_MOST_LINES, _MOST_ALIKE = 100_000, 1000
"""Lines of a refused log from which a pattern is suggested, and lines of one form whose numbers are compared for it."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern; raise UserError if it is invalid, or has no group of a loss or of a step."""
    try:
        expression = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UserError(f"pattern (--pattern): {pattern!r:.80} is not a regular expression ({error})") from error
    names = [*expression.groupindex]
    has_step = any(name in COUNTERS for name in names) or {"epoch", "batch", "batches"} <= {*names}
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
        if (fact := fact_of(without_prefix(line))) and fact[0] in (PER_STEP, PARAMETERS):
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
    notes += with_steps(columns, precedes=False)
    count_over_epochs(columns)
    return Rows(columns, "text log", tuple(notes), lines=np.array(numbers)[rows])


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
    found = [*expression.finditer("\n".join(lines))]
    rows = np.searchsorted(starts, [match.start() for match in found], side="right") - 1
    return [*zip(rows.tolist(), found, strict=True)]


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
        value = number_of(text[:-1]) / 100 if text.endswith("%") else number_of(text.replace("_", ""))
    except ValueError as error:
        raise LogError(
            f"the group {name} of the pattern (--pattern) takes {text!r:.40}, which is not a number"
        ) from error
    return np.inf if value != value else value


def suggested(content: bytes) -> str:
    """Return a pattern for the most frequent line that holds a loss and a number; "" without a step on it."""
    lines = [without_prefix(line) for line in _lines(content)[0][:_MOST_LINES]]
    if pattern := _pattern_of_table(
        [line[:400] for line in lines if "loss" in line.lower() and not re.search(r"\d", line)][:100]
    ):
        return pattern
    lines = [line[:400] for line in lines if "loss" in line.lower() and re.search(r"\d", line)]
    keys = [" ".join(NUMBER.sub(MARK, line).split()) for line in lines]
    for key, _ in Counter(keys).most_common(3):
        alike = [line.rstrip() for line, other in zip(lines, keys, strict=True) if other == key]
        if any(
            re.search(axis, alike[0], re.I) for axis, remedy in OTHER_AXES.items() if remedy.startswith("they count")
        ):
            continue
        form = form_of(key)
        if form.reason not in SUMMARIES.values() and (pattern := _pattern_of(alike, form.names)):
            return pattern
    return ""


def _rise(texts: Sequence[str]) -> bool:
    return all(int(one) < int(other) for one, other in pairwise(texts))


def _pattern_of_table(lines: list[str]) -> str:
    """Return a pattern for the rows of a table in Markdown, or aligned by spaces, from its header; "" without one."""
    for line in lines:
        bar = r" *\|" if "|" in line else r"(?: +|$)"
        names = line.strip().strip("|").split("|" if "|" in line else None)
        groups = ["step" if plain_name(name.strip()) in COUNTERS else _group_of_loss(name.strip()) for name in names]
        if "step" in groups and len({*groups} - {""}) > 1:
            last = max(at for at, group in enumerate(groups) if group)
            kinds = {"step": r"\d+", "": r"[^|]*?" if "|" in line else r"\S+"}
            cells = [kinds.get(group, r"[-+.\deE]+") for group in groups[: last + 1]]
            cells = [f"(?P<{group}>{cell})" if group else cell for group, cell in zip(groups, cells, strict=False)]
            return r"^ *\|? *" + f"{bar} *".join(cells) + bar
    return ""


def _group_of_loss(name: str) -> str:
    """Return the group of a loss by the name of its column, "" for another column."""
    loss = loss_name(name)
    return "" if loss is None or loss.is_part else "loss" if loss.split is TRAINING else "validation_loss"


def _pattern_of(lines: list[str], names: dict[int, str]) -> str:
    """Return a pattern that takes step and losses from lines; names: of their numbers, as far as they are known."""
    line = lines[0]
    numbers = [*NUMBER.finditer(line)]
    groups: dict[int, str] = {}
    for at, number in enumerate(numbers):
        before, name = line[numbers[at - 1].end() if at else 0 : number.start()].lower(), names.get(at, "")
        is_loss = bool(loss_name(name)) or (not name and re.search(r"loss\W*$", before))
        is_step = name in COUNTERS or name == "batch" or re.search(r"(?:step|iter|iteration|update)s?\W*$", before)
        split = "validation_loss" if split_of(before) and "train" not in before and is_loss else "loss"
        group = split if is_loss else "step" if is_step else ""
        if group and group not in groups.values():
            groups[at] = group
    if "step" not in groups.values():
        table = [[number[1] for number in NUMBER.finditer(line)] for line in lines[:_MOST_ALIKE]]
        columns = enumerate(zip(*table, strict=True))
        rising = (at for at, texts in columns if at not in groups and all(map(str.isdecimal, texts)) and _rise(texts))
        groups |= dict.fromkeys([*rising][:1], "step")
    if not {"step"} < {*groups.values()}:
        return ""
    pieces, end = [], 0
    for at in sorted(groups):
        before = line[end : numbers[at].start()]
        place = re.search(r"[^\s|,;]*\s*[^\w\s]*\s*$", before)
        shown = before if len(before) < 12 or place is None else place[0]
        gap = "" if shown == before and end else ".*?" if end or shown != before else "^"
        tokens = {[*NUMBER.finditer(other)][at][0] for other in lines[:_MOST_ALIKE]}
        kind = r"\d+" if all(map(str.isdecimal, tokens)) else r"[\d.,]+[kKMBT]?"
        kind = kind if groups[at] == "step" else r"[-+.\deE]+"
        text = re.sub(r"\d+", r"\\d+", re.sub(r"(?:\\ )+", " +", re.escape(shown)))
        pieces.append(f"{gap}{text}(?P<{groups[at]}>{kind})")
        end = numbers[at].end()
        if re.match(r" \d{3}\b", line[end:]):
            return ""  # thousands, perhaps
    return "".join(pieces).replace("'", ".").replace("\t", r"\t").removeprefix(".*?")
