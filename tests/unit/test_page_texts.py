"""The pages that are written by hand are short and plain: few words, and at most three numbers in a sentence."""

import json
import re

import pytest

from paths import ROOT

FOLDERS = (".", ".github", "docs", "docs/tutorials", "examples", "profiles", "results")


def text_of(path):
    """The text of a page, or of a notebook without its code."""
    if path.suffix == ".md":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


PAGES = {
    str(path.relative_to(ROOT)): text
    for path in [
        *(
            path
            for folder in FOLDERS
            for suffix in ("md", "ipynb")
            for path in sorted((ROOT / folder).glob(f"*.{suffix}"))
        ),
        ROOT / "studies/README.md",  # the pages of the studies are their record, and are not for users
    ]
    if "ritten by `make reference`" not in (text := text_of(path))[:200]
    and path.name != "constants.md"  # a table of numbers and their evidence, which test_constants holds to the code
}
NAME = re.compile(r"\bH[0-2]\b|arXiv[: ]?\d+\.\d+|[12]\d{3}(?=[),;])|[Ss]tud(?:y|ies) \d(?:,? (?:to|and) \d)?")
"""What has digits and is no number: homology, a paper, its year, a study of this project."""


def crowded_sentences(text):
    """Sentences with more than three numbers; code, tables and the targets of links do not count."""
    text = re.sub(r"```.*?```|^(?:\||    ).*?$|(?<=\])\([^)]*\)", "", text, flags=re.DOTALL | re.MULTILINE)
    text = NAME.sub("X", re.sub(r"`[^`]*`", "X", text))
    sentences = re.split(r"(?<=[.:!?])\s+(?=[A-Z*(\[])|\n\s*\n|\n\s*[-*] |\n\d+\. ", text)
    return [" ".join(one.split()) for one in sentences if len(re.findall(r"(?<![\w.])\d[\d,.]*", one)) > 3]


NEW_PAGES = ("docs/benchmark.md", "docs/published-runs.md", "docs/test-metric.md")
"""Pages that came after the others were held to their length."""


def test_the_pages_are_short():
    words = {name: len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) for name, text in PAGES.items()}
    by_hand = [name for name in PAGES if re.match(r"(README|CONTRIBUTING|docs/)(?!.*(api|claims))", name)]
    lengths = {name: len((ROOT / name).read_text().split()) for name in {*by_hand, "docs/constants.md"}}
    assert sum(length for name, length in lengths.items() if name not in NEW_PAGES) <= 26_000
    assert max(lengths.get(name, 0) for name in NEW_PAGES) <= 1_400
    assert words["docs/decisions.md"] <= 1_400
    assert words["docs/research.md"] <= 1_500


@pytest.mark.parametrize("name", [name for name in PAGES if name != "docs/bibliography.md"])
def test_a_sentence_has_at_most_three_numbers(name):
    assert crowded_sentences(PAGES[name]) == []


def test_a_crowded_sentence_is_found():
    text = "It has 1, 2 and 3 parts (Luo et al. 2025). H0 of study 4 has 5, 6, 7\nand 8. `--x 1 2 3 4` is code."
    assert crowded_sentences(text) == ["X of X has 5, 6, 7 and 8."]
