"""One row a model: what it is, how large, how many tokens it sees a step, and where its training ends."""

from pathlib import Path

import _job
from toposcale import checkpoints
from toposcale.io import schemas, tables


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    sizes = {
        name: checkpoints.count_parameters(checkpoints.locate(path))
        for name, path in zip(params.with_weights, given.checkpoints, strict=True)
    }
    ends = {Path(path).stem: tables.read(schemas.TRAINING, path)["step"][-1].as_py() for path in given.logs}
    rows = []
    for name, model in params.models.items():
        row = {"model": name, **model}
        row["n_parameters"] = row["n_parameters"] or sizes[name]
        row["tokens_per_step"] = row["tokens_per_step"] or params.trained_tokens_per_step
        row["final_step"] = row["final_step"] or ends[name]
        rows.append(row)
    tables.write(tables.from_rows(schemas.MODELS, rows), snakemake.output[0], _job.provenance(snakemake))


if __name__ == "__main__":
    _job.run(main, snakemake)
