"""Read the metrics that the user has in tables."""

import _job
from _job import note
from toposcale.analysis.user_tables import read_user_table
from toposcale.io import schemas


def unknown_models(table, path, models):
    """Return warnings on the models of a user's table that are not in the run."""
    return [
        note(
            name,
            f"metrics.tables: {path}",
            f"this run has no model {name!r}, so its rows are left out; its models are {', '.join(models)}",
            "use the names under `models:` in the table",
        )
        for name in sorted(set(table["model"].to_pylist()) - set(models))
    ]


@_job.script
def main(snakemake):
    user_tables = {path: read_user_table(schemas.TABLES["metrics"], path) for path in snakemake.input}
    models = snakemake.params.models
    warning_rows = [row for path, table in user_tables.items() for row in unknown_models(table, path, models)]
    _job.write(snakemake, {"metrics": user_tables.values()}, warning_rows)
