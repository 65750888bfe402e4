"""Write the training log and the metrics of a model from the loss curve of the user."""

import _job
from _job import note
from toposcale.analysis.user_tables import log_columns, metric_table, training_table
from toposcale.forecasting.logs import loss_curves
from toposcale.io import tables


@_job.script
def main(snakemake):
    curve = loss_curves.read(snakemake.input[0], pattern=snakemake.params.pattern)
    metadata = _job.provenance(snakemake)
    tables.write(training_table(curve), snakemake.output.log, metadata | log_columns(curve))
    model = snakemake.wildcards.model
    warning_rows = [note(model, "training log", text, "") for text in (*curve.notes, *curve.low_confidence_reasons)]
    rows = metric_table(curve, model, snakemake.params.steps)
    tables.write(rows, snakemake.output.metrics, tables.with_warnings(metadata, warning_rows))
