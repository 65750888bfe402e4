"""A table as Markdown."""


def markdown(table):
    rows = [list(table.columns), ["---"] * table.shape[1]]
    rows += [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
