"""How differently two models place the same texts after the same share of their training."""

import _clouds
import _job
from toposcale.features.divergences import divergence
from toposcale.io import schemas, tables


def main(snakemake):
    params = snakemake.params
    rows = []
    for pair, first, second in zip(params.pairs, snakemake.input.first, snakemake.input.second, strict=True):
        clouds = _clouds.read(first), _clouds.read(second)
        if not all(len(cloud.texts) for cloud in clouds):
            continue  # a gap
        seed = (params.seed, pair["model"], pair["other_model"], "divergence subsets")
        features = divergence(*clouds, repeats=params.repeats, seed=seed)
        rows.append({"rtd_spread": None, **pair, **features})
    table = tables.from_rows(schemas.TABLES["divergences"], rows)
    metadata = _job.provenance(snakemake)
    tables.write(table, snakemake.output.divergences, metadata)
    tables.write_csv(table, snakemake.output.divergences_csv)


if __name__ == "__main__":
    _job.run(main, snakemake)
