"""The constants of the law: the table of the docs is theirs, and they are plain numbers to what computes with them."""

from copy import deepcopy

import numpy as np

from paths import ROOT
from toposcale.forecasting.laws.priors import CONSTANTS, END_SD


def test_the_table_of_the_docs_is_that_of_the_constants():
    rows = (ROOT / "docs/constants.md").read_text().splitlines()
    expected = [
        f"| `{name}`: {value.meaning} | {value:g} | {value.unit} | {value.learnt_from} | {value.judged_on} |"
        for name, value in CONSTANTS.items()
    ]
    assert [row for row in rows if row.startswith("| ")][2:] == expected


def test_a_constant_is_a_number_and_keeps_its_unit_in_a_copy():
    assert type(END_SD**2) is float
    assert (END_SD * np.ones(2)).dtype == np.float64
    assert deepcopy(END_SD).unit == "nats"
