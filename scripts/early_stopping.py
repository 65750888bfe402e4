"""Patience on each feature against patience on the validation loss: steps saved and loss given up."""

import frames
import job
from toposcale.statistics import early_stopping_tables


def main(snakemake):
    features, metrics = frames.read_features(snakemake.input.features), frames.read(snakemake.input.metrics)
    table = early_stopping_tables.early_stopping_table(features, metrics)
    frames.write(
        snakemake,
        early_stopping=table,
        early_stopping_summary=early_stopping_tables.early_stopping_summary(table),
    )


if __name__ == "__main__":
    job.run(main, snakemake)
