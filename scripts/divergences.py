"""Compute divergences between the embedded texts of consecutive checkpoints, as features of the later one."""

from itertools import pairwise

import _job
from toposcale.features.divergences import divergence, load_clouds
from toposcale.io import schemas, tables


@_job.script
def main(snakemake):
    params, model = snakemake.params, snakemake.wildcards.model
    clouds = (item for path in snakemake.input for item in load_clouds(path).items())
    parts = []
    for (_, earlier), (step, later) in pairwise(clouds):
        if not len(earlier.texts) or not len(later.texts):
            continue  # a missing checkpoint
        features = divergence(earlier, later, repeats=params.repeats, seed=(42, "divergence subsets"))
        where = {"model": model, "step": step, "source": "embeddings"}
        parts.append(tables.feature_rows({schemas.ALL_LAYERS: features}, **where))
    _job.write(snakemake, {"features": parts})
