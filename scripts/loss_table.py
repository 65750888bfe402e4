"""What a loss curve of the user's tells: the training log and the metrics of its model."""

import _job
from toposcale.io import loss_curves, tables


def main(snakemake):
    curve = loss_curves.read(snakemake.input[0])
    metadata = _job.provenance(snakemake)
    tables.write(curve.log(), snakemake.output.log, metadata)
    rows = curve.metric_rows(snakemake.wildcards.model, snakemake.params.steps)
    tables.write(rows, snakemake.output.metrics, metadata)


if __name__ == "__main__":
    _job.run(main, snakemake)
