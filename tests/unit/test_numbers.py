"""Every number in the prose of five pages is that of a table that is committed, or of a constant, or is declared.

`numbers.csv` has a row for each passage: the page, the passage with `{...}` in the place of the numbers, and where they
come from. `source` is a table (a path, or `docs/constants.md`), a module of the package, or empty: then the numbers stand
in the passage, and `values` says why they need no source. `rows` is a query that selects rows of the table, and `values`
has an expression in its columns, or in the names of the module, for each number, separated by `;`.
"""

import csv
import importlib
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

from paths import ROOT

PAGES = ("README.md", "docs/decisions.md", "docs/law.md", "docs/compare.md", "docs/research.md")
ROWS = list(csv.DictReader((ROOT / "tests/unit/numbers.csv").open(newline="")))
PASSAGES = {f"{row['page']}: {row['passage'][:50]}": row for row in ROWS}
CODE = re.compile(r"```.*?```|^    \S.*?$|`[^`\n]*`|(?<=\])\([^)]*\)|!\[.*?\]", re.DOTALL | re.MULTILINE)
NAME = re.compile(
    r"\bH[0-2]\b|arXiv[: ]?\d+\.\d+|\b[12]\d{3}(?=[),;\]])|\b[Ss]tud(?:y|ies) \d(?![.%\d])(?:,? (?:to|and) \d)?|WikiText-2"
)
"""What has digits and is not a number: homology, a paper, its year, a study, a text."""
NUMBER = re.compile(r"(?<![\w.-])[-+]?\d[\d,]*(?:\.\d+)?")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@cache
def text_of(page, tables=True):
    """The text of a page in one line without code, targets of links and names, and without tables if asked."""
    text = NAME.sub("X", CODE.sub(" ", (ROOT / page).read_text()))
    return " ".join(" ".join(line for line in text.splitlines() if tables or not line.startswith("|")).split())


@cache
def table(source):
    """A table that is committed, that of docs/constants.md, or one row with the numbers of a module."""
    if source == "docs/constants.md":
        lines = [line for line in (ROOT / source).read_text().splitlines() if line.startswith("| `")]
        return pd.DataFrame({"constant": re.split("`", line)[1], "value": float(line.split("|")[2])} for line in lines)
    if source.endswith((".csv", ".csv.gz")):
        return pd.read_csv(ROOT / source, keep_default_na=False, na_values=[""])
    numbers = {
        name: np.ravel(value) for name, value in vars(importlib.import_module(source)).items() if is_numeric(value)
    }
    return pd.DataFrame(
        [
            {name: v[0] for name, v in numbers.items()}
            | {f"{n}_{i}": v for n, vs in numbers.items() for i, v in enumerate(vs)}
        ]
    )


def is_numeric(value):
    """Whether a value is a number, or a tuple of numbers."""
    return isinstance(value, int | float) or (
        isinstance(value, tuple) and bool(value) and all(isinstance(one, int | float) for one in value)
    )


def values_of(row):
    """The numbers of a passage, computed from its source."""
    rows = table(row["source"])
    rows = rows.query(row["rows"]) if row["rows"] else rows
    assert len(rows), row["rows"]
    values = [rows.eval(expression.strip()) for expression in row["values"].split(";")]
    return [value.item() if isinstance(value, pd.Series) else value for value in values]


class Number(float):
    """A number that is formatted as a page shows it: {:word}, {:M} (millions), {:B} (billions), or as Python does."""

    def __format__(self, form):
        match form:
            case "word":
                return WORDS[round(self)]
            case "K" | "M" | "B":
                return f"{self / {'K': 1e3, 'M': 1e6, 'B': 1e9}[form]:.3g}{form}"
            case "100":
                return f"{100 * self:.0f}"
            case "d" | ",":
                return format(round(self), form)
        return float.__format__(self, form)


def written(row):
    """The passage as the page has to have it."""
    if not row["source"]:
        return row["passage"]
    return row["passage"].format(*map(Number, values_of(row)))


@pytest.mark.parametrize("passage", PASSAGES)
def test_passage_has_the_numbers_of_its_source(passage):
    row = PASSAGES[passage]
    assert row["values"], "say where the numbers come from"
    expected = " ".join(written(row).split())
    assert text_of(row["page"]).count(expected) == 1, expected


@pytest.mark.parametrize("page", PAGES)
def test_numbers_without_a_source_are_none(page):
    assert undeclared(text_of(page, tables=False), [row for row in ROWS if row["page"] == page]) == []


def undeclared(text, rows):
    """Numbers of a text that are in no passage, each with its surroundings."""
    passages = [re.escape(" ".join(written(row).split())) for row in rows]
    covered = {place for passage in passages for at in re.finditer(passage, text) for place in range(*at.span())}
    return [text[max(at.start() - 30, 0) : at.end() + 20] for at in NUMBER.finditer(text) if at.start() not in covered]


def test_undeclared_numbers_are_found():
    row = {"page": "", "passage": "It has 3 parts", "source": "", "rows": "", "values": "a definition"}
    assert undeclared("It has 3 parts and 4 ends.", [row]) == ["It has 3 parts and 4 ends."]


def test_numbers_follow_their_source():
    row = {"passage": "{:word} of {:.1%}, {:M}", "source": "math", "rows": "", "values": "3; pi / 10; 2.5e7"}
    assert written(row) == "three of 31.4%, 25M"
    assert written(row | {"values": "pi; tau / 10; 1e9"}) == "three of 62.8%, 1e+03M"
