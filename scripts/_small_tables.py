"""The small tables that are committed, and a table as Markdown."""


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
