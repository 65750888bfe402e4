"""What the advice is worth on the decisions of published training runs.

    python -m benchmarks.published_decisions FOLDER [--json FILE]

FOLDER holds published runs in the form of `PublishedRuns.to_csv`. Nothing is trained. A
family whose source is in the data set is judged with a prior that was learnt without that
source.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pandas as pd

from studies import small_tables
from studies.decisions.judge import decisions_of, groups
from studies.decisions.published import read
from toposcale.forecasting.decision.decision_points import judged_points
from toposcale.forecasting.laws.prior_table import priors


def main() -> None:
    """Judge, print a table, and write the groups where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    start = time.perf_counter()
    found = groups(decisions_of(judged_points(read(given.folder)), priors(), given.processes))
    usual, odd = ([one for one in found if one["usual"] == wanted] for wanted in (True, False))
    if found:
        print(small_tables.markdown(pd.json_normalize(usual)))
    else:
        print(f"{given.folder}: no decision of which all outcomes are known")
    print(f"{time.perf_counter() - start:.0f} s")
    if given.json:
        content = {"groups": usual, "odd_shapes": odd}
        given.json.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
