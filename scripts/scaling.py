"""Power laws in the number of parameters, and the largest model foretold from the smaller ones."""

import frames
import job
from toposcale.statistics import scaling_tables


def main(snakemake):
    given = snakemake.input
    read = [frames.read_features(given.features), frames.read(given.metrics), frames.read(given.models)]
    frames.write(
        snakemake,
        scaling=scaling_tables.scaling_table(*read, **dict(snakemake.params.settings)),
        largest_model=scaling_tables.largest_model_table(*read),
    )


if __name__ == "__main__":
    job.run(main, snakemake)
