"""The pages that are written by hand stay within a number of words."""

import re

from paths import ROOT

NEW_PAGES = {"benchmark.md", "published-runs.md", "test-metric.md"}
"""Pages that have a length of their own."""
OTHERS = {"api.md", "claims.md"}
"""Pages that hold a list of names, and the results of runs."""


def test_pages_are_short():
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs.glob("*.md"), *docs.glob("tutorials/*.md")]
    texts = {path.name: path.read_text() for path in pages if path.name not in OTHERS}
    by_hand = {name: text for name, text in texts.items() if "ritten by `make reference`" not in text[:200]}
    lengths = {name: len(text.split()) for name, text in by_hand.items()}
    prose = {name: len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) for name, text in by_hand.items()}
    own = {*NEW_PAGES, "research.md"}
    assert sum(length for name, length in lengths.items() if name not in own) <= 24_500
    assert max(lengths[name] for name in NEW_PAGES) <= 1_400
    assert prose["decisions.md"] <= 1_400
    assert prose["research.md"] <= 2_600  # the results of nine studies
