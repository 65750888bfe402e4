"""Read the user's own tables with the columns of a table of the run."""

from pathlib import Path

import pyarrow as pa

from toposcale.forecasting.logs.table_files import read_any
from toposcale.io.errors import UserError, as_user_error
from toposcale.io.schemas import Table


def read_user_table(table: Table, path: str | Path) -> pa.Table:
    """Read a Parquet or CSV file of the user's with the columns of `table`, in any order; raise UserError otherwise."""
    data, separator = read_any(path)
    if missing := [name for name in table.names if name not in data.schema.names]:
        how = f", separated by {separator}" if separator else ""
        raise UserError(
            f"{path}: no column {', '.join(missing)}; it needs {', '.join(table.names)}, "
            f"and has {', '.join(data.schema.names)}{how}"
        )
    with as_user_error(path, "it has a column of another type", (pa.ArrowException, ValueError)):
        return data.select(table.names).cast(table.schema)
