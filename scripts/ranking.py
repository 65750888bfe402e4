"""Topology against spectra against norms: how closely each follows a metric."""

import frames
import job
from toposcale.statistics import ranking


def main(snakemake):
    features, metrics = frames.read_features(snakemake.input.features), frames.read(snakemake.input.metrics)
    if features.empty:
        return frames.write_nothing(snakemake)
    settings = dict(snakemake.params.settings)
    frames.write(
        snakemake,
        ranking=ranking.ranking_table(features, metrics, **settings),
        feature_groups=ranking.group_table(features, metrics, **settings),
    )


if __name__ == "__main__":
    job.run(main, snakemake)
