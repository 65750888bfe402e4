"""One row a model: what it is, how large, how many tokens it sees a step, and where its training ends."""

from pathlib import Path

import _job
import _models
from toposcale.io import files, schemas, tables


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    weights = dict(zip(params.with_weights, given.checkpoints, strict=True))
    curves = dict(zip(params.with_curve, given.curves, strict=True))
    logs = dict(zip(params.with_curve, given.logs, strict=True))
    sizes = fetched_sizes(given.sizes)
    rows = [
        _models.row(
            name,
            {"n_parameters": sizes.get(name)} | known(facts),
            weights=weights.get(name),
            curve=curves.get(name),
            last_logged=last_step(logs[name]) if name in logs else None,
        )
        for name, facts in params.models.items()
    ]
    tables.write(tables.from_rows(schemas.MODELS, rows), snakemake.output[0], _job.provenance(snakemake))


def known(facts):
    return {key: value for key, value in facts.items() if value is not None}


def fetched_sizes(paths):
    """Parameters of each published model, from its checkpoints; those that are gaps have none."""
    sizes = [(Path(path).parent.name, files.read_json(path)["n_parameters"]) for path in paths]
    return {model: size for model, size in sizes if size}


def last_step(log):
    return max(tables.read(schemas.TRAINING, log)["step"].to_pylist(), default=None)


if __name__ == "__main__":
    _job.run(main, snakemake)
