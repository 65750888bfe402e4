"""Correlations of every feature with every metric, plain, honest and given what else drifts; and the verdicts."""

import frames
import job
from toposcale.statistics import correlation_tables, pooled_tables, verdicts


def main(snakemake):
    features, metrics = frames.read_features(snakemake.input.features), frames.read(snakemake.input.metrics)
    if features.empty:
        return frames.write_nothing(snakemake)
    settings = dict(snakemake.params.settings)
    plain = correlation_tables.correlation_table(features, metrics, **settings)
    partial = correlation_tables.partial_correlation_table(features, metrics, **settings)
    pooled = pooled_tables.pooled_table(features, metrics, plain, partial)
    frames.write(
        snakemake,
        correlations=plain,
        partial_correlations=partial,
        pooled_correlations=pooled,
        verdicts=verdicts.verdict_table(plain, partial, pooled),
    )


if __name__ == "__main__":
    job.run(main, snakemake)
