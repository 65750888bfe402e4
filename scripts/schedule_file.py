"""Read the learning-rate schedule of a model from the file of the user."""

import _job
from toposcale.forecasting.logs.table_files import read_schedule
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    schedule = read_schedule(snakemake.input.file)
    columns = {"model": [snakemake.wildcards.model] * len(schedule.at), "step": list(schedule.at)}
    rows = tables.from_columns(schemas.TABLES["schedules"], columns | {"learning_rate": list(schedule.values)})
    tables.write(rows, snakemake.output[0], _job.provenance(snakemake))
