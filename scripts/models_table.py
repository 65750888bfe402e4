"""One row a model: what it is, how large, how many tokens it sees a step, where its training ends; and the plans."""

from pathlib import Path

import _job
import _models
from toposcale.io import files, schemas, tables
from toposcale.training.schedules import planned, warmup_of


def main(snakemake):
    params, given = snakemake.params, snakemake.input
    weights = dict(zip(params.with_weights, given.checkpoints, strict=True))
    curves = dict(zip(params.with_curve, given.curves, strict=True))
    logs = {
        name: tables.read(schemas.TABLES["training"], path)
        for name, path in zip(params.with_log, given.logs, strict=True)
    }
    sizes = fetched_sizes(given.sizes)
    rows, schedules = [], []
    for name, facts in params.models.items():
        log = logs.get(name, schemas.TABLES["training"].schema.empty_table())
        steps, rates = (log[column].to_numpy() for column in ("step", "learning_rate"))
        last = int(steps.max()) if name in curves and len(steps) else None
        told = {"n_parameters": sizes.get(name)} | {
            key: value for key, value in facts.items() if value is not None
        }
        row = _models.row(name, told, weights=weights.get(name), curve=curves.get(name), last_logged=last)
        row, plan = planned(row, facts, steps, rates)
        if row.get("warmup_steps") is None and name in logs:
            warmup = warmup_of(steps, rates)
            row["warmup_steps"] = None if warmup is None else int(warmup)
        rows.append(row)
        schedules += plan
    metadata = _job.provenance(snakemake)
    tables.write(tables.from_rows(schemas.TABLES["models"], rows), snakemake.output.models, metadata)
    tables.write(
        tables.from_rows(schemas.TABLES["schedules"], schedules), snakemake.output.schedules, metadata
    )


def fetched_sizes(paths):
    """Parameters of each published model, from its checkpoints; those that are gaps have none."""
    sizes = [(Path(path).parent.name, files.read_json(path)["n_parameters"]) for path in paths]
    return {model: size for model, size in sizes if size}


if __name__ == "__main__":
    _job.run(main, snakemake)
