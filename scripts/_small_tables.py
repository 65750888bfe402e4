"""The small tables of finished runs that are committed: where they come from, and a table as CSV and as Markdown."""

import sys
from pathlib import Path

from toposcale.io import tables
from toposcale.io.errors import UserError


def run(main):
    """Call `main(folder, runs)` with what the command line names; a mistake of the user's ends in one line.

    runs: those of the named folders that hold a finished run.
    """
    folder, *runs = map(Path, sys.argv[1:])
    try:
        main(folder, [run for run in runs if (run / "tables/features.parquet").exists()])
    except UserError as error:
        sys.exit(f"toposcale: {error}")


def read(run):
    """Features, metrics and models of a run."""
    names = ("features", "metrics", "models")
    return [tables.read_checked(run / f"tables/{name}.parquet").to_pandas() for name in names]


def write(table, path, digits):
    """Write a table as CSV; packed where the name ends in .gz, the same bytes each time."""
    packed = {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None
    table.to_csv(path, index=False, float_format=f"%.{digits}g", compression=packed)


def markdown(table):
    rows = [list(table.columns), ["---"] * table.shape[1]]
    rows += [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
