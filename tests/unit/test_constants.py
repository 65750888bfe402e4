"""The page of the constants of the law tells of each what it was learnt from and judged on."""

from paths import ROOT
from toposcale.forecasting.laws import priors

OF_THE_PRIOR = {"PEAK", "PEAK_SPREAD", "TOKENS", "TOKENS_SPREAD", "SIZE"}
"""Units of the prior, and spreads where a fact is unknown."""


def test_the_table_of_the_docs_has_every_constant_with_its_value_and_its_evidence():
    table = [line for line in (ROOT / "docs/constants.md").read_text().splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    values = {cells[0].split("`")[1]: float(cells[1]) for cells in rows}
    assert values == {
        name: value for name, value in vars(priors).items() if isinstance(value, float) and name not in OF_THE_PRIOR
    }
    assert all(len(cells) == 5 and all(cells) for cells in rows)
