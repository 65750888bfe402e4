"""The pages of the documentation that follow from registries and tables are up to date, and show what is registered."""

import re
import sys

import pytest

from paths import ROOT
from toposcale.figures import FIGURES
from toposcale.reproduction.claims import CLAIMS

sys.path.insert(0, str(ROOT / "docs"))
import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_what_make_reference_writes(name):
    assert (ROOT / "docs" / name).read_text() == reference.PAGES[name](), "run make reference"


def test_every_figure_with_data_has_its_picture_and_no_picture_is_left():
    pictures = {path.stem for path in (ROOT / "docs/images/gallery").glob("*.png")}
    assert pictures == set(FIGURES)
    assert "*The default run has no data for it.*" not in reference.gallery()
    assert sum(path.stat().st_size for path in (ROOT / "docs/images/gallery").glob("*.png")) < 1_000_000


def test_every_claim_has_an_answer_of_both_runs_or_the_reason_why_not():
    rows = re.findall(r"^\| \*\*(.*?)\*\*: .* \| (.*?) \| (.*?) \|$", reference.claims(), re.MULTILINE)
    assert [name for name, *_ in rows] == [claim.name for claim in CLAIMS]
    for name, *answers in rows:
        for answer in answers:
            one = r"(reproduced|not reproduced|opposite|not tested)( in \d of 8)?"
            assert re.fullmatch(rf"{one}(; {one})*|not tested: .+", answer), (name, answer)
