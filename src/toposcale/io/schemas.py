"""Every table of a run by its name, and docs/tables.md (`make reference`). A table's name is the name of its file."""

from __future__ import annotations

import pyarrow as pa

from toposcale.io import analysis_table_definitions, table_definitions
from toposcale.io.table_schema import ALL_LAYERS, METRIC_SOURCE, Table

__all__ = ["ALL_LAYERS", "METRIC_SOURCE", "TABLES", "Table", "reference"]

TABLES = {
    name: Table(name, *definition)
    for name, definition in (table_definitions.DEFINITIONS | analysis_table_definitions.DEFINITIONS).items()
}
"""Every table by its name, in the order of docs/tables.md."""


def reference() -> str:
    """docs/tables.md: every table, what a row is, its columns with type and meaning."""
    kinds = {pa.string(): "text", pa.int64(): "count", pa.bool_(): "flag", pa.float64(): "number"}
    lines = [
        "# Tables",
        "",
        "Written by `make reference` from `table_definitions.py` and `analysis_table_definitions.py` in "
        "`src/toposcale/io`; change these, not this page.",
        "Tables lie in `results/{run}/tables/` as Parquet, the analyses as CSV too. Columns in **bold** identify a row.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", f"{table.about.capitalize()}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in table.columns:
            name = f"**`{column.name}`**" if column.name in table.key else f"`{column.name}`"
            lines.append(f"| {name} | {kinds[column.type]} | {column.meaning} |")
    return "\n".join(lines) + "\n"
