"""`python -m toposcale.datasets [SOURCE ...]` prints the table of the published runs, all or those of some sources."""

import sys

from toposcale.datasets.published_runs import load_published_runs
from toposcale.io.errors import UserError

if __name__ == "__main__":
    try:
        print(load_published_runs(sys.argv[1:] or None).table.to_string())
    except UserError as error:
        sys.exit(f"toposcale: {error}")
