"""How far the embedded texts of one model move from each checkpoint to the next, as features of the later one."""

from itertools import pairwise

import _clouds
import _job
from toposcale.features.divergences import divergence
from toposcale.io import schemas, tables


def main(snakemake):
    params, model = snakemake.params, snakemake.wildcards.model
    clouds = map(_clouds.read, _job.each(snakemake.input.clouds))
    parts = []
    for step, (earlier, later) in zip(params.steps[1:], pairwise(clouds), strict=True):
        if not len(earlier.texts) or not len(later.texts):
            continue  # a gap
        seed = (_clouds.SEED, model, "divergence subsets")
        features = divergence(earlier, later, repeats=params.repeats, seed=seed)
        where = {"model": model, "step": step, "source": "embeddings"}
        parts.append(tables.feature_rows({schemas.ALL_LAYERS: features}, **where))
    tables.write(
        tables.joined(schemas.TABLES["features"], parts), snakemake.output[0], _job.provenance(snakemake)
    )


if __name__ == "__main__":
    _job.run(main, snakemake)
