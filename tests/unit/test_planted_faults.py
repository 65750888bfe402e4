"""The table of planted faults fits the code: else a fault would be planted nowhere, and found by nobody."""

import pytest

from paths import ROOT
from planted_faults import FAULTS, PACKAGE


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_in_one_place_and_has_a_test(fault):
    assert (PACKAGE / fault.module).read_text().count(fault.right) == 1
    assert (ROOT / f"tests/unit/test_{fault.tests}.py").exists()
