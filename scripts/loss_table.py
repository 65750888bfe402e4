"""A loss curve without weights into the training log and the metrics of its model."""

import _job
from toposcale.io import loss_curves, tables


def main(snakemake):
    log, metrics = loss_curves.read(snakemake.input[0], snakemake.wildcards.model)
    metadata = _job.provenance(snakemake)
    tables.write(log, snakemake.output.log, metadata)
    tables.write(metrics, snakemake.output.metrics, metadata)


if __name__ == "__main__":
    _job.run(main, snakemake)
