"""A loss curve without weights into the training log and the metrics of its model."""

import job
from toposcale import loss_table, tables


def main(snakemake):
    log, metrics = loss_table.read(snakemake.input[0], snakemake.wildcards.model)
    metadata = job.provenance(snakemake)
    tables.write(log, snakemake.output.log, metadata)
    tables.write(metrics, snakemake.output.metrics, metadata)


if __name__ == "__main__":
    job.run(main, snakemake)
