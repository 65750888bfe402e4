"""One row a model: what it is, how large, how many tokens it sees a step, and where its training ends."""

import _job
import _models
from toposcale.io import schemas, tables


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    weights = dict(zip(params.with_weights, given.checkpoints, strict=True))
    curves = dict(zip(params.with_curve, given.curves, strict=True))
    logs = dict(zip(params.with_curve, given.logs, strict=True))
    rows = [
        _models.row(
            name,
            facts,
            weights=weights.get(name),
            curve=curves.get(name),
            last_logged=last_step(logs[name]) if name in logs else None,
        )
        for name, facts in params.models.items()
    ]
    tables.write(tables.from_rows(schemas.MODELS, rows), snakemake.output[0], _job.provenance(snakemake))


def last_step(log):
    return max(tables.read(schemas.TRAINING, log)["step"].to_pylist(), default=None)


if __name__ == "__main__":
    _job.run(main, snakemake)
