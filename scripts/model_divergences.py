"""How differently two models place the same texts after the same share of their training."""

from functools import lru_cache

import _clouds
import _job
from toposcale.features.divergences import divergence
from toposcale.io import schemas, tables


def main(snakemake):
    params = snakemake.params
    read = lru_cache(maxsize=2)(_clouds.read)  # one file may hold all checkpoints of a model
    rows = []
    for pair, first, second in zip(params.pairs, snakemake.input.first, snakemake.input.second, strict=True):
        clouds = read(first)[pair["step"]], read(second)[pair["other_step"]]
        if not all(len(cloud.texts) for cloud in clouds):
            continue  # a gap
        seed = (params.seed, pair["model"], pair["other_model"], "divergence subsets")
        features = divergence(*clouds, repeats=params.repeats, seed=seed)
        rows.append({"rtd_spread": None, **pair, **features})
    table = tables.from_rows(schemas.DIVERGENCES, rows)
    metadata = _job.provenance(snakemake)
    tables.write(table, snakemake.output.divergences, metadata)
    tables.write_csv(table, snakemake.output.divergences_csv)


if __name__ == "__main__":
    _job.run(main, snakemake)
