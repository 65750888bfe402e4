"""Where each series changes most and where its slope breaks, and whether such steps coincide beyond chance."""

import frames
import job
from toposcale.statistics import transition_tables


def main(snakemake):
    features, metrics = frames.read_features(snakemake.input.features), frames.read(snakemake.input.metrics)
    frames.write(
        snakemake,
        transitions=transition_tables.transition_table(features, metrics),
        change_points=transition_tables.change_point_table(features, metrics),
        coincidences=transition_tables.coincidence_table(features, metrics),
    )


if __name__ == "__main__":
    job.run(main, snakemake)
