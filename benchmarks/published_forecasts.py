"""How good the forecasts of the ends of published training runs are.

    python -m benchmarks.published_forecasts FOLDER [--json FILE]

FOLDER holds published runs in the form of `PublishedRuns.to_csv`. The
end of every run that decays is forecast from 20, 30 and 50% of it, each by itself. A source of the data set
is judged with a prior that was learnt without it. Nothing is trained.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from studies import small_tables
from studies.decisions.forecasts import ALONE, by_source, forecasts_of
from studies.decisions.published import read
from toposcale.forecasting.laws.prior_table import priors


def main() -> None:
    """Forecast, print a table by source, and write the rows where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    rows = forecasts_of(read(options.folder), priors(), processes=options.processes)
    print(small_tables.markdown(by_source(rows)))
    if options.json:
        alone = rows[rows["known"] == ALONE].drop(columns="known")
        records = json.loads(alone.to_json(orient="records"))  # a NaN becomes null
        options.json.write_text(json.dumps({"rows": records}, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
